"""What an evaluation looks like: as a page, as JSON, on a terminal and as plain lines."""

import io
import json
import re
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from pellucid.drawing.bars import Series, bar_chart, histogram, scatter_plot
from pellucid.drawing.report_page import table
from pellucid.evaluation import Evaluation, evaluate
from pellucid.evaluation.report.differences import clipped, closest, marked
from pellucid.evaluation.report.html_report import report
from pellucid.evaluation.report.tables import show
from tests.pages import HARM, Page
from tests.systems import french_and_english, spoiled

SOURCES, ENGLISH = french_and_english(40)
GOOD, BAD = spoiled(ENGLISH, 0.15, 1), spoiled(ENGLISH, 0.5, 2)


def evaluated(texts: list[str] | None = None, **more: Any) -> Evaluation:
    more = {"source": SOURCES, "references": [ENGLISH], "against": [BAD], "resamples": 100, **more}
    return evaluate(texts or GOOD, **more)


@pytest.fixture(scope="module")
def found() -> Evaluation:
    return evaluated(["", SOURCES[1], "sea sea sea sea sea", *GOOD[3:]])


# The page


def test_everything_is_on_the_page(found: Evaluation) -> None:
    page = Page(report(found))
    said = " ".join(page.texts)
    for part in (
        "translations and 1 more on 40 sentences", "BLEU", "chrF", "TER", "tok:13a", "Compared",
        "translations compared with other", "this could be chance with probability",
        "By length of the source", "words of the source", "chrF of single sentences",
        "characters of the reference", "empty", "copied", "loops", "Lowest-scoring sentences",
        "Highest-scoring sentences", "Lost most against other", "Gained most over other",
        "How it was measured", "resamples", "only 40 sentences",
    ):  # fmt: skip
        assert part in said, part
    assert SOURCES[0] in said
    assert sum(tag == "svg" for tag, _ in page.tags) == 3 + 2 + 2
    assert sum(tag == "mark" for tag, _ in page.tags) > 20
    assert "nan" not in said.lower().split()


def test_the_page_fetches_nothing_and_runs_nothing(found: Evaluation) -> None:
    text = report(found)
    assert "default-src 'none'" in text
    assert not re.search(r"https?://|url\(|@import|javascript:", text)
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_no_text_becomes_markup() -> None:
    texts = [f"{HARM} {line}" for line in GOOD[:12]]
    sources = [f"{line} {HARM}" for line in SOURCES[:12]]
    references = [[f"{HARM} {line} {HARM}" for line in ENGLISH[:12]]]
    found = evaluated(texts, source=sources, references=references, against=[BAD[:12]])
    object.__setattr__(found.systems[0].output, "name", HARM)
    object.__setattr__(found, "warnings", [HARM])
    text = report(found)
    page = Page(text)
    assert {tag for tag, _ in page.tags} <= {
        "html", "head", "meta", "title", "style", "body", "main", "header", "h1", "h2", "h3",
        "div", "b", "span", "small", "ul", "li", "section", "figure", "svg", "path", "text",
        "circle", "rect", "table", "thead", "tbody", "tr", "th", "td", "bdi", "p", "code", "mark",
        "details", "summary", "i", "footer",
    }  # fmt: skip
    for _, attributes in page.tags:
        assert not {name for name in attributes if name.startswith("on")}
        assert not {"src", "href"} & set(attributes)
    assert "&lt;script&gt;" in text
    assert not set("\x00\x1b\ud800") & set(text)


@pytest.mark.parametrize("more", [{"against": []}, {"resamples": 0}, {"ter": False}])
def test_pages_with_less_on_them(more: dict[str, Any]) -> None:
    found = evaluated(**more)
    Page(report(found))
    page = Page(report(found, examples=0))
    assert "Lowest-scoring sentences" not in " ".join(page.texts)
    assert "mark" not in {tag for tag, _ in page.tags}


def test_one_sentence_is_enough() -> None:
    found = evaluate(["a bridge"], source=["un pont"], references=[["a bridge"]], resamples=40)
    Page(report(found))
    show(found, Console(file=io.StringIO()))


# Differences


def test_what_differs_is_marked() -> None:
    text, reference = "The old, green bridge over there", "The bridge is there"
    assert marked(text, reference, "x") == (
        'The <mark class="x">old, green</mark> bridge <mark class="x">over</mark> there'
    )
    assert marked(reference, text, "x") == 'The bridge <mark class="x">is</mark> there'
    assert marked(text, text, "x") == text
    assert marked("", text, "x") == ""
    assert closest("a green bridge", ["the sea", "the green bridge"]) == "the green bridge"


@given(st.text(max_size=40), st.text(max_size=40))
def test_marks_change_no_text(text: str, other: str) -> None:
    made = marked(text, other, "x")
    read = "".join(ElementTree.fromstring(f"<p>{made}</p>").itertext())
    plain = "".join(ElementTree.fromstring(f"<p>{marked(text, text, 'x')}</p>").itertext())
    assert read == plain
    assert "<mark" not in marked(text, text, "x")


def test_a_very_long_text_is_clipped() -> None:
    long = "n " * 100_000
    assert len(clipped(long)) == 1501
    assert len(marked(long, "n " * 500, "x")) < 3000


# Pictures

FLOATS = st.floats(-1e6, 1e6)


@settings(max_examples=40)
@given(st.lists(FLOATS, min_size=1, max_size=8), st.lists(FLOATS, max_size=40), st.text(max_size=9))
def test_any_numbers_are_a_picture(bars: list[float], values: list[float], name: str) -> None:
    labels = [str(place) for place in range(len(bars))]
    series = [Series(name, bars), Series("other", [float("nan"), *bars[1:]], 2)]
    spread = [Series(name, values), Series("b", [1.0], 3)]
    points = [(abs(value), abs(value) / 2) for value in values]
    for drawn in (
        bar_chart(name, labels, series, name),
        histogram(name, spread, name, line_at=0.0),
        scatter_plot(name, points, name, highlighted=[0]),
    ):
        if drawn:
            ElementTree.fromstring(drawn)
            for number in re.findall(r' (?:x|y|cx|cy|width|height)="([^"]+)"', drawn):
                assert -60 <= float(number) <= 600, number


def test_a_histogram_counts_everything() -> None:
    drawn = ElementTree.fromstring(histogram("t", [Series("", [0, 0, 0, 100, 101])], "x", high=100))
    assert drawn is not None
    assert histogram("t", [Series("", [])], "x") == ""
    assert bar_chart("t", [], [], "x") == scatter_plot("t", [], "x") == ""
    many = scatter_plot("t", [(1.0, 1.0)] * 10_000, "x", highlighted=[1])
    assert 3 < many.count("<circle") <= 3001


def test_cells_are_escaped() -> None:
    made = table(["<a>"], [["<b>"]], [0])
    assert "&lt;a&gt;" in made
    assert "&lt;b&gt;" in made


# JSON and terminal


def test_json_is_complete_and_plain(found: Evaluation) -> None:
    made = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert set(made) == {
        "pellucid", "sacrebleu", "date", "source", "references", "from", "to", "count",
        "settings", "warnings", "systems", "comparisons", "overlap", "sentences",
    }  # fmt: skip
    assert made["count"] == len(made["sentences"]) == 40
    system = made["systems"][0]
    assert set(system) == {"name", "kind", "scores", "by_length", "findings", "speed"}
    assert (system["kind"], system["speed"]) == ("file", None)
    assert system["findings"]["empty"] == [1]
    assert system["findings"]["copied"] == [2]
    assert system["findings"]["loops"][0] == 3
    assert set(system["scores"]["chrf"]) == {
        "name", "score", "higher_is_better", "signature", "mean", "margin", "low", "high",
    }  # fmt: skip
    assert set(system["by_length"][0]) == {
        "from", "to", "sentences", "bleu", "chrf", "ter", "length_ratio",
    }  # fmt: skip
    assert set(made["comparisons"][0]) == {
        "system", "against", "metric", "difference", "low", "high", "p_value", "wins",
        "verdict", "sentence",
    }  # fmt: skip
    first = made["sentences"][0]
    assert set(first) == {"number", "source", "references", "translations"}
    assert [set(one) for one in first["translations"]] == [{"text", "chrf"}] * 2


def test_a_terminal_and_none(found: Evaluation) -> None:
    plain, coloured = io.StringIO(), io.StringIO()
    show(found, Console(file=plain))
    show(found, Console(file=coloured, force_terminal=True, width=100))
    assert "\x1b[" in coloured.getvalue()
    text = plain.getvalue()
    assert "\x1b" not in text
    assert not re.search("[─│━╭]", text)
    for part in ("BLEU", "tok:13a", "translations compared with other:", "worth a look", "copied"):
        assert part in text
    assert re.search(r"^translations +\d+\.\d ± \d+\.\d", text, re.MULTILINE)


def test_what_a_model_writes_does_not_steer_the_terminal() -> None:
    found = evaluated(["\x1b]0;title\x07 [red]x[/red]", *GOOD[1:]])
    out = io.StringIO()
    show(found, Console(file=out))
    assert "\x1b" not in out.getvalue()
    assert "[red]x[/red]" in out.getvalue()
