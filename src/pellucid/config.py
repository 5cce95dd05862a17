"""Every setting, validated. A config is data: frozen, printable, and saved with the model.

The docstring under a setting is its help text.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, model_validator

from pellucid.errors import ConfigError, InputError


class Settings(BaseModel):
    """A group of settings that refuses what it does not know, in one clear line."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        use_attribute_docstrings=True,
        defer_build=True,  # a command pays for the settings it uses, not for all
    )

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(_one_line(type(self), error)) from None

    def changed(self, **changes: Any) -> Self:
        """The same settings with some of them changed, validated again."""
        return type(self)(**{**self.model_dump(exclude_unset=True), **changes})


def nearest(word: str, known: list[str]) -> str:
    """A hint that names the known word closest to a misspelled one, or lists them all."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}"


def _one_line(cls: type[BaseModel], error: ValidationError) -> str:
    """The first problem of a pydantic error, as what was given and what to do."""
    problems = error.errors()
    # a misspelled setting often shows as a missing one too; the misspelling is the cause
    first = next((e for e in problems if e["type"] == "extra_forbidden"), problems[0])
    name = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in first["loc"]).lstrip(".")
    if first["type"] == "extra_forbidden":
        return f"unknown setting {name!r}: {nearest(name, list(cls.model_fields))}"
    if first["type"] == "missing":
        return f"setting {name!r} is missing: give it a value"
    if first["type"] == "value_error":  # raised by a validator below, or by a group in the group
        message = str(first["ctx"]["error"])
        return f"in {name}: {message}" if name else message
    given = first["input"]
    if first["type"] == "literal_error":
        return f"setting {name!r} is {given!r}: choose {first['ctx']['expected']}"
    message = first["msg"][0].lower() + first["msg"][1:]
    return f"setting {name!r} is {given!r}: {message}"


Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "relu2", "geglu", "geglu_tanh", "swiglu"]
NormPlacement = Literal["post", "pre", "sandwich"]
NormKind = Literal["layer", "rms"]
PositionKind = Literal["sinusoidal", "learned", "rotary", "none"]
PositionLayout = Literal["interleaved", "halves"]
Tying = Literal["all", "decoder", "none"]
QueryKeyNorm = Literal["none", "self", "all"]


class ModelShape(Settings):
    """The shape of a Transformer but for its vocabulary. The defaults are the paper's base."""

    width: int = Field(default=512, ge=1)
    """Length of the vector that stands for a token (d_model, D)."""

    feed_forward_width: int = Field(default=2048, ge=1)
    """Width inside the feed-forward layers (d_ff, F)."""

    heads: int = Field(default=8, ge=1)
    """Attention heads (H); each works on width / heads numbers (d_k, K)."""

    key_value_heads: int | None = Field(default=None, ge=1)
    """Heads of the keys and values: as many as heads (unset), one (multi-query) or some
    (grouped-query)."""

    encoder_layers: int = Field(default=6, ge=0)
    """Depth of the encoder."""

    decoder_layers: int = Field(default=6, ge=0)
    """Depth of the decoder."""

    norm: NormPlacement = "post"
    """Where normalisation stands: after the residual sum (the paper), before each sub-layer,
    or on both sides of it."""

    norm_kind: NormKind = "layer"
    """LayerNorm (mean and variance) or RMSNorm (root mean square only)."""

    norm_epsilon: float = Field(default=1e-5, gt=0)
    """Added to the variance so that nothing is divided by zero."""

    activation: Activation = "relu"
    """What bends the feed-forward layer; geglu and swiglu are gated, relu2 is ReLU squared."""

    positions: PositionKind = "sinusoidal"
    """How the model learns the order of tokens."""

    position_layout: PositionLayout = "interleaved"
    """Sines and cosines in turn (the paper) or in two halves (tensor2tensor, Marian, Llama)."""

    position_base: float = Field(default=10000.0, gt=1)
    """The longest wavelength of sinusoidal and rotary positions, over 2 pi."""

    max_length: int = Field(default=1024, ge=1)
    """Learned positions end here. Sinusoidal and rotary ones grow by themselves."""

    attention_bias: bool = True
    """Whether the projections of queries, keys, values and the output add a bias."""

    feed_forward_bias: bool = True
    """Whether the feed-forward layers add a bias."""

    output_bias: bool = False
    """Whether each token of the vocabulary has a bias of its own in the logits."""

    qk_norm: QueryKeyNorm = "none"
    """RMS-normalise each head's queries and keys, which bounds the scores: nowhere, in
    self-attention, or in all attention (CTranslate2 cannot run the last)."""

    tie: Tying = "all"
    """Which embeddings are one matrix: source, target and output; target and output; none."""

    scale_embedding: bool = True
    """Multiply embeddings by sqrt(width), as in the paper."""

    embedding_norm: bool = False
    """Normalise embedding + position before the first layer, as BERT does."""

    dropout: float = Field(default=0.1, ge=0, lt=1)
    """Dropout on each sub-layer's output and on embedding + position."""

    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the attention weights."""

    activation_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout inside the feed-forward layers."""

    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": {
            "width": 128,
            "feed_forward_width": 256,
            "heads": 4,
            "encoder_layers": 4,
            "decoder_layers": 4,
        },
        "small": {
            "width": 256,
            "feed_forward_width": 1024,
            "heads": 4,
            "encoder_layers": 3,
            "decoder_layers": 3,
        },
        "base": {},
        "big": {"width": 1024, "feed_forward_width": 4096, "heads": 16, "dropout": 0.3},
    }

    @property
    def head_width(self) -> int:
        """Width of one head (K)."""
        return self.width // self.heads

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.width % self.heads:
            fitting = [n for n in range(1, self.width + 1) if self.width % n == 0]
            close = min(fitting, key=lambda n: abs(n - self.heads))
            raise ValueError(
                f"heads = {self.heads} does not divide width = {self.width}: "
                f"set heads to {close}, or width to a multiple of {self.heads}"
            )
        if self.key_value_heads is not None and self.heads % self.key_value_heads:
            raise ValueError(
                f"key_value_heads = {self.key_value_heads} does not divide heads = {self.heads}: "
                "each head of the keys and values serves the same number of query heads"
            )
        if self.positions == "rotary" and self.head_width % 2:
            raise ValueError(
                f"positions = 'rotary' turns pairs of numbers, and width / heads = "
                f"{self.head_width} is odd: make width / heads even, or choose other positions"
            )
        if self.positions == "sinusoidal" and self.width % 2:
            raise ValueError(
                f"positions = 'sinusoidal' needs pairs of sine and cosine, and width = "
                f"{self.width} is odd: make width even, or choose other positions"
            )
        return self


class ModelConfig(ModelShape):
    """The shape of a Transformer. The defaults are the base model of the paper."""

    vocab_size: int = Field(ge=1)
    """Number of token ids on the target side (V), and on the source side too unless
    source_vocab_size says otherwise."""

    source_vocab_size: int | None = Field(default=None, ge=1)
    """Number of source token ids where the source has a vocabulary of its own."""

    pad_id: int = Field(default=0, ge=0)
    """The token id that means "nothing here"; it is never attended to."""

    @classmethod
    def preset(cls, name: str, **changes: Any) -> ModelConfig:
        """A named shape (tiny, small, base, big), with some settings changed.

        The vocabulary belongs to the data, so `vocab_size` is always given by the caller.
        """
        if name not in cls.presets:
            raise ConfigError(f"unknown preset {name!r}: {nearest(name, list(cls.presets))}")
        return cls(**{**cls.presets[name], **changes})

    @model_validator(mode="after")
    def _vocabulary_fits(self) -> Self:
        if self.pad_id >= min(self.vocab_size, self.source_vocab_size or self.vocab_size):
            raise ValueError(
                f"pad_id = {self.pad_id} is outside the vocabulary of {self.vocab_size}: "
                "pad_id must be below vocab_size and source_vocab_size"
            )
        if self.tie == "all" and self.source_vocab_size not in (None, self.vocab_size):
            raise ValueError(
                "tie = 'all' needs one vocabulary for both sides: set tie to 'decoder' or 'none', "
                "or leave source_vocab_size out"
            )
        return self


CorpusFormat = Literal["auto", "tsv", "parallel", "jsonl", "tmx", "po"]


_LANGUAGE = r"[A-Za-z]{2,8}(_[A-Za-z0-9]{1,8})*"
Language = Annotated[str, Field(pattern=f"^{_LANGUAGE}$")]


def split_direction(direction: str) -> tuple[str, str]:
    """The source and target language of a direction: "fr-en" is ("fr", "en")."""
    source, dash, target = direction.partition("-")
    if not (dash and re.fullmatch(_LANGUAGE, source) and re.fullmatch(_LANGUAGE, target)):
        raise ConfigError(
            f"direction {direction!r} is not two language codes: write it like 'fr-en' "
            "(a region follows an underscore: 'pt_BR-en')"
        )
    return source, target


class CorpusConfig(Settings):
    """Sentence pairs on disk: one file with both sides (`path`) or one file a side (`source`,
    `target`). Compression (.gz, .zst) is recognised by itself."""

    path: Path | None = None
    """One file that holds both sides: .tsv, .jsonl or .tmx (each also .gz or .zst), .po or .mo."""

    source: Path | None = None
    """The file with the first language, a sentence a line, where each side has a file."""

    target: Path | None = None
    """The file with the second language; its line N translates line N of `source`."""

    languages: tuple[Language, Language]
    """The languages of the first and the second side, e.g. ["en", "fr"]. They say what is in the
    files, not which way to translate: that is `directions`."""

    format: CorpusFormat = "auto"
    """What the file is; auto goes by the name."""

    columns: tuple[PositiveInt, PositiveInt] | None = None
    """Which columns of a tab-separated file hold the two sides, counted from 1. Unset, the file
    must have exactly two; set, further columns are ignored."""

    keys: tuple[str, str] | None = None
    """Which keys of a JSON line hold the two sides. Unset: the language codes, at the top or under
    "translation"."""

    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """How often a pair of this corpus is seen, relative to a pair of a corpus with weight 1."""

    @model_validator(mode="after")
    def _files_fit(self) -> Self:
        if self.path is not None and (self.source is not None or self.target is not None):
            raise ValueError(
                f"corpus {self.path} has path and also source or target: give one file with both "
                "sides (path), or two parallel files (source and target)"
            )
        if self.path is None and (self.source is None or self.target is None):
            raise ValueError(
                "a corpus needs its files: give path (one file with both sides), or source and "
                "target (two parallel files)"
            )
        if (self.path is None) != (self.format == "parallel") and self.format != "auto":
            raise ValueError(
                f"format = {self.format!r} does not fit: 'parallel' goes with source and target, "
                "the other formats with path"
            )
        if self.languages[0] == self.languages[1]:
            raise ValueError(
                f"languages = {list(self.languages)} are the same: name the language of each side"
            )
        return self


class CleaningConfig(Settings):
    """Which sentence pairs are left out of training. Whatever is left out is counted."""

    max_characters: int = Field(default=2000, ge=1, le=100_000)
    """A pair with a longer side than this many characters is dropped."""

    max_words: int = Field(default=300, ge=1)
    """A pair with a side of more words than this (by white space) is dropped."""

    max_ratio: float = Field(default=6.0, ge=1)
    """A pair is dropped if one side has more than this many times the characters of the other.
    Chinese needs about a third of the characters of English, so mind the languages."""

    ratio_from: int = Field(default=50, ge=0)
    """The ratio is judged only where the longer side has at least this many characters: among
    short ones ("Ok." and "C'est d'accord pour moi.") it says nothing."""

    drop_copies: bool = False
    """Drop pairs whose two sides are the same text. They are counted in any case."""

    drop_duplicates: bool = False
    """Drop pairs that stood before, both sides exactly. They are counted in any case."""


class DataConfig(Settings):
    """What a model is trained and judged on."""

    directions: tuple[str, ...] = Field(min_length=1)
    """Which ways to translate, e.g. ["fr-en", "en-fr"]: one model learns them all, told apart by
    a tag for the target language."""

    train: tuple[CorpusConfig, ...] = Field(min_length=1)
    """Corpora to learn from."""

    valid: tuple[CorpusConfig, ...] = ()
    """Corpora that say during training how good the model is; it does not learn from them."""

    test: tuple[CorpusConfig, ...] = ()
    """Corpora for the report at the end."""

    cleaning: CleaningConfig = CleaningConfig()
    """Which pairs to leave out."""

    temperature: float | None = Field(default=None, ge=1, allow_inf_nan=False)
    """Flattens the mix of corpora of different size: a corpus of n pairs is drawn in proportion to
    weight * n ** (1 / temperature). 1 (or unset) is as they come; about 5 helps small corpora."""

    @model_validator(mode="after")
    def _directions_fit(self) -> Self:
        if len(set(self.directions)) != len(self.directions):
            raise ValueError(f"directions = {list(self.directions)} has one twice: remove it")
        there = {frozenset(corpus.languages) for corpus in self.train}
        for direction in self.directions:
            if frozenset(split_direction(direction)) not in there:
                have = ", ".join(sorted("-".join(sorted(pair)) for pair in there))
                raise ValueError(
                    f"no training corpus has both languages of direction {direction!r} "
                    f"(there is: {have}): add one to train, or remove the direction"
                )
        return self


class TokenizerConfig(Settings):
    """How text is cut into pieces."""

    kind: Literal["unigram", "bpe"] = "unigram"
    """The most probable pieces (unigram), or byte-pair merges (bpe)."""

    vocab_size: int = Field(default=8000, ge=264, le=1_000_000)
    """Number of pieces, with the special ones and the 256 bytes."""

    character_coverage: float = Field(default=0.9995, gt=0, le=1)
    """Share of the characters of the text that get a piece of their own; rarer ones are spelled
    in bytes."""

    split_digits: bool = False
    """Cut numbers into single digits."""

    sample: int = Field(default=200_000, ge=1)
    """Learn the pieces from at most this many sentences, drawn at random. The unigram model needs
    2 to 3 KB of memory for each of a hundred characters."""

    seed: int = Field(default=0, ge=0, lt=2**32)
    """Decides which sentences are drawn."""


class BatchConfig(Settings):
    """How sentence pairs are put together for a training step."""

    tokens: int = Field(default=4096, ge=8)
    """A batch holds at most this many tokens on each side, padding included: sentences times the
    longest of them, source or target."""

    window: int = Field(default=1_000_000, ge=1)
    """Sentences are grouped by length among this many drawn at random. Fewer give more random
    batches, more give less padding."""

    prefetch: int = Field(default=8, ge=0)
    """Batches made ahead in the background; 0 makes each when it is asked for."""

    subword_sampling: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Cut words into pieces at random, anew each epoch. For a unigram tokenizer, how much to keep
    to the best cut (0.1 to 0.5 is usual); for bpe, the share of merges left out (0.1 is usual)."""


class ModelSection(ModelShape):
    """The model of a recipe: a preset, and what is to differ from it.

    The size of the vocabulary is the tokenizer's and does not stand here.
    """

    preset: Literal["tiny", "small", "base", "big"] = "base"
    """The shape to start from; every other setting here changes it."""

    @model_validator(mode="before")
    @classmethod
    def _start_from_preset(cls, values: Any) -> Any:
        if not isinstance(values, dict) or values.get("preset", "base") not in cls.presets:
            return values
        return {**cls.presets[values.get("preset", "base")], **values}

    def config(self, vocab_size: int) -> ModelConfig:
        """The model's config, once the vocabulary is known."""
        return ModelConfig(vocab_size=vocab_size, **self.model_dump(exclude={"preset"}))


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

    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:\d+)?|mps)$")
    """Where to compute: auto takes a GPU if there is one."""

    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """fp32, or bf16 where it is safe (autocast). auto: bf16 on GPUs that have it."""

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


class Recipe(Settings):
    """Everything about a training run, in one file."""

    title: str = ""
    """What this model is, in a line; it goes into the bundle."""

    data: DataConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    batches: BatchConfig = BatchConfig()
    model: ModelSection = ModelSection()
    training: TrainingConfig
    validation: ValidationConfig = ValidationConfig()
    stopping: StoppingConfig = StoppingConfig()
    checkpoints: CheckpointConfig = CheckpointConfig()

    @model_validator(mode="after")
    def _validation_is_there(self) -> Self:
        if self.training.result == "best" and not self.checkpoints.keep_best:
            raise ValueError("training.result = 'best' needs checkpoints.keep_best = true")
        if self.data.valid:
            return self
        for key, set_to in (
            ("stopping.patience", self.stopping.patience),
            ("validation.metric", self.validation.metric != "loss" or None),
            ("training.result = 'best'", self.training.result == "best" or None),
        ):
            if set_to is not None:
                raise ValueError(f"{key} needs something to be judged on: add [[data.valid]]")
        return self


def load_recipe(path: Path | str, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe in a TOML file, with `section.key=value` overrides.

    Relative paths in it are relative to the file; those in an override, to where the caller is.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
    except FileNotFoundError:
        raise InputError(f"no recipe at {path}: check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the recipe {path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    _resolve_paths(values, path.absolute().parent)
    for override in overrides:
        _override(values, override)
    _resolve_paths(values, Path.cwd())
    try:
        return Recipe(**values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _resolve_paths(values: dict[str, Any], base: Path) -> None:
    data = values.get("data")
    for split in ("train", "valid", "test"):
        corpora = data.get(split) if isinstance(data, dict) else None
        for corpus in corpora if isinstance(corpora, list) else ():
            for key in ("path", "source", "target"):
                if isinstance(corpus, dict) and isinstance(corpus.get(key), str):
                    # an absolute path stays as it is
                    corpus[key] = os.path.normpath(base / Path(corpus[key]).expanduser())


def _override(values: dict[str, Any], override: str) -> None:
    """Put one `section.key=value` into the raw values; the value is TOML, or else plain text."""
    name, equals, text = override.partition("=")
    keys = name.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(
            f"cannot use --set {override!r}: write section.key=value, e.g. training.steps=1000"
        )
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    place: Any = values
    for position, key in enumerate(keys):
        here = ".".join(keys[:position])
        if isinstance(place, list) and not (key.isdigit() and int(key) < len(place)):
            raise ConfigError(
                f"cannot use --set {override!r}: {here} is a list of {len(place)}, so name one of "
                "them by its number from 0"
            )
        if not isinstance(place, list | dict):
            raise ConfigError(f"cannot use --set {override!r}: {here} is a single value")
        index: Any = int(key) if isinstance(place, list) else key
        if position == len(keys) - 1:
            place[index] = value
        else:
            place = place[index] if isinstance(place, list) else place.setdefault(key, {})


# What a run may change when it is resumed: none of it alters what was learned so far.
_MAY_CHANGE = (
    "title",
    "data.*.*.path",
    "data.*.*.source",
    "data.*.*.target",
    "batches.prefetch",
    "training.steps",
    "training.epochs",
    "training.minutes",
    "training.accumulate",
    "training.average",
    "training.result",
    "training.device",
    "training.precision",
    "training.compile",
    "training.threads",
    "training.parallel",
    "training.timeout",
    "validation.*",
    "stopping.*",
    "checkpoints.*",
)


class Difference(NamedTuple):
    """A setting that two recipes have differently."""

    key: str
    old: Any
    new: Any
    may_change: bool
    """Whether a run may be resumed with it changed."""


def recipe_differences(old: Recipe, new: Recipe) -> list[Difference]:
    """Every setting that differs, by its dotted name."""
    before, after = (_flat(recipe.model_dump(mode="json")) for recipe in (old, new))
    found = []
    for key in [*before, *(key for key in after if key not in before)]:
        if before.get(key) != after.get(key):
            may = any(fnmatchcase(key, pattern) for pattern in _MAY_CHANGE)
            found.append(Difference(key, before.get(key), after.get(key), may))
    return found


def _flat(values: Any, name: str = "") -> dict[str, Any]:
    if isinstance(values, list) and any(isinstance(value, dict) for value in values):
        values = {str(place): value for place, value in enumerate(values)}
    if not isinstance(values, dict):
        return {name: values}
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{name}.{key}" if name else key)
    return flat


def as_toml(settings: Settings | dict[str, Any]) -> str:
    """Settings as TOML that reads back to the same; what is unset is left out."""
    values = settings.model_dump(mode="json") if isinstance(settings, Settings) else settings
    lines: list[str] = []
    _write_table(lines, values, "")
    return "\n".join(lines).lstrip("\n") + "\n"


def _write_table(lines: list[str], values: dict[str, Any], name: str) -> None:
    def is_table(value: Any) -> bool:
        return isinstance(value, dict)

    def is_tables(value: Any) -> bool:
        return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)

    for key, value in values.items():
        if value is not None and not is_table(value) and not is_tables(value):
            lines.append(f"{_toml_key(key)} = {_toml_value(value)}")
    for key, value in values.items():
        inner = f"{name}.{_toml_key(key)}" if name else _toml_key(key)
        if is_table(value):
            lines += ["", f"[{inner}]"]
            _write_table(lines, value, inner)
        elif is_tables(value):
            for one in value:
                lines += ["", f"[[{inner}]]"]
                _write_table(lines, one, inner)


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml_value(one) for one in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        # TOML writes nan and inf as Python does, and a whole number needs its point
        return repr(value)
    if isinstance(value, str):
        # a JSON string is a TOML string, but for U+007F and surrogates written as pairs
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    raise TypeError(f"{value!r} has no form in TOML")
