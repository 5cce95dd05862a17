"""The report of an evaluation: one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from pellucid.drawing.bars import Series, bar_chart, colour_of, histogram, scatter_plot
from pellucid.drawing.report_page import cards, page, section, table
from pellucid.drawing.svg import escaped
from pellucid.evaluation.findings import MEANINGS
from pellucid.evaluation.length_groups import FEW
from pellucid.evaluation.report.differences import clipped, closest, marked
from pellucid.evaluation.report.tables import headline, overlap_lines, speed_lines, worst_first
from pellucid.evaluation.results import Comparison, Evaluation, SystemEvaluation
from pellucid.evaluation.test_set import nearest_in_length

EXAMPLES = 20
"""Number of sentences of each kind to show."""

SIDE_BY_SIDE = 3
"""Number of systems to show side by side."""


def report(evaluation: Evaluation, examples: int = EXAMPLES) -> str:
    """Return the page, with up to `examples` sentences of each kind."""
    style = files("pellucid.evaluation").joinpath("report.css").read_text(encoding="utf-8")
    sections = [
        _header(evaluation),
        section("Scores", _scores(evaluation)),
        _compared(evaluation),
        section("By length of the source", _by_length(evaluation)),
        section("Sentence by sentence", "".join(_spread(evaluation)), "charts"),
        section("Worth a look", _findings(evaluation, examples)),
        *_sentences(evaluation, examples),
        section("How it was measured", _settings(evaluation)),
    ]
    return page(f"Evaluation of {evaluation.systems[0].name}", sections, style)


def _header(evaluation: Evaluation) -> str:
    facts = []
    for score in evaluation.scores.values():
        margin = f"± {score.interval.margin:.{score.digits}f}" if score.interval else ""
        note = margin if score.higher_is_better else f"{margin} (lower is better)"
        facts.append((f"{score.value:.{score.digits}f}", score.name, note))
    facts.append((f"{len(evaluation.test_set):,}", "sentences", ""))
    speed = evaluation.systems[0].output.speed
    if speed is not None:
        where = "on this machine, busy" if speed.machine_busy else "on this machine"
        facts.append((f"{speed.sentences_per_second:,.1f}", "sentences a second", where))
    items = "".join(f"<li>{escaped(line)}</li>" for line in evaluation.warnings)
    warnings = f'<ul class="warnings">{items}</ul>' if items else ""
    return (
        f"<header><h1>{escaped(evaluation.systems[0].name)}</h1>"
        f'<p class="note">{escaped(headline(evaluation))}. {escaped(evaluation.date)}</p>'
        f"{cards(facts)}{warnings}</header>"
    )


def _scores(evaluation: Evaluation) -> str:
    head = ["system", *(score.name for score in evaluation.scores.values())]
    rows = [
        [one.name, *(str(score) for score in one.scores.values())] for one in evaluation.systems
    ]
    signatures = "".join(
        f"<li><code>{escaped(score.name)}: {escaped(score.signature)}</code></li>"
        for score in evaluation.scores.values()
    )
    note = ""
    if any(score.interval for score in evaluation.scores.values()):
        note = (
            '<p class="note">After ±: half of the 95% confidence interval, in which the score '
            "would be on other sentences of this kind.</p>"
        )
    made = table(head, rows, range(1, len(head)))
    return f'<div class="scores">{made}</div>{note}<ul class="signatures">{signatures}</ul>'


def _compared(evaluation: Evaluation) -> str:
    parts = []
    for other in evaluation.systems[1:]:
        ours = [one for one in evaluation.comparisons if one.against == other.name]
        if not ours:
            continue
        verdicts = "".join(_verdict(one) for one in ours)
        figures = "".join(
            "<figure>"
            + histogram(
                f"{one.metric.name}: difference in each resample",
                [Series("", [float(v) for v in one.resampled], colour_of(number))],
                f"{one.metric.name} of {_short(one.system)} minus that of {_short(one.against)}",
                bins=30,
                line_at=0.0,
            )
            + "</figure>"
            for number, one in enumerate(ours)
            if one.difference.value
        )
        parts.append(
            f"<h3>{escaped(evaluation.systems[0].name)} compared with {escaped(other.name)}</h3>"
            f'<ul class="verdicts">{verdicts}</ul><div class="charts trio">{figures}</div>'
        )
    if not parts:
        return ""
    note = (
        '<p class="note">The test set is resampled many times (paired bootstrap). The '
        "probability is the p-value: how often a difference as large would occur if the systems "
        "were equally good.</p>"
    )
    return section("Compared", note + "".join(parts))


def _verdict(one: Comparison) -> str:
    digits = one.metric.digits
    if not one.difference.value:
        return f"<li>{escaped(one.sentence)}</li>"
    kind = one.verdict if one.verdict in ("better", "worse") else "even"
    return (
        f'<li class="{kind}">{escaped(one.sentence)} (difference {one.difference.low:+.{digits}f} '
        f"to {one.difference.high:+.{digits}f}; ahead in {one.difference.wins:.1%} of the "
        "resamples)</li>"
    )


def _by_length(evaluation: Evaluation) -> str:
    labels = [row.group.label for row in evaluation.systems[0].by_length]
    figures = ""
    for key in ("bleu", "chrf"):
        series = [
            Series(_short(one.name), [row.scores[key] for row in one.by_length], colour_of(number))
            for number, one in enumerate(evaluation.systems)
        ]
        drawn = bar_chart(evaluation.scores[key].name, labels, series, "words of the source")
        figures += f"<figure>{drawn}</figure>"
    names = [score.name for score in evaluation.scores.values()]
    head = ["system", "words", "sentences", *names, "length to reference"]
    rows = [
        [
            one.name,
            row.group.label,
            f"{len(row.group.indices):,}" + (" (few)" if len(row.group.indices) < FEW else ""),
            *(f"{row.scores[key]:.{score.digits}f}" for key, score in evaluation.scores.items()),
            f"{row.length_ratio:.2f}",
        ]
        for one in evaluation.systems
        for row in one.by_length
    ]
    numbers = table(head, rows, range(1, len(head)))
    return (
        f'<div class="charts">{figures}</div><details><summary>the numbers</summary>{numbers}'
        "</details>"
    )


def _spread(evaluation: Evaluation) -> list[str]:
    """Charts of single sentences: distribution of chrF, and lengths."""
    first = evaluation.systems[0]
    series = [
        Series(_short(one.name), one.sentence_chrf, colour_of(number))
        for number, one in enumerate(evaluation.systems)
    ]
    charts = [histogram("chrF of single sentences", series, "chrF", low=0, high=100)]
    points = [
        (
            float(len(nearest_in_length(text, evaluation.test_set.references_of(index)))),
            float(len(text)),
        )
        for index, text in enumerate(first.output.texts)
    ]
    outliers = [*first.findings["short"], *first.findings["long"], *first.findings["empty"]]
    charts.append(
        scatter_plot(
            f"Characters of each translation of {_short(first.name)}",
            points,
            "characters of the reference",
            highlighted=outliers,
        )
    )
    return [f"<figure>{drawn}</figure>" for drawn in charts if drawn]


def _findings(evaluation: Evaluation, examples: int) -> str:
    parts = []
    for kind, meaning in MEANINGS.items():
        counts = [one.findings.get(kind) for one in evaluation.systems]
        if not any(counts):
            continue
        shown = ", ".join(
            f"{_short(one.name)} {'?' if count is None else f'{len(count):,}'}"
            for one, count in zip(evaluation.systems, counts, strict=True)
        )
        indices = counts[0] or next(count for count in counts if count)
        parts.append(
            f"<details><summary><b>{kind}</b>: {escaped(meaning)} <small>({escaped(shown)})"
            f"</small></summary>{_sides(evaluation, indices[:examples])}</details>"
        )
    if not parts:
        return "<p>No translation is empty, copied, cut, looping or far off in length.</p>"
    return "".join(parts)


def _sentences(evaluation: Evaluation, examples: int) -> list[str]:
    one = evaluation.systems[0]
    ordered = worst_first(one)
    marks = (
        '<p class="note">Marked are words of a translation that are not in the reference '
        '(<mark class="extra">like this</mark>), and words of the reference that are not in the '
        'first translation (<mark class="missed">like this</mark>).</p>'
    )
    lowest = _sides(evaluation, ordered[:examples])
    shown = [section("Lowest-scoring sentences", lowest and marks + lowest)]
    highest = ordered[::-1][: examples // 2]
    shown.append(section("Highest-scoring sentences", _sides(evaluation, highest)))
    for other in evaluation.systems[1:]:
        gains = [a - b for a, b in zip(one.sentence_chrf, other.sentence_chrf, strict=True)]
        order = sorted(range(len(gains)), key=lambda i: gains[i])
        for title, indices in (
            (f"Lost most against {other.name}", [i for i in order if gains[i] < 0]),
            (f"Gained most over {other.name}", [i for i in order[::-1] if gains[i] > 0]),
        ):
            pair = [one, other]
            shown.append(section(title, _sides(evaluation, indices[: examples // 2], pair)))
    return shown


def _sides(
    evaluation: Evaluation,
    indices: Sequence[int],
    systems: Sequence[SystemEvaluation] | None = None,
) -> str:
    """Source, reference and translations side by side, with the differences marked."""
    if not indices:
        return ""
    systems = list(systems or evaluation.systems[:SIDE_BY_SIDE])
    rows = []
    for index in indices:
        first = systems[0].output.texts[index]
        reference = closest(first, evaluation.test_set.references_of(index))
        cells = [
            f"<bdi>{escaped(clipped(evaluation.test_set.sources[index]))}</bdi>"
            f"<small>sentence {index + 1:,}</small>",
            f"<bdi>{marked(reference, first, 'missed')}</bdi>",
        ]
        for one in systems:
            text = one.output.texts[index]
            beside = closest(text, evaluation.test_set.references_of(index))
            cells.append(
                f"<bdi>{marked(text, beside, 'extra') or '<i>nothing</i>'}</bdi>"
                f"<small>chrF {one.sentence_chrf[index]:.0f}</small>"
            )
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    names = ["source", "reference", *(one.name for one in systems)]
    head = "".join(f"<th>{escaped(name)}</th>" for name in names)
    return (
        f'<table class="sides"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    )


def _settings(evaluation: Evaluation) -> str:
    lines = [*speed_lines(evaluation), *(overlap_lines(evaluation) if evaluation.overlap else ())]
    rows = [
        ("source", evaluation.test_set.source_name),
        ("references", ", ".join(evaluation.test_set.reference_names)),
        *((name.replace("_", " "), value) for name, value in evaluation.settings.items()),
    ]
    facts = "".join(f"<tr><td>{escaped(k)}</td><td>{escaped(v)}</td></tr>" for k, v in rows)
    items = "".join(f"<li>{escaped(line)}</li>" for line in lines)
    return f'<ul class="note">{items}</ul><table class="facts"><tbody>{facts}</tbody></table>'


def _short(name: str) -> str:
    """Shorten a name for a chart."""
    return name if len(name) <= 22 else f"…{name[-21:]}"
