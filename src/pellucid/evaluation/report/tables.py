"""An evaluation as tables on a terminal, or as plain lines where there is none."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pellucid.console.formatting import sanitize_line
from pellucid.evaluation.findings import MEANINGS
from pellucid.evaluation.length_groups import FEW
from pellucid.evaluation.results import Evaluation, SystemEvaluation

EXAMPLES = 3
PLAIN_WIDTH = 240
"""Line width where there is no terminal: wide enough that few lines are wrapped."""


def show(evaluation: Evaluation, console: Console | None = None) -> None:
    """Print an evaluation."""
    console = console or Console()
    rendered = io.StringIO()
    # Rendered first: rich would end the program if the reader of its output had gone.
    target = console if console.is_terminal else Console(file=rendered, width=PLAIN_WIDTH)
    for part in _parts(evaluation, boxed=console.is_terminal):
        target.print(part, markup=False, highlight=False, soft_wrap=isinstance(part, str | Text))
    for line in rendered.getvalue().split("\n")[:-1]:
        print(line.rstrip(), file=console.file)


def _parts(evaluation: Evaluation, *, boxed: bool) -> Iterator[Any]:
    yield Text(headline(evaluation), style="bold")
    yield ""
    yield _scores(evaluation, boxed)
    for score in evaluation.scores.values():
        yield Text(f"{score.name}: {score.signature}", style="dim")
    for line in comparison_lines(evaluation):
        yield Text(line)
    if evaluation.overlap is not None:
        yield ""
        yield from (Text(line) for line in overlap_lines(evaluation))
    yield ""
    yield _by_length(evaluation, boxed)
    yield ""
    table = _findings(evaluation, boxed)
    if table.row_count:
        yield table
    else:
        yield "no translation is empty, copied, cut, looping or far off in length"
    for line in speed_lines(evaluation):
        yield Text(line)
    yield from _examples(evaluation)


def headline(evaluation: Evaluation) -> str:
    """Return what was evaluated, on what."""
    source, target = evaluation.source_language, evaluation.target_language
    direction = f" from {source} to {target}" if source else ""
    more = f" and {len(evaluation.systems) - 1} more" if len(evaluation.systems) > 1 else ""
    return (
        f"{evaluation.systems[0].name}{more} on {len(evaluation.test_set):,} sentences{direction}"
    )


def comparison_lines(evaluation: Evaluation) -> Iterator[str]:
    """Yield how the first system compares with each other one, in words."""
    before = None
    for one in evaluation.comparisons:
        if one.against != before:
            yield ""
            yield f"{one.system} compared with {one.against}:"
            before = one.against
        digits = one.metric.digits
        low, high = (f"{v:+.{digits}f}" for v in (one.difference.low, one.difference.high))
        yield f"  {one.sentence}" + (f" [difference {low} to {high}]" if one.gain else "")


def overlap_lines(evaluation: Evaluation) -> Iterator[str]:
    """Yield what of the test is in the training data, and the scores without it."""
    overlap = evaluation.overlap
    assert overlap is not None
    yield (
        f"in the training data: {len(overlap.sources):,} sources and {len(overlap.references):,} "
        f"references letter for letter, {len(overlap.similar):,} sentences ignoring case, "
        "punctuation and spaces"
    )
    for one in evaluation.systems if overlap.similar else ():
        scores = ", ".join(
            f"{one.scores[key].name} {value:.{one.scores[key].digits}f}"
            for key, value in (one.unseen or {}).items()
        )
        yield f"{one.name} without these: {scores or 'nothing is left'}"


def speed_lines(evaluation: Evaluation) -> Iterator[str]:
    """Yield how fast each model was on this machine."""
    for one in evaluation.systems:
        speed = one.output.speed
        if speed is not None:
            yield (
                f"{one.name} translated {speed.sentences_per_second:,.1f} sentences "
                f"({speed.tokens_per_second:,.0f} tokens) a second with {speed.engine} on this "
                f"machine: {speed.machine}, {speed.cores} cores"
                + (" (busy with other work: do not rely on it)" if speed.machine_busy else "")
            )


def _table(boxed: bool, names: Sequence[str], left: Sequence[int] = (0,)) -> Table:
    table = Table(box=SIMPLE if boxed else None, pad_edge=False)
    for column, name in enumerate(names):
        table.add_column(name, justify="left" if column in left else "right", overflow="fold")
    return table


def _scores(evaluation: Evaluation, boxed: bool) -> Table:
    table = _table(boxed, ["system", *(score.name for score in evaluation.scores.values())])
    for one in evaluation.systems:
        table.add_row(Text(sanitize_line(one.name)), *(str(score) for score in one.scores.values()))
    return table


def _by_length(evaluation: Evaluation, boxed: bool) -> Table:
    names = [score.name for score in evaluation.scores.values()]
    one = evaluation.systems[0]
    others = [f"{names[0]} of {sanitize_line(other.name)}" for other in evaluation.systems[1:]]
    table = _table(boxed, ["words", "sentences", *names, "length", *others])
    for number, row in enumerate(one.by_length):
        few = "dim" if len(row.group.indices) < FEW else ""
        table.add_row(
            row.group.label,
            f"{len(row.group.indices):,}",
            *(f"{row.scores[key]:.{score.digits}f}" for key, score in evaluation.scores.items()),
            f"{row.length_ratio:.2f}",
            *(f"{other.by_length[number].scores['bleu']:.1f}" for other in evaluation.systems[1:]),
            style=few,
        )
    return table


def _findings(evaluation: Evaluation, boxed: bool) -> Table:
    table = _table(
        boxed,
        ["worth a look", *(sanitize_line(one.name) for one in evaluation.systems), "what"],
        left=(0, len(evaluation.systems) + 1),
    )
    for kind, meaning in MEANINGS.items():
        counts = [one.findings.get(kind) for one in evaluation.systems]
        if any(counts):
            shown = ["?" if count is None else f"{len(count):,}" for count in counts]
            table.add_row(kind, *shown, meaning)
    return table


def worst_first(system: SystemEvaluation) -> list[int]:
    """Return the indices of the sentences, from the lowest chrF to the highest."""
    return sorted(range(len(system.sentence_chrf)), key=lambda i: (system.sentence_chrf[i], i))


def _examples(evaluation: Evaluation) -> Iterator[Any]:
    one = evaluation.systems[0]
    yield ""
    yield "the lowest-scoring sentences:"
    for index in worst_first(one)[:EXAMPLES]:
        chrf = one.sentence_chrf[index]
        for name, text in (
            (f"{index + 1}, chrF {chrf:.0f}", evaluation.test_set.sources[index]),
            ("reference", evaluation.test_set.references[0][index]),
            ("translation", one.output.texts[index]),
        ):
            yield Text(f"  {name:>14}  {sanitize_line(text)}")
