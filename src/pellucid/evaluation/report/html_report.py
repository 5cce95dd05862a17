"""The report of an evaluation: one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from pellucid.drawing.bars import Series, bar_chart, cloud, colour_of, histogram
from pellucid.drawing.page import cards, page, section, table
from pellucid.drawing.svg import escaped
from pellucid.evaluation.findings import MEANINGS
from pellucid.evaluation.length_groups import FEW
from pellucid.evaluation.report.differences import clipped, closest, marked
from pellucid.evaluation.report.tables import headline, overlap_lines, speed_lines, worst
from pellucid.evaluation.results import Comparison, Evaluation, Judgement
from pellucid.evaluation.test_set import nearest_in_length

EXAMPLES = 20
"""Sentences of each kind that are shown."""

BESIDE = 3
"""Systems that stand beside each other."""


def report(found: Evaluation, examples: int = EXAMPLES) -> str:
    """The page, with up to so many sentences of each kind."""
    style = files("pellucid.evaluation").joinpath("report.css").read_text(encoding="utf-8")
    sections = [
        _header(found),
        section("Scores", _scores(found)),
        _compared(found),
        section("By length of the source", _by_length(found)),
        section("Sentence by sentence", "".join(_spread(found)), "charts"),
        section("Worth a look", _findings(found, examples)),
        *_sentences(found, examples),
        section("How it was measured", _settings(found)),
    ]
    return page(f"Evaluation of {found.systems[0].name}", sections, style)


def _header(found: Evaluation) -> str:
    facts = []
    for score in found.scores.values():
        margin = f"± {score.interval.margin:.{score.digits}f}" if score.interval else ""
        note = margin if score.higher_is_better else f"{margin} (lower is better)"
        facts.append((f"{score.value:.{score.digits}f}", score.name, note))
    facts.append((f"{len(found.material):,}", "sentences", ""))
    speed = found.systems[0].system.speed
    if speed is not None:
        where = "on this machine, busy" if speed.disturbed else "on this machine"
        facts.append((f"{speed.sentences_per_second:,.1f}", "sentences a second", where))
    said = "".join(f"<li>{escaped(line)}</li>" for line in found.cautions)
    cautions = f'<ul class="cautions">{said}</ul>' if said else ""
    return (
        f"<header><h1>{escaped(found.systems[0].name)}</h1>"
        f'<p class="note">{escaped(headline(found))}. {escaped(found.date)}</p>'
        f"{cards(facts)}{cautions}</header>"
    )


def _scores(found: Evaluation) -> str:
    head = ["system", *(score.name for score in found.scores.values())]
    rows = [[one.name, *(str(score) for score in one.scores.values())] for one in found.systems]
    signatures = "".join(
        f"<li><code>{escaped(score.name)}: {escaped(score.signature)}</code></li>"
        for score in found.scores.values()
    )
    note = ""
    if any(score.interval for score in found.scores.values()):
        note = (
            '<p class="note">After ±: on other sentences of this kind, the score would lie within '
            "95 of 100 times.</p>"
        )
    made = table(head, rows, range(1, len(head)))
    return f'<div class="scores">{made}</div>{note}<ul class="signatures">{signatures}</ul>'


def _compared(found: Evaluation) -> str:
    parts = []
    for other in found.systems[1:]:
        ours = [one for one in found.comparisons if one.against == other.name]
        if not ours:
            continue
        verdicts = "".join(_verdict(one) for one in ours)
        figures = "".join(
            "<figure>"
            + histogram(
                f"{one.measure.name}: difference in each resample",
                [Series("", [float(v) for v in one.resampled], colour_of(place))],
                f"{one.measure.name} of {_short(one.system)} minus that of {_short(one.against)}",
                bins=30,
                line_at=0.0,
            )
            + "</figure>"
            for place, one in enumerate(ours)
            if one.difference.value
        )
        parts.append(
            f"<h3>{escaped(found.systems[0].name)} compared with {escaped(other.name)}</h3>"
            f'<ul class="verdicts">{verdicts}</ul><div class="charts trio">{figures}</div>'
        )
    if not parts:
        return ""
    note = (
        '<p class="note">The test set is drawn again from itself many times (paired bootstrap). '
        "The probability says how often a difference as large would come about if the systems were "
        "equally good.</p>"
    )
    return section("Compared", note + "".join(parts))


def _verdict(one: Comparison) -> str:
    digits = one.measure.digits
    if not one.difference.value:
        return f"<li>{escaped(one.sentence)}</li>"
    kind = one.verdict if one.verdict in ("better", "worse") else "even"
    return (
        f'<li class="{kind}">{escaped(one.sentence)} (difference {one.difference.low:+.{digits}f} '
        f"to {one.difference.high:+.{digits}f}; ahead in {one.difference.wins:.1%} of the "
        "resamples)</li>"
    )


def _by_length(found: Evaluation) -> str:
    labels = [row.group.label for row in found.systems[0].by_length]
    figures = ""
    for key in ("bleu", "chrf"):
        series = [
            Series(_short(one.name), [row.scores[key] for row in one.by_length], colour_of(place))
            for place, one in enumerate(found.systems)
        ]
        drawn = bar_chart(found.scores[key].name, labels, series, "words of the source")
        figures += f"<figure>{drawn}</figure>"
    names = [score.name for score in found.scores.values()]
    head = ["system", "words", "sentences", *names, "length to reference"]
    rows = [
        [
            one.name,
            row.group.label,
            f"{len(row.group.places):,}" + (" (few)" if len(row.group.places) < FEW else ""),
            *(f"{row.scores[key]:.{score.digits}f}" for key, score in found.scores.items()),
            f"{row.length_ratio:.2f}",
        ]
        for one in found.systems
        for row in one.by_length
    ]
    numbers = table(head, rows, range(1, len(head)))
    return (
        f'<div class="charts">{figures}</div><details><summary>the numbers</summary>{numbers}'
        "</details>"
    )


def _spread(found: Evaluation) -> list[str]:
    """How single sentences fared: a distribution of chrF, and lengths."""
    first = found.systems[0]
    series = [
        Series(_short(one.name), one.sentence_chrf, colour_of(place))
        for place, one in enumerate(found.systems)
    ]
    charts = [histogram("chrF of single sentences", series, "chrF", low=0, high=100)]
    points = [
        (float(len(nearest_in_length(text, found.material.of(place)))), float(len(text)))
        for place, text in enumerate(first.system.texts)
    ]
    odd = [*first.findings["short"], *first.findings["long"], *first.findings["empty"]]
    charts.append(
        cloud(
            f"Characters of each translation of {_short(first.name)}",
            points,
            "characters of the reference",
            odd=odd,
        )
    )
    return [f"<figure>{drawn}</figure>" for drawn in charts if drawn]


def _findings(found: Evaluation, examples: int) -> str:
    parts = []
    for kind, meaning in MEANINGS.items():
        counts = [one.findings.get(kind) for one in found.systems]
        if not any(counts):
            continue
        shown = ", ".join(
            f"{_short(one.name)} {'?' if count is None else f'{len(count):,}'}"
            for one, count in zip(found.systems, counts, strict=True)
        )
        places = counts[0] or next(count for count in counts if count)
        parts.append(
            f"<details><summary><b>{kind}</b>: {escaped(meaning)} <small>({escaped(shown)})"
            f"</small></summary>{_sides(found, places[:examples])}</details>"
        )
    if not parts:
        return "<p>No translation is empty, copied, cut, looping or far off in length.</p>"
    return "".join(parts)


def _sentences(found: Evaluation, examples: int) -> list[str]:
    one = found.systems[0]
    ordered = worst(one)
    marks = (
        '<p class="note">Marked are words that a translation has and the reference has not '
        '(<mark class="extra">so</mark>), and words of the reference that the first translation '
        'lacks (<mark class="missed">so</mark>).</p>'
    )
    lowest = _sides(found, ordered[:examples])
    shown = [section("The lowest sentences", lowest and marks + lowest)]
    highest = ordered[::-1][: examples // 2]
    shown.append(section("The highest sentences", _sides(found, highest)))
    for other in found.systems[1:]:
        gains = [a - b for a, b in zip(one.sentence_chrf, other.sentence_chrf, strict=True)]
        order = sorted(range(len(gains)), key=lambda i: gains[i])
        for title, places in (
            (f"Lost most against {other.name}", [i for i in order if gains[i] < 0]),
            (f"Gained most over {other.name}", [i for i in order[::-1] if gains[i] > 0]),
        ):
            pair = [one, other]
            shown.append(section(title, _sides(found, places[: examples // 2], pair)))
    return shown


def _sides(
    found: Evaluation, places: Sequence[int], systems: Sequence[Judgement] | None = None
) -> str:
    """Sentences beside each other: source, reference, translations, with what differs marked."""
    if not places:
        return ""
    systems = list(systems or found.systems[:BESIDE])
    rows = []
    for place in places:
        first = systems[0].system.texts[place]
        reference = closest(first, found.material.of(place))
        cells = [
            f"<bdi>{escaped(clipped(found.material.sources[place]))}</bdi>"
            f"<small>sentence {place + 1:,}</small>",
            f"<bdi>{marked(reference, first, 'missed')}</bdi>",
        ]
        for one in systems:
            text = one.system.texts[place]
            beside = closest(text, found.material.of(place))
            cells.append(
                f"<bdi>{marked(text, beside, 'extra') or '<i>nothing</i>'}</bdi>"
                f"<small>chrF {one.sentence_chrf[place]:.0f}</small>"
            )
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    names = ["source", "reference", *(one.name for one in systems)]
    head = "".join(f"<th>{escaped(name)}</th>" for name in names)
    return (
        f'<table class="sides"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    )


def _settings(found: Evaluation) -> str:
    lines = [*speed_lines(found), *(overlap_lines(found) if found.overlap else ())]
    rows = [
        ("source", found.material.source_name),
        ("references", ", ".join(found.material.reference_names)),
        *((name.replace("_", " "), value) for name, value in found.settings.items()),
    ]
    facts = "".join(f"<tr><td>{escaped(k)}</td><td>{escaped(v)}</td></tr>" for k, v in rows)
    said = "".join(f"<li>{escaped(line)}</li>" for line in lines)
    return f'<ul class="note">{said}</ul><table class="facts"><tbody>{facts}</tbody></table>'


def _short(name: str) -> str:
    """A name for a picture."""
    return name if len(name) <= 22 else f"…{name[-21:]}"
