"""Recipes: all settings of a training run, in one TOML file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from pydantic import model_validator

from pellucid.config.data import BatchConfig, DataConfig, TokenizerConfig
from pellucid.config.distillation import DistillationConfig
from pellucid.config.model import ModelConfig, ModelShape
from pellucid.config.settings import Settings
from pellucid.config.training import (
    CheckpointConfig,
    EarlyStoppingConfig,
    TrainingConfig,
    ValidationConfig,
)
from pellucid.errors import ConfigError, InputError


class ModelSection(ModelShape):
    """The model of a recipe: a preset, and settings that differ from it. The vocabulary size is
    the tokenizer's."""

    preset: Literal["tiny", "small", "base", "big"] = "base"
    """Preset that the other settings in this section override."""

    @model_validator(mode="before")
    @classmethod
    def _apply_preset(cls, values: Any) -> Any:
        if not isinstance(values, dict) or values.get("preset", "base") not in cls.presets:
            return values
        return {**cls.presets[values.get("preset", "base")], **values}

    def config(self, vocab_size: int) -> ModelConfig:
        """Return the model's config, once the vocabulary size is known."""
        return ModelConfig(vocab_size=vocab_size, **self.model_dump(exclude={"preset"}))


class Recipe(Settings):
    """All settings of a training run."""

    title: str = ""
    """One line that describes the model; stored in the bundle."""

    init_from: str | None = None
    """Fine-tuning: the model to start from, as a folder or as a name that
    `pellucid translate --model` takes. Shape and vocabulary come from that model: only the dropouts
    may be set in [model], and nothing in [tokenizer]."""

    data: DataConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    batches: BatchConfig = BatchConfig()
    model: ModelSection = ModelSection()
    training: TrainingConfig
    distillation: DistillationConfig = DistillationConfig()
    validation: ValidationConfig = ValidationConfig()
    early_stopping: EarlyStoppingConfig = EarlyStoppingConfig()
    checkpoints: CheckpointConfig = CheckpointConfig()

    @model_validator(mode="after")
    def _check_init_from(self) -> Self:
        if self.init_from is None:
            if self.training.init_interpolation:
                raise ValueError(
                    "training.init_interpolation interpolates with the weights of the model that "
                    "init_from names, and init_from is not set: leave it out"
                )
            return self
        if self.training.embedding_init != "random":
            raise ValueError(
                "training.embedding_init is for new weights, and init_from loads trained ones: "
                "leave one of the two out"
            )
        dropouts = {"dropout", "attention_dropout", "activation_dropout"}
        for section, allowed in (("model", dropouts), ("tokenizer", set[str]())):
            settings: Settings = getattr(self, section)
            defaults = type(settings)()
            for key in settings.model_fields_set - allowed:
                if getattr(settings, key) != getattr(defaults, key):
                    raise ValueError(
                        f"{section}.{key} comes from the model that init_from names: leave it out"
                    )
        return self

    @model_validator(mode="after")
    def _check_teachers(self) -> Self:
        if self.distillation.teachers and self.batches.samples("target"):
            raise ValueError(
                "distillation.teachers score each target once, in one segmentation, and "
                "batches.subword_regularization segments it anew each epoch: set "
                "batches.subword_side to 'source', or leave one of the two out"
            )
        return self

    @model_validator(mode="after")
    def _check_validation(self) -> Self:
        if self.training.result == "best" and not self.checkpoints.keep_best:
            raise ValueError("training.result = 'best' needs checkpoints.keep_best = true")
        if self.data.valid:
            return self
        for key, value in (
            ("early_stopping.patience", self.early_stopping.patience),
            ("early_stopping.metric", self.early_stopping.metric != "loss" or None),
            ("training.result = 'best'", self.training.result == "best" or None),
        ):
            if value is not None:
                raise ValueError(f"{key} needs validation data: add [[data.valid]]")
        return self


def load_recipe(path: Path | str, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe from a TOML file and apply `section.key=value` overrides.

    Relative paths in the file are relative to the file; those in an override are relative to the
    working directory. `~` is the home directory.
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
    """Make the paths in the raw values absolute, in place."""

    def model(name: Any) -> Any:
        if isinstance(name, str) and (base / Path(name).expanduser()).is_dir():
            return os.path.normpath(base / Path(name).expanduser())
        return name  # not a folder, so the name of a model

    if "init_from" in values:
        values["init_from"] = model(values["init_from"])
    tokenizer = values.get("tokenizer")
    if isinstance(tokenizer, dict) and "from_model" in tokenizer:
        tokenizer["from_model"] = model(tokenizer["from_model"])
    distillation = values.get("distillation")
    if isinstance(distillation, dict) and isinstance(distillation.get("teachers"), list):
        distillation["teachers"] = [model(name) for name in distillation["teachers"]]
    data = values.get("data")
    for split in ("train", "valid", "test"):
        corpora = data.get(split) if isinstance(data, dict) else None
        for corpus in corpora if isinstance(corpora, list) else ():
            for key in ("path", "source", "target"):
                if isinstance(corpus, dict) and isinstance(corpus.get(key), str):
                    # an absolute path stays as it is
                    corpus[key] = os.path.normpath(base / Path(corpus[key]).expanduser())


def _override(values: dict[str, Any], override: str) -> None:
    """Apply one `section.key=value` to the raw values; a value that is not TOML is a string."""
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
    table: Any = values
    for depth, key in enumerate(keys):
        parent = ".".join(keys[:depth])
        if isinstance(table, list) and not (key.isdigit() and int(key) < len(table)):
            raise ConfigError(
                f"cannot use --set {override!r}: {parent} is a list of {len(table)}, so name one "
                "of them by its number from 0"
            )
        if not isinstance(table, list | dict):
            raise ConfigError(f"cannot use --set {override!r}: {parent} is a single value")
        index: Any = int(key) if isinstance(table, list) else key
        if depth == len(keys) - 1:
            table[index] = value
        else:
            table = table[index] if isinstance(table, list) else table.setdefault(key, {})


# Settings that may change when a run is resumed: none of them affects the steps already taken.
_MAY_CHANGE = (
    "title",
    "data.*.*.path",
    "data.*.*.source",
    "data.*.*.target",
    "batches.prefetch",
    "training.steps",
    "training.epochs",
    "training.minutes",
    "training.gradient_accumulation_steps",
    "training.average_checkpoints",
    "training.init_interpolation",
    "training.result",
    "training.device",
    "training.precision",
    "training.compile",
    "training.threads",
    "training.parallel",
    "training.timeout",
    "validation.*",
    "early_stopping.*",
    "checkpoints.*",
)


class Difference(NamedTuple):
    """A setting whose value differs between two recipes."""

    key: str
    old: Any
    new: Any
    may_change: bool
    """Whether a run may be resumed with the new value."""


def recipe_differences(old: Recipe, new: Recipe) -> list[Difference]:
    """Return every setting that differs, by its dotted name."""
    before, after = (_flat(recipe.model_dump(mode="json")) for recipe in (old, new))
    found = []
    for key in [*before, *(key for key in after if key not in before)]:
        if before.get(key) != after.get(key):
            may_change = any(fnmatchcase(key, pattern) for pattern in _MAY_CHANGE)
            found.append(Difference(key, before.get(key), after.get(key), may_change))
    return found


def _flat(values: Any, name: str = "") -> dict[str, Any]:
    """Return nested tables, and lists of tables, as one table with dotted names."""
    if isinstance(values, list) and any(isinstance(value, dict) for value in values):
        values = {str(index): value for index, value in enumerate(values)}
    if not isinstance(values, dict):
        return {name: values}
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{name}.{key}" if name else key)
    return flat
