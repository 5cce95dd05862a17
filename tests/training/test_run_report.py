"""The report: one page that needs nothing else, in which no text can do anything."""

import json
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.cli.main import app
from pellucid.drawing.svg import Curve, attention_map, escaped, line_chart, log_ticks, ticks
from pellucid.errors import InputError
from pellucid.training.callbacks.callback import Sample, StepReport, ValidationReport
from pellucid.training.callbacks.metrics_file import METRICS, MetricsFile
from pellucid.training.run_report import write_report
from tests.pages import HARM, Page


class Titled:
    """The part of a recipe that the callbacks use."""

    def __init__(self, title: str) -> None:
        self.title = title


def make_run(
    folder: Path, steps: int = 40, text: str = "Ein Hund", *, finished: bool = True
) -> None:
    metrics = MetricsFile(folder)
    counted = {"total": 5, "kept": 4, "counts": {"kept": 4, "empty": 1}, "examples": {}}
    metrics.on_start(Titled(f"A run {text}"), 123_456, {"train": counted, text: counted}, None)
    for number in range(1, steps + 1):
        loss = 2 + 4 / number
        metrics.on_step(
            StepReport(number, steps, number / 9, loss, loss, 1e-3, 1.0, 500, 0.5, 0.0, 0.6)
        )
        if number % 10 == 0:
            sample = Sample(f"A dog {text}", text, f"{text} {number}")
            metrics.on_validation(
                ValidationReport(
                    number, number / 9, loss, math.exp(loss), number / 2, 40.0, {"bleu": text},
                    [sample, sample], True, 3.0,
                )
            )  # fmt: skip
    if finished:
        metrics.on_end({"ended": text, "not there": None})
    (folder / "recipe.toml").write_text(f'title = "{text}"\n', encoding="utf-8", errors="replace")
    attention = {
        "source": ["▁A", "▁dog", text],
        "target": ["▁Ein", text],
        "heads": [[[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]]] * 2,
        "layer": 3,
    }
    (folder / "attention.json").write_text(json.dumps(attention))


def page_of(folder: Path) -> tuple[str, Page]:
    path = write_report(folder)
    assert path == folder / "report.html"
    text = path.read_text(encoding="utf-8")
    return text, Page(text)


def test_everything_is_there(tmp_path: Path) -> None:
    make_run(tmp_path)
    _, page = page_of(tmp_path)
    said = " ".join(page.texts)
    for part in (
        "A run Ein Hund", "20.0", "at step 40", "Curves", "Loss, nats per token", "Perplexity",
        "BLEU", "chrF", "Learning rate", "minutes", "Samples", "Ein Hund 40", "Ein Hund 10",
        "One sentence over the course of training", "The attention of one sentence",
        "decoder layer 3",
        "head 2", "␣dog", "Data", "a side without text", "Machine and versions", "torch",
        "Recipe", 'title = "Ein Hund"', "0.1M", "ended: Ein Hund",
    ):  # fmt: skip
        assert part in said, part
    assert said.count("Loss, nats per token") == 2  # by step and by minutes
    assert "not there" not in said
    assert sum(tag == "svg" for tag, _ in page.tags) == 10 + 2
    assert not [p for p in tmp_path.iterdir() if ".writing" in p.name]


def test_no_text_becomes_markup(tmp_path: Path) -> None:
    make_run(tmp_path, text=HARM)
    text, page = page_of(tmp_path)
    tags = {tag for tag, _ in page.tags}
    assert tags <= {
        "html", "head", "meta", "title", "style", "body", "main", "header", "h1", "h2", "div",
        "b", "span", "small", "ul", "li", "section", "figure", "svg", "path", "text", "circle",
        "rect", "table", "thead", "tbody", "tr", "th", "td", "bdi", "p", "pre", "code", "footer",
    }  # fmt: skip
    for _, attributes in page.tags:
        assert not {name for name in attributes if name.startswith("on")}
        assert "src" not in attributes
        assert "href" not in attributes
    assert "&lt;script&gt;" in text
    assert "\x00" not in text
    assert "\x1b" not in text
    assert any("<script>alert('x')</script>" in part for part in page.texts)


def test_it_fetches_nothing_and_runs_nothing(tmp_path: Path) -> None:
    make_run(tmp_path)
    text, page = page_of(tmp_path)
    assert "default-src 'none'" in text
    assert not re.search(r"https?://|url\(|@import|javascript:", text)
    assert "script" not in {tag for tag, _ in page.tags}
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_a_run_that_has_just_begun(tmp_path: Path) -> None:
    make_run(tmp_path, steps=1, finished=False)
    (tmp_path / "attention.json").unlink()
    (tmp_path / "recipe.toml").unlink()
    text, _ = page_of(tmp_path)
    assert "has not ended yet" in text
    assert "attention" not in text.partition("</style>")[2]


def test_a_long_run_stays_a_small_page(tmp_path: Path) -> None:
    make_run(tmp_path, steps=5000)
    text, _ = page_of(tmp_path)
    assert len(text) < 700_000


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path, steps=3, finished=False)
    app(["report", str(tmp_path)])
    assert capsys.readouterr().out.strip() == str(tmp_path / "report.html")
    assert (tmp_path / "report.html").exists()


def test_nothing_to_report(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to report"):
        write_report(tmp_path)
    (tmp_path / METRICS).write_text("not json\n")
    with pytest.raises(InputError, match="nothing to report"):
        write_report(tmp_path)


@pytest.mark.parametrize(
    "attention",
    ["", "[]", "{}", '"x"', '{"source": ["a"], "target": ["b"], "heads": [[[0.5, 0.5]]]}',
     '{"source": ["a"], "target": ["b"], "heads": [[["x"]]]}', '{"source": 3, "target": 4}',
     '{"source": [], "target": [], "weights": []}'],
)  # fmt: skip
def test_a_strange_attention_file_is_left_out(tmp_path: Path, attention: str) -> None:
    make_run(tmp_path, steps=2)
    (tmp_path / "attention.json").write_text(attention)
    text, _ = page_of(tmp_path)
    assert "The attention of one sentence" not in text


def test_strange_lines_do_not_break_it(tmp_path: Path) -> None:
    lines = [
        {"kind": "run"},
        {"kind": "step", "step": 1, "loss": None},
        {"kind": "step", "step": 2, "loss": 1e9, "learning_rate": 0.0},
        {"kind": "valid", "step": 2, "loss": None, "samples": [{}]},
        {"kind": "other", "step": 3},
    ]
    (tmp_path / METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    page_of(tmp_path)


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(st.floats(0, 1e9), st.floats(allow_nan=True, allow_infinity=True)), max_size=400
    ),
    st.booleans(),
    st.text(max_size=20),
)
def test_any_curve_is_a_picture(points: list[tuple[float, float]], log: bool, name: str) -> None:
    finite = [y for _, y in points if abs(y) <= 1e100 and (not log or y >= 1e-100)]
    drawn = line_chart(name, [Curve(name, points, dots=True)], name, log=log)
    assert bool(drawn) == bool(finite)
    if drawn:
        ElementTree.fromstring(drawn)
        places = [float(n) for n in re.findall(r'c[xy]="([^"]+)"', drawn)]
        assert all(-1 <= place <= 521 for place in places)
        assert "nan" not in re.sub(r"<text.*?</text>|<title>.*?</title>|aria-label=\"[^\"]*\"", "",
                                   drawn)  # fmt: skip


@settings(max_examples=40)
@given(st.lists(st.text(max_size=8), min_size=1, max_size=5), st.data())
def test_any_attention_is_a_picture(tokens: list[str], data: st.DataObject) -> None:
    weights = data.draw(
        st.lists(
            st.lists(st.floats(0, 1), min_size=len(tokens), max_size=len(tokens)),
            min_size=len(tokens),
            max_size=len(tokens),
        )
    )
    drawn = ElementTree.fromstring(attention_map("map", tokens, tokens, weights))
    cells = [element for element in drawn if element.get("class") == "cell"]
    assert len(cells) == len(tokens) ** 2


@given(st.floats(-1e12, 1e12), st.floats(1e-9, 1e12))
def test_ticks_are_round_and_inside(low: float, span: float) -> None:
    high = low + span
    found = ticks(low, high)
    assert len(found) <= 6
    slack = 1e-6 * max(abs(low), abs(high), span)
    assert all(low - slack <= tick <= high + slack for tick in found)
    assert found == sorted(found)


@given(st.floats(1e-6, 1e6), st.floats(1.1, 1e9))
def test_log_ticks_are_inside(low: float, ratio: float) -> None:
    found = log_ticks(low, low * ratio)
    assert all(low * 0.999 <= tick <= low * ratio * 1.001 for tick in found)


@given(st.text())
def test_escaped_text_is_only_text(text: str) -> None:
    assert ElementTree.fromstring(f"<a>{escaped(text)}</a>").tag == "a"
