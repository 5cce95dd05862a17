"""The tables of settings in training.md, generated from the settings themselves.

`python -m docs.settings_table` updates them; a test fails if they are out of date.
"""

import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from pellucid.config import (
    BatchConfig,
    CheckpointConfig,
    CleaningConfig,
    CorpusConfig,
    DataConfig,
    DistillationConfig,
    EarlyStoppingConfig,
    ModelSection,
    Recipe,
    Settings,
    TokenizerConfig,
    TrainingConfig,
    ValidationConfig,
)

PAGE = Path(__file__).parent / "training.md"
BEGIN, END = "<!-- settings: begin -->", "<!-- settings: end -->"

SECTIONS: list[tuple[str, type[Settings]]] = [
    ("At the top", Recipe),
    ("[data]", DataConfig),
    ("[[data.train]], [[data.valid]], [[data.test]]", CorpusConfig),
    ("[data.cleaning]", CleaningConfig),
    ("[tokenizer]", TokenizerConfig),
    ("[batches]", BatchConfig),
    ("[model]", ModelSection),
    ("[training]", TrainingConfig),
    ("[distillation]", DistillationConfig),
    ("[validation]", ValidationConfig),
    ("[early_stopping]", EarlyStoppingConfig),
    ("[checkpoints]", CheckpointConfig),
]


def kind(annotation: Any) -> str:
    """Return a type in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f'"{choice}"' for choice in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(kind(one) for one in arguments if one is not type(None))
    if origin is tuple:
        inner = [kind(one) for one in arguments if one is not Ellipsis]
        return f"list of {inner[0]}" if Ellipsis in arguments else f"{len(inner)} x {inner[0]}"
    if hasattr(annotation, "__metadata__"):
        return kind(arguments[0])
    names = {bool: "true or false", int: "whole number", float: "number", str: "text"}
    return names.get(annotation, "path" if annotation is Path else annotation.__name__)


def default(field: FieldInfo) -> str:
    """Return the default of a setting in words."""
    value = field.default
    if value is PydanticUndefined:
        return "required"
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return str(list(value))
    return str(value)


def table(settings: type[Settings]) -> list[str]:
    """Return a row for each setting; settings inside settings have tables of their own."""
    rows = ["| key | meaning | default |", "|---|---|---|"]
    help_texts = settings.help_texts()
    fields = sorted(settings.model_fields.items(), key=lambda item: item[0] != "preset")
    for name, field in fields:
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Settings):
            continue
        if get_origin(inner) is tuple and get_args(inner)[0] is CorpusConfig:
            continue
        text = " ".join(help_texts.get(name, "").split()).replace("|", "\\|")
        rows.append(f"| `{name}` ({kind(inner)}) | {text} | {default(field)} |")
    return rows


def presets() -> str:
    """Return the table of presets."""
    keys = ["d_model", "d_ff", "num_heads", "encoder_layers", "decoder_layers", "dropout"]
    rows = [f"| preset | {' | '.join(keys)} |", "|---" * (len(keys) + 1) + "|"]
    for name in ModelSection.presets:
        section = ModelSection(preset=name)  # type: ignore[arg-type]
        rows.append(f"| {name} | {' | '.join(str(getattr(section, key)) for key in keys)} |")
    return "\n".join(rows)


def tables() -> str:
    """Return the tables of all sections, with headings."""
    parts = []
    for heading, settings in SECTIONS:
        about = " ".join((settings.__doc__ or "").split()).replace("|", "\\|")
        shown = heading if heading == "At the top" else f"`{heading}`"
        parts.append("\n".join([f"### {shown}", "", about, "", *table(settings)]))
        if settings is ModelSection:
            parts.append(presets())
    return "\n\n".join(parts)


def updated(page: str) -> str:
    """Return the page with its tables up to date."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
