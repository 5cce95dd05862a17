"""An evaluation on a terminal, or as plain lines where there is none."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pellucid.evaluation.findings import MEANINGS
from pellucid.evaluation.length_groups import FEW
from pellucid.evaluation.results import Evaluation, Judgement
from pellucid.training.callbacks.formatting import harmless

EXAMPLES = 3
PLAIN_WIDTH = 240
"""Of lines that nobody sees on a terminal: wide enough that few are broken."""


def show(found: Evaluation, console: Console | None = None) -> None:
    """Print what was found."""
    console = console or Console()
    made = io.StringIO()
    # Rendered first: rich would end the program if the reader of its output had gone.
    paper = console if console.is_terminal else Console(file=made, width=PLAIN_WIDTH)
    for part in _parts(found, boxed=console.is_terminal):
        paper.print(part, markup=False, highlight=False, soft_wrap=isinstance(part, str | Text))
    for line in made.getvalue().split("\n")[:-1]:
        print(line.rstrip(), file=console.file)


def _parts(found: Evaluation, *, boxed: bool) -> Iterator[Any]:
    yield Text(headline(found), style="bold")
    yield ""
    yield _scores(found, boxed)
    for score in found.scores.values():
        yield Text(f"{score.name}: {score.signature}", style="dim")
    for line in comparison_lines(found):
        yield Text(line)
    if found.overlap is not None:
        yield ""
        yield from (Text(line) for line in overlap_lines(found))
    yield ""
    yield _by_length(found, boxed)
    yield ""
    table = _findings(found, boxed)
    yield table if table.row_count else "no translation is empty, copied, cut, looping or far off"
    for line in speed_lines(found):
        yield Text(line)
    yield from _examples(found)


def headline(found: Evaluation) -> str:
    """What was judged, on what."""
    way = (
        f" from {found.source_language} to {found.target_language}" if found.source_language else ""
    )
    more = f" and {len(found.systems) - 1} more" if len(found.systems) > 1 else ""
    return f"{found.systems[0].name}{more} on {len(found.material):,} sentences{way}"


def comparison_lines(found: Evaluation) -> Iterator[str]:
    """How the first system compares with each other one, in words."""
    before = None
    for one in found.comparisons:
        if one.against != before:
            yield ""
            yield f"{one.system} compared with {one.against}:"
            before = one.against
        digits = one.measure.digits
        low, high = (f"{v:+.{digits}f}" for v in (one.difference.low, one.difference.high))
        yield f"  {one.sentence}" + (f" [difference {low} to {high}]" if one.gain else "")


def overlap_lines(found: Evaluation) -> Iterator[str]:
    """What of the test stands in the training data, and the scores without it."""
    overlap = found.overlap
    assert overlap is not None
    yield (
        f"in the training data stand {len(overlap.sources):,} sources and "
        f"{len(overlap.references):,} references letter for letter; {len(overlap.similar):,} "
        "sentences but for case, punctuation and spaces"
    )
    for one in found.systems if overlap.similar else ():
        scores = ", ".join(
            f"{one.scores[key].name} {value:.{one.scores[key].digits}f}"
            for key, value in (one.unseen or {}).items()
        )
        yield f"{one.name} without these: {scores or 'nothing is left'}"


def speed_lines(found: Evaluation) -> Iterator[str]:
    """How fast each model was on this machine."""
    for one in found.systems:
        speed = one.system.speed
        if speed is not None:
            yield (
                f"{one.name} translated {speed.sentences_per_second:,.1f} sentences "
                f"({speed.tokens_per_second:,.0f} tokens) a second with {speed.engine} on this "
                f"machine: {speed.machine}, {speed.cores} cores"
                + (" (busy with other work: do not rely on it)" if speed.disturbed else "")
            )


def _table(boxed: bool, names: Sequence[str], left: Sequence[int] = (0,)) -> Table:
    table = Table(box=SIMPLE if boxed else None, pad_edge=False)
    for place, name in enumerate(names):
        table.add_column(name, justify="left" if place in left else "right", overflow="fold")
    return table


def _scores(found: Evaluation, boxed: bool) -> Table:
    table = _table(boxed, ["system", *(score.name for score in found.scores.values())])
    for one in found.systems:
        table.add_row(Text(harmless(one.name)), *(str(score) for score in one.scores.values()))
    return table


def _by_length(found: Evaluation, boxed: bool) -> Table:
    names = [score.name for score in found.scores.values()]
    one = found.systems[0]
    others = [f"{names[0]} of {harmless(other.name)}" for other in found.systems[1:]]
    table = _table(boxed, ["words", "sentences", *names, "length", *others])
    for place, row in enumerate(one.by_length):
        few = "dim" if len(row.group.places) < FEW else ""
        table.add_row(
            row.group.label,
            f"{len(row.group.places):,}",
            *(f"{row.scores[key]:.{score.digits}f}" for key, score in found.scores.items()),
            f"{row.length_ratio:.2f}",
            *(f"{other.by_length[place].scores['bleu']:.1f}" for other in found.systems[1:]),
            style=few,
        )
    return table


def _findings(found: Evaluation, boxed: bool) -> Table:
    table = _table(
        boxed,
        ["worth a look", *(harmless(one.name) for one in found.systems), "what"],
        left=(0, len(found.systems) + 1),
    )
    for kind, meaning in MEANINGS.items():
        counts = [one.findings.get(kind) for one in found.systems]
        if any(counts):
            shown = ["?" if count is None else f"{len(count):,}" for count in counts]
            table.add_row(kind, *shown, meaning)
    return table


def worst(judged: Judgement) -> list[int]:
    """Places of sentences, from the lowest chrF to the highest."""
    return sorted(range(len(judged.sentence_chrf)), key=lambda i: (judged.sentence_chrf[i], i))


def _examples(found: Evaluation) -> Iterator[Any]:
    one = found.systems[0]
    yield ""
    yield "the lowest sentences:"
    for place in worst(one)[:EXAMPLES]:
        chrf = one.sentence_chrf[place]
        for name, text in (
            (f"{place + 1}, chrF {chrf:.0f}", found.material.sources[place]),
            ("reference", found.material.references[0][place]),
            ("translation", one.system.texts[place]),
        ):
            yield Text(f"  {name:>14}  {harmless(text)}")
