"""The base class of all settings: frozen data that refuses unknown keys."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from itertools import pairwise
from textwrap import dedent
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from pellucid.errors import ConfigError, nearest

FORMER_NAMES: dict[str, dict[str, str]] = {
    "": {"start_from": "init_from", "stopping": "early_stopping"},
    "tokenizer": {
        "like": "from_model",
        "kind": "model_type",
        "sample": "input_sentence_size",
    },
    "batches": {
        "tokens": "max_tokens",
        "window": "bucket_size",
        "subword_sampling": "subword_regularization",
        "sampled_side": "subword_side",
        "careless": "source_noise",
    },
    "model": {
        "width": "d_model",
        "feed_forward_width": "d_ff",
        "heads": "num_heads",
        "key_value_heads": "num_kv_heads",
        "norm_kind": "norm_type",
        "positions": "position_encoding",
        "tie": "tie_embeddings",
    },
    "training": {
        "rate": "learning_rate",
        "muon_rate": "muon_learning_rate",
        "final_rate": "min_lr_ratio",
        "warmup": "warmup_steps",
        "decay": "decay_fraction",
        "clip": "max_grad_norm",
        "accumulate": "gradient_accumulation_steps",
        "average": "average_checkpoints",
        "ema": "ema_decay",
        "keep_start": "init_interpolation",
        "embeddings": "embedding_init",
        "teachers": "distillation.teachers",
        "teaching": "distillation.weight",
    },
    "validation": {"metric": "early_stopping.metric", "beam": "beam_size"},
    "early_stopping": {"least_gain": "min_delta"},
    "decoding": {
        "beam": "beam_size",
        "alpha": "length_penalty",
        "no_repeat_ngram": "no_repeat_ngram_size",
        "forbidden": "suppress_tokens",
        "watch": "record_candidates",
    },
}
"""Settings by the names they used to have, for each section: for the error message alone."""

FORMER_VALUES: dict[tuple[str, str], dict[str, str]] = {
    ("training", "embedding_init"): {"pairs": "'cooccurrence'"},
    ("training", "precision"): {"fast": "'bf16'"},
    ("training", "parallel"): {"copies": "'ddp'", "shards": "'fsdp'"},
    ("decoding", "length_penalty"): {
        value: f"length_normalization = '{value}'" for value in ("none", "gnmt", "average")
    },
}
"""The same for values, by section and setting."""


class Settings(BaseModel):
    """A group of settings; an unknown key or a wrong value is an error of one line."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        defer_build=True,  # a command builds the validators of the settings it uses, not of all
    )

    # the section under which `FORMER_NAMES` has these settings
    section: ClassVar[str] = ""

    def __init__(self, **values: Any) -> None:
        _refuse_former_names(self.section, values)
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(_one_line(type(self), error)) from None

    @classmethod
    def help_texts(cls) -> dict[str, str]:
        """Return the docstring under each setting, read from the source when somebody asks."""
        found: dict[str, str] = {}
        for kind in reversed(cls.__mro__):
            if not issubclass(kind, Settings):
                continue
            (tree,) = ast.parse(dedent(inspect.getsource(kind))).body
            assert isinstance(tree, ast.ClassDef)
            for setting, below in pairwise(tree.body):
                if isinstance(setting, ast.AnnAssign) and isinstance(below, ast.Expr):
                    name, text = ast.unparse(setting.target), ast.literal_eval(below.value)
                    found[name] = inspect.cleandoc(text)
        return found

    def changed(self, **changes: Any) -> Self:
        """Return a copy with some settings changed, validated again."""
        return type(self)(**{**self.model_dump(exclude_unset=True), **changes})


def _refuse_former_names(section: str, values: Mapping[str, Any], path: str = "") -> None:
    """Raise an error that gives the new name of a renamed setting or value.

    Whole recipes are checked section by section, so that the message has the dotted name.
    """
    for name, value in values.items():
        if name in FORMER_NAMES.get(section, {}):
            new = FORMER_NAMES[section][name]
            raise ConfigError(f"unknown setting {path + name!r}: it is now called {new}")
        former = FORMER_VALUES.get((section, name), {})
        if isinstance(value, str) and value in former:
            raise ConfigError(
                f"setting {path + name!r} is {value!r}: it is now called {former[value]}"
            )
        if not section and isinstance(value, dict):
            _refuse_former_names(name, value, f"{name}.")


def _one_line(cls: type[BaseModel], error: ValidationError) -> str:
    """Return the first problem of a pydantic error: what was given, and what to do."""
    problems = error.errors()
    # a misspelled setting often also shows as a missing one; the misspelling is the cause
    first = next((e for e in problems if e["type"] == "extra_forbidden"), problems[0])
    name = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in first["loc"]).lstrip(".")
    if first["type"] == "extra_forbidden":
        return f"unknown setting {name!r}: {nearest(name, list(cls.model_fields))}"
    if first["type"] == "missing":
        return f"setting {name!r} is missing: give it a value"
    if first["type"] == "value_error":  # raised by a validator, or by settings inside these
        message = str(first["ctx"]["error"])
        return f"in {name}: {message}" if name else message
    given = first["input"]
    if first["type"] == "literal_error":
        return f"setting {name!r} is {given!r}: choose {first['ctx']['expected']}"
    message = first["msg"][0].lower() + first["msg"][1:]
    return f"setting {name!r} is {given!r}: {message}"
