"""`pellucid look`: what happens inside the model for one sentence, as a picture, page or data."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal, cast, get_args

import numpy as np

from pellucid import __version__
from pellucid.console.options import Argument, From, Model, Option, To, say
from pellucid.drawing.report_page import write_page
from pellucid.errors import InputError, MissingExtraError
from pellucid.inspection.figures import attention_svg, beam_svg, positions_svg, standalone
from pellucid.inspection.trace import Kind, Trace

What = Literal["attention", "positions", "beam", "curve"]
Which = int | Literal["mean"]

IN_JSON = ("*.weights", "log_probabilities")
"""Tensors that a JSON file contains; a .trace file has all."""

NOT_SHOWN = ("*.mask", "*.ids", "*.state", "encoder.norm.*", "decoder.norm.*", "encoder.output")
"""Tensors that no panel of a page without a server shows."""

MAX_PAGE = 64_000_000
"""Most characters of the tensors in a page."""


def look(
    text: Annotated[
        str, Argument(metavar="TEXT", help="A sentence; for --what curve, a run's folder.")
    ],
    output: Annotated[
        Path,
        Option("-o", "--output", metavar="FILE", help="x.html, x.svg, x.json or x.trace."),
    ],
    what: Annotated[
        str, Option(metavar="attention|positions|beam|curve", help="Content of an .svg.")
    ] = "attention",
    kind: Annotated[
        str, Option(metavar="encoder|decoder|cross", help="Which attention to draw.")
    ] = "cross",
    layer: Annotated[str, Option(metavar="N|mean", help="Counted from 1; -1 is the last.")] = "-1",
    head: Annotated[str, Option(metavar="N|mean", help="Counted from 1.")] = "mean",
    source: From = None,
    target: To = None,
    model: Model = None,
    beam_size: Annotated[int, Option(min=1, max=64, help="Beam size; 1 is greedy.")] = 4,
) -> None:
    """Look inside: what happens in the model for one sentence.

    x.html is one file with the interactive panels, which needs no server and no network; x.svg a
    picture to print; x.json and x.trace are the numbers. Needs PyTorch.

    pellucid look "Je suis étudiant." -o inside.html

    pellucid look "Je suis étudiant." -o map.svg --kind encoder --layer 1 --head 3

    pellucid look runs/toy -o loss.svg --what curve
    """
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
        lines = _curve(text, output)
    else:
        if not text.strip():
            raise InputError("there is nothing to look at: give a sentence")
        if find_spec("torch") is None:
            raise MissingExtraError("looking inside", "train")
        from pellucid.translator.loading import load

        trace = load(model, "torch").look(text, source, target, beam_size)
        lines = [f"{trace.source} → {trace.text}", *writers[output.suffix](trace)]
    for line in lines:
        say(line)


def _picture(trace: Trace, what: str, kind: str, layer: str, head: str) -> str:
    if what == "beam":
        return beam_svg(trace)
    if what == "positions":
        name = "source.positions"
        if name not in trace:
            raise InputError(
                "this model adds no position encodings (position_encoding = "
                f"{trace.model['position_encoding']!r}): use --what attention or beam"
            )
        return positions_svg(trace[name], "Positions of the source, as this model adds them")
    side = "encoder" if kind == "encoder" else "decoder"
    at = _which(layer, "layer", trace.model[f"{side}_layers"])
    return attention_svg(
        trace, cast(Kind, kind), at, _which(head, "head", trace.model["num_heads"])
    )


def _which(given: str, what: str, count: int) -> Which:
    """Return a layer or head as an index, from a number that counts from 1 or -1, or "mean"."""
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
    """Draw the loss of a training run."""
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
    from pellucid.web.page import offline_page

    about = {
        "version": __version__,
        "directions": [trace.direction],
        "default": trace.direction,
        "model": dict(trace.model),
        "look": True,
        "obstacle": None,
    }
    tensors, left_out = page_tensors(trace)
    document = {"about": about, "trace": {"id": "", **trace.as_dict()}, "tensors": tensors}
    lines = _write(output, offline_page(json.dumps(document, allow_nan=False)))
    if left_out:
        lines.append(
            f"left out, as the page would be too large: {', '.join(left_out)}; a .trace has them"
        )
    return lines


def page_tensors(trace: Trace, largest: int = MAX_PAGE) -> tuple[dict[str, str], list[str]]:
    """Return the tensors of a page without a server (float32, base64), and what was left out.

    Equal tensors are stored once: "=name" refers to another. If there is not room for all, the
    largest kinds are left out first.
    """
    names = [n for n in trace if not any(fnmatchcase(n, pattern) for pattern in NOT_SHOWN)]
    left_out: list[str] = []
    while True:
        found = _encoded(trace, [name for name in names if _kind(name) not in left_out])
        sizes: dict[str, int] = {}
        for name, text in found.items():
            sizes[_kind(name)] = sizes.get(_kind(name), 0) + len(text)
        if sum(sizes.values()) <= largest:
            return found, left_out
        sizes.pop("weights", None)  # without attention weights there is nothing to look at
        left_out.append(max(sizes, key=lambda kind: sizes[kind]))


def _kind(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _encoded(trace: Trace, names: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    first: dict[bytes, str] = {}
    for name in names:
        data = np.ascontiguousarray(trace[name], dtype="<f4").tobytes()
        found[name] = f"={first[data]}" if data in first else base64.b64encode(data).decode()
        first.setdefault(data, name)
    return found
