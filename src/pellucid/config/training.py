"""How a model learns, is judged and is kept."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from pellucid.config.settings import Settings

Schedule = Literal["noam", "inverse_sqrt", "cosine", "warmup_stable_decay", "constant"]
Metric = Literal["loss", "bleu", "chrf"]


class TrainingConfig(Settings):
    """How the model learns, and for how long."""

    steps: int | None = Field(default=None, ge=1)
    """Stop after this many optimizer steps."""

    epochs: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Stop after this many passes over the data."""

    minutes: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Stop after this many minutes of training, resumed time included. A run that ends by the
    clock cannot be repeated bit by bit; steps and epochs can."""

    seed: int = Field(default=0, ge=0, lt=2**32)
    """Decides the first weights, the order of the data and the dropout."""

    embeddings: Literal["random", "pairs"] = "random"
    """What the embeddings are at the start: drawn at random, or counted over the training pairs, so
    that words that stand in the same pairs begin close together. That takes seconds and saves
    much of the first epoch; it needs one vocabulary for both languages."""

    optimizer: Literal["adamw", "adam", "muon"] = "adamw"
    """adamw; adam (the paper: weight decay, if any, goes through the gradient); muon for the
    matrices inside the layers, with adamw for the rest."""

    rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """The highest learning rate. Unset, it is 0.001, or with schedule = "noam" the paper's
    width ** -0.5 * warmup ** -0.5."""

    muon_rate: float = Field(default=0.02, gt=0, allow_inf_nan=False)
    """The highest learning rate of the matrices under muon; it follows the same schedule."""

    muon_momentum: float = Field(default=0.95, ge=0, lt=1)
    """How much of the last direction muon keeps."""

    betas: tuple[float, float] = (0.9, 0.98)
    """How much of the mean and of the square of the gradient Adam keeps (the paper's values)."""

    epsilon: float = Field(default=1e-9, gt=0)
    """Keeps Adam from dividing by zero (the paper's value)."""

    weight_decay: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Shrinks matrices and embeddings a little at each step, in proportion to the rate; biases
    and norms are left alone."""

    schedule: Schedule = "inverse_sqrt"
    """How the rate changes after the warm-up: with 1 / sqrt(step) (noam is the same with the
    paper's height); as half a cosine; level and then falling in a line; or not at all."""

    warmup: int = Field(default=4000, ge=0)
    """Steps over which the rate rises from 0 to its highest."""

    decay: float = Field(default=0.3, gt=0, le=1)
    """With warmup_stable_decay: the share of all steps, at the end, in which the rate falls."""

    final_rate: float = Field(default=0.0, ge=0, le=1)
    """With cosine and warmup_stable_decay: the rate at the end, as a share of the highest."""

    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    """The share of probability that is taken from the right token and spread over all."""

    teachers: tuple[str, ...] = ()
    """Models to learn from besides the right answers (distillation), as folders or names: what they
    hold probable at each place of the training pairs, in the mean over them, is asked once before
    the first step and kept in the run's folder. A model that learns from several others comes
    close to what they would say together. They must have the run's vocabulary: models trained on
    the same data with the same section tokenizer do, or one takes it over (tokenizer.like)."""

    teaching: float = Field(default=0.5, gt=0, le=1)
    """With teachers: how much of the target is what they say; the rest is the right token."""

    clip: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """The longest gradient; a longer one is shortened to this. 0 leaves every gradient as it is."""

    accumulate: int = Field(default=1, ge=1)
    """Batches that make one step together. It is as if they were one batch."""

    ema: float | None = Field(default=None, gt=0, lt=1)
    """Keep a moving average of the weights with this decay (0.999 forgets in about a thousand
    steps). Validation and the bundle use it."""

    average: int = Field(default=0, ge=0)
    """At the end, average the weights of this many last checkpoints (the paper: 5 or 20)."""

    result: Literal["auto", "best", "last", "average", "ema"] = "auto"
    """Which weights go into the bundle. auto: the average if `average` is set, else those of the
    best validation, else the last."""

    keep_start: float = Field(default=0.0, ge=0, lt=1)
    """With start_from: the share of the weights it started from that is mixed into the result. The
    mean of before and after (0.5) often translates better than either."""

    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:\d+)?|mps)$")
    """Where to compute: auto takes a GPU if there is one."""

    precision: Literal["auto", "fp32", "bf16", "fast"] = "auto"
    """fp32, or bf16 where it is safe (autocast). auto: bf16 on GPUs that have it; fast: also on
    processors that have it (AVX-512 BF16, AMX), where a step takes about half of the time. On a
    processor without it bf16 is many times slower than fp32."""

    compile: Literal["auto", "on", "off"] = "auto"
    """Let torch.compile make kernels for the model. auto: on GPUs only."""

    threads: int | None = Field(default=None, ge=1, le=4096)
    """Processor threads for one process; unset, PyTorch decides. The same number gives the same
    bits, so a resumed run goes on with the number it began with."""

    parallel: Literal["copies", "shards"] = "copies"
    """With several processes (torchrun): each holds a copy of the model (DDP), or a share of it
    (FSDP), for models that do not fit."""

    timeout: float = Field(default=600.0, gt=0, le=7 * 86400)
    """With several processes: seconds that one waits for the others in a step, before it takes
    them for lost and ends."""

    @model_validator(mode="after")
    def _choices_fit(self) -> Self:
        if self.steps is None and self.epochs is None and self.minutes is None:
            raise ValueError("nothing says when to stop: set steps, epochs or minutes")
        needs_end = self.schedule in ("cosine", "warmup_stable_decay")
        if needs_end and self.steps is None and self.epochs is None:
            raise ValueError(
                f"schedule = {self.schedule!r} must know its end in steps: set steps or epochs "
                "(minutes may be set too, and stop it earlier)"
            )
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas = {list(self.betas)}: each must be at least 0 and below 1")
        if self.result == "average" and not self.average:
            raise ValueError("result = 'average' needs average = how many checkpoints")
        if self.result == "ema" and self.ema is None:
            raise ValueError("result = 'ema' needs ema, e.g. 0.999")
        if self.schedule == "noam" and self.warmup == 0:
            raise ValueError("schedule = 'noam' needs a warmup of at least 1 step")
        return self


class ValidationConfig(Settings):
    """How often and how the model is judged while it learns (on `data.valid`)."""

    every: int | None = Field(default=None, ge=1)
    """Steps between validations; unset, at the end of each epoch. There is one at the end too."""

    metric: Metric = "loss"
    """What "best" means: the lowest loss, or the highest BLEU or chrF."""

    translate: bool = True
    """Translate at each validation, for BLEU, chrF and the samples."""

    beam: int = Field(default=1, ge=1, le=64)
    """Beam of these translations; 1 is greedy, and fast."""

    sentences: int = Field(default=500, ge=0)
    """Translate at most this many pairs, evenly spread; 0 for all. The loss is over all pairs."""

    samples: int = Field(default=5, ge=0, le=100)
    """How many translations to show."""

    @model_validator(mode="after")
    def _metric_is_there(self) -> Self:
        if self.metric != "loss" and not self.translate:
            raise ValueError(f"metric = {self.metric!r} needs translate = true")
        return self


class StoppingConfig(Settings):
    """When to stop early."""

    patience: int | None = Field(default=None, ge=1)
    """Stop after this many validations in a row without a new best; unset, never."""

    least_gain: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """A new best must be better by more than this."""


class CheckpointConfig(Settings):
    """What is kept on disk to go on from."""

    every: int | None = Field(default=None, ge=1)
    """Steps between checkpoints; unset, at each validation. There is one at the end too."""

    minutes: float = Field(default=15.0, ge=0, allow_inf_nan=False)
    """Save also when this many minutes have passed since the last one; 0 for never."""

    keep: int = Field(default=3, ge=1)
    """How many of the last checkpoints stay (or `training.average` of them, if that is more)."""

    keep_best: bool = True
    """Keep the best one too, however old."""
