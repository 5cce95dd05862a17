"""Settings of training, validation, early stopping and checkpoints."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from pellucid.config.settings import Settings

Schedule = Literal["noam", "inverse_sqrt", "cosine", "warmup_stable_decay", "constant"]
Metric = Literal["loss", "bleu", "chrf"]


class TrainingConfig(Settings):
    """Optimizer, learning-rate schedule, length of the run and precision."""

    section: ClassVar[str] = "training"

    steps: int | None = Field(default=None, ge=1)
    """Maximum number of optimizer steps."""

    epochs: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Maximum number of passes over the training data."""

    minutes: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Maximum training time in minutes, counted across resumed runs. A run that ends by the clock
    cannot be reproduced bit for bit; one that ends by steps or epochs can."""

    seed: int = Field(default=0, ge=0, lt=2**32)
    """Random seed of initial weights, data order and dropout."""

    embedding_init: Literal["random", "cooccurrence"] = "random"
    """Initial embeddings: random, or from word co-occurrence in the training pairs, so that words
    that occur in the same pairs start close together. Counting takes seconds and saves much of the
    first epoch; it needs one vocabulary for both languages."""

    optimizer: Literal["adamw", "adam", "muon"] = "adamw"
    """Optimizer. adam is the paper's (weight decay, if any, goes through the gradient); muon
    updates the matrices inside the layers and leaves the rest to adamw."""

    learning_rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Peak learning rate. Unset, it is 0.001, or with schedule = "noam" the paper's
    d_model ** -0.5 * warmup_steps ** -0.5."""

    muon_learning_rate: float = Field(default=0.02, gt=0, allow_inf_nan=False)
    """Peak learning rate of the matrices that muon updates; it follows the same schedule."""

    muon_momentum: float = Field(default=0.95, ge=0, lt=1)
    """Momentum of muon."""

    betas: tuple[float, float] = (0.9, 0.98)
    """Adam's decay rates of the gradient's mean and of its square (the paper's values)."""

    epsilon: float = Field(default=1e-9, gt=0)
    """Adam's epsilon, which prevents a division by zero (the paper's value)."""

    weight_decay: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Weight decay of matrices and embeddings, scaled by the learning rate; biases and norms are
    not decayed."""

    schedule: Schedule = "inverse_sqrt"
    """Learning-rate schedule after the warm-up: 1 / sqrt(step) (noam is the same with the paper's
    peak), half a cosine, constant and then a linear decay, or constant."""

    warmup_steps: int = Field(default=4000, ge=0)
    """Steps over which the learning rate rises linearly from 0 to its peak."""

    decay_fraction: float = Field(default=0.3, gt=0, le=1)
    """With warmup_stable_decay: fraction of all steps, at the end, over which the learning rate
    decays."""

    min_lr_ratio: float = Field(default=0.0, ge=0, le=1)
    """With cosine and warmup_stable_decay: final learning rate as a fraction of the peak."""

    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    """Label smoothing: probability taken from the right token and spread over the vocabulary."""

    max_grad_norm: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """Gradient clipping: maximum gradient norm; a longer gradient is scaled down. 0 turns clipping
    off."""

    gradient_accumulation_steps: int = Field(default=1, ge=1)
    """Gradient accumulation: batches per optimizer step. The result equals one large batch."""

    ema_decay: float | None = Field(default=None, gt=0, lt=1)
    """Decay of an exponential moving average of the weights (0.999 averages over about a thousand
    steps). Validation and the bundle use the averaged weights."""

    average_checkpoints: int = Field(default=0, ge=0)
    """Checkpoint averaging: number of last checkpoints whose weights are averaged at the end (the
    paper: 5 or 20)."""

    result: Literal["auto", "best", "last", "average", "ema"] = "auto"
    """Weights of the bundle. auto: the average if average_checkpoints is set, else those of the
    best validation, else the last."""

    init_interpolation: float = Field(default=0.0, ge=0, lt=1)
    """With init_from: fraction of the initial weights interpolated into the result. The mean of
    the weights before and after fine-tuning (0.5) often translates better than either."""

    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:\d+)?|mps)$")
    """Device. auto takes a GPU if there is one."""

    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Numeric precision: fp32, or bf16 mixed precision (autocast). auto: bf16 on GPUs that have
    it, fp32 on processors. bf16 on a processor needs AVX-512 BF16 or AMX, where a step takes about
    half the time; on one without, the run computes in fp32 and says so."""

    compile: Literal["auto", "on", "off"] = "auto"
    """Compile the model with torch.compile. auto: on GPUs only."""

    threads: int | None = Field(default=None, ge=1, le=4096)
    """CPU threads per process; unset, PyTorch decides. The same number gives the same bits, so a
    resumed run keeps the number it began with."""

    parallel: Literal["ddp", "fsdp"] = "ddp"
    """With several processes (torchrun): data parallel, a copy of the model in each (ddp), or fully
    sharded, for models that do not fit into one process (fsdp)."""

    timeout: float = Field(default=600.0, gt=0, le=7 * 86400)
    """With several processes: seconds a process waits for the others in a step before it considers
    them lost and ends."""

    @model_validator(mode="after")
    def _check_choices(self) -> Self:
        if self.steps is None and self.epochs is None and self.minutes is None:
            raise ValueError("nothing says when to stop: set steps, epochs or minutes")
        needs_end = self.schedule in ("cosine", "warmup_stable_decay")
        if needs_end and self.steps is None and self.epochs is None:
            raise ValueError(
                f"schedule = {self.schedule!r} needs the number of steps in advance: set steps or "
                "epochs (minutes may be set too, and stop it earlier)"
            )
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas = {list(self.betas)}: each must be at least 0 and below 1")
        if self.result == "average" and not self.average_checkpoints:
            raise ValueError(
                "result = 'average' needs average_checkpoints, the number of checkpoints to average"
            )
        if self.result == "ema" and self.ema_decay is None:
            raise ValueError("result = 'ema' needs ema_decay, e.g. 0.999")
        if self.schedule == "noam" and self.warmup_steps == 0:
            raise ValueError("schedule = 'noam' needs warmup_steps of at least 1")
        return self


class ValidationConfig(Settings):
    """Validation during training, on `data.valid`."""

    section: ClassVar[str] = "validation"

    every: int | None = Field(default=None, ge=1)
    """Steps between validations; unset, once an epoch. There is always one at the end."""

    translate: bool = True
    """Translate at each validation, to compute BLEU and chrF and to show samples."""

    beam_size: int = Field(default=1, ge=1, le=64)
    """Beam size of these translations; 1 is greedy, the fastest."""

    sentences: int = Field(default=500, ge=0)
    """Maximum number of pairs to translate, evenly spread; 0 for all. The loss is always over all
    pairs."""

    samples: int = Field(default=5, ge=0, le=100)
    """Number of sample translations to show."""


class EarlyStoppingConfig(Settings):
    """Early stopping, and which validation counts as the best."""

    section: ClassVar[str] = "early_stopping"

    metric: Metric = "loss"
    """Early-stopping metric, which also decides which checkpoint is the best: the lowest loss, or
    the highest BLEU or chrF."""

    patience: int | None = Field(default=None, ge=1)
    """Number of validations in a row without improvement after which training stops; unset,
    never."""

    min_delta: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Minimum improvement that counts as a new best."""


class CheckpointConfig(Settings):
    """Checkpoints: how often they are saved and how many are kept."""

    every: int | None = Field(default=None, ge=1)
    """Steps between checkpoints; unset, at each validation. There is always one at the end."""

    minutes: float = Field(default=15.0, ge=0, allow_inf_nan=False)
    """Maximum number of minutes between checkpoints; 0 for no limit."""

    keep: int = Field(default=3, ge=1)
    """Number of last checkpoints to keep (or `training.average_checkpoints` of them, if more)."""

    keep_best: bool = True
    """Keep the checkpoint of the best validation too, however old."""
