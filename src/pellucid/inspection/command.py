"""`pellucid look`: what happens inside for one sentence, as a picture, a page or data."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, cast, get_args

import numpy as np

from pellucid import __version__
from pellucid.drawing.page import write_page
from pellucid.errors import InputError, MissingExtraError
from pellucid.inspection.figures import attention_svg, beam_svg, positions_svg, standalone
from pellucid.inspection.trace import Kind, Trace
from pellucid.translator.loading import load
from pellucid.web.page import offline

What = Literal["attention", "positions", "beam", "curve"]
Which = int | Literal["mean"]

IN_JSON = ("*.weights", "log_probabilities")
"""The tensors that a JSON file carries; a .trace file has all."""

UNSEEN = ("*.mask", "*.ids", "*.state", "encoder.norm.*", "decoder.norm.*", "encoder.output")
"""Tensors that no panel of a page without a server shows."""

LARGEST_PAGE = 64_000_000
"""Characters of the numbers that a page carries."""


def run_look(
    text: str,
    output: Path,
    *,
    what: str,
    kind: str,
    layer: str,
    head: str,
    source: str | None,
    target: str | None,
    model: str | None,
    beam_size: int,
) -> list[str]:
    """Write the file that `output` names; what a person should know about it, in lines."""
    writers: dict[str, Callable[[Trace], list[str]]] = {
        ".svg": lambda trace: _write(output, _picture(trace, what, kind, layer, head)),
        ".html": lambda trace: _write_page(output, trace),
        ".json": lambda trace: _write(output, json.dumps(trace.as_dict(IN_JSON))),
        ".trace": lambda trace: _save(output, trace),
    }
    if output.suffix not in writers:
        raise InputError(
            f"cannot write {output}: its name has to end in {', '.join(writers)}, which says what "
            "is wanted"
        )
    if what not in get_args(What):
        raise InputError(f"no picture of {what!r}: choose {', '.join(get_args(What))}")
    if what == "curve":
        return _curve(text, output)
    trace = look(text, source=source, target=target, model=model, beam_size=beam_size)
    return [f"{trace.source} → {trace.text}", *writers[output.suffix](trace)]


def look(
    text: str, *, source: str | None, target: str | None, model: str | None, beam_size: int
) -> Trace:
    """The trace of a sentence by a model, as the page would show it."""
    if not text.strip():
        raise InputError("there is nothing to look at: give a sentence")
    if find_spec("torch") is None:
        raise MissingExtraError("looking inside", "train")
    return load(model, "torch").look(text, source, target, beam_size)


def _picture(trace: Trace, what: str, kind: str, layer: str, head: str) -> str:
    if what == "beam":
        return beam_svg(trace)
    if what == "positions":
        name = "source.positions"
        if name not in trace:
            raise InputError(
                f"this model has no matrix of positions (its positions are "
                f"{trace.model['positions']!r}): --what attention or beam is there"
            )
        return positions_svg(trace[name], "Positions of the source, as this model adds them")
    side = "encoder" if kind == "encoder" else "decoder"
    at = _which(layer, "layer", trace.model[f"{side}_layers"])
    return attention_svg(trace, cast(Kind, kind), at, _which(head, "head", trace.model["heads"]))


def _which(given: str, what: str, count: int) -> Which:
    """A layer or head as a person counts it, from 1 (negative from the top), or "mean"."""
    if given == "mean":
        return "mean"
    try:
        number = int(given)
    except ValueError:
        number = 0
    if not 1 <= abs(number) <= count:
        raise InputError(f"no {what} {given!r}: choose 1 to {count}, or mean")
    return number - 1 if number > 0 else number


def _curve(folder: str, output: Path) -> list[str]:
    """The loss of a training run."""
    from pellucid.training.run_report import loss_chart

    if output.suffix != ".svg":
        raise InputError(f"--what curve is a picture: name a file that ends in .svg, not {output}")
    return _write(output, standalone(loss_chart(folder)))


def _write(output: Path, text: str) -> list[str]:
    write_page(output, text)
    return [f"{output}: {_size(output)}"]


def _save(output: Path, trace: Trace) -> list[str]:
    trace.save(output)
    return [f"{output}: {_size(output)}, all {len(trace)} tensors"]


def _size(file: Path) -> str:
    size = file.stat().st_size
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"


def _write_page(output: Path, trace: Trace) -> list[str]:
    about = {
        "version": __version__,
        "directions": [trace.direction],
        "default": trace.direction,
        "model": dict(trace.model),
        "look": True,
        "obstacle": None,
    }
    tensors, left_out = carried(trace)
    document = {"about": about, "trace": {"id": "", **trace.as_dict()}, "tensors": tensors}
    told = _write(output, offline(json.dumps(document, allow_nan=False)))
    if left_out:
        told.append(
            f"left out, as the page would be too large: {', '.join(left_out)}; a .trace has them"
        )
    return told


def carried(trace: Trace, largest: int = LARGEST_PAGE) -> tuple[dict[str, str], list[str]]:
    """The tensors of a page without a server (float32, base64), and what had to be left out.

    Equal tensors are there once: "=name" stands for another. Where there is not room for all, the
    largest kinds go first.
    """
    names = [n for n in trace if not any(fnmatchcase(n, pattern) for pattern in UNSEEN)]
    left_out: list[str] = []
    while True:
        found = _encoded(trace, [name for name in names if _last(name) not in left_out])
        sizes: dict[str, int] = {}
        for name, text in found.items():
            sizes[_last(name)] = sizes.get(_last(name), 0) + len(text)
        if sum(sizes.values()) <= largest:
            return found, left_out
        sizes.pop("weights", None)  # without attention there is nothing to look at
        left_out.append(max(sizes, key=lambda kind: sizes[kind]))


def _last(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _encoded(trace: Trace, names: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    first: dict[bytes, str] = {}
    for name in names:
        data = np.ascontiguousarray(trace[name], dtype="<f4").tobytes()
        found[name] = f"={first[data]}" if data in first else base64.b64encode(data).decode()
        first.setdefault(data, name)
    return found
