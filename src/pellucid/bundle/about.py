"""MODEL.md, the model card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pellucid.bundle.layout import BundleConfig, one_line

if TYPE_CHECKING:
    from torch import Tensor


def about_text(
    settings: BundleConfig, weights: Mapping[str, Tensor], about: Mapping[str, Any]
) -> str:
    """Return the text of MODEL.md: a title, a summary, and a section for each entry of `about`."""
    rest = dict(about)
    title = one_line(rest.pop("title", "") or f"Translation: {', '.join(settings.directions)}")
    count = sum(tensor.numel() for tensor in weights.values())
    lines = [f"# {title}", ""]
    lines += [
        f"A Transformer of {count:,} parameters made with Pellucid {settings.pellucid}. "
        f"It translates {', '.join(settings.directions)}; if nobody says which way, "
        f"{settings.default_direction}.",
        "",
        "```",
        "pellucid translate --model THIS_FOLDER TEXT",
        "```",
    ]
    for name, value in rest.items():
        lines += ["", f"## {one_line(name).replace('_', ' ').capitalize()}", "", *_section(value)]
    return "\n".join(lines) + "\n"


def _section(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        rows = [f"| {_cell(key)} | {_cell(item)} |" for key, item in value.items()]
        return ["| | |", "|---|---|", *rows]
    if isinstance(value, list | tuple):
        return [f"- {one_line(item)}" for item in value]
    return [str(value)]


def _cell(value: Any) -> str:
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return one_line(text).replace("|", "\\|")
