"""What watches a run: the panel, plain lines, metrics.jsonl and TensorBoard's events."""

import dataclasses
import io
import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.summary.writer import event_file_writer

from pellucid.errors import PellucidError
from pellucid.training.callbacks import tensorboard as events
from pellucid.training.callbacks.formatting import duration, sparkline
from pellucid.training.callbacks.metrics_file import CLOCK, METRICS, Metrics, read_metrics
from pellucid.training.callbacks.terminal import (
    Callback,
    Lines,
    Panel,
    Sample,
    StepReport,
    ValidationReport,
    watchers_for,
)

RECIPE = SimpleNamespace(title="A [bold]toy[/bold]", training=SimpleNamespace(minutes=None))
DATA = {"train": {"kept": 120, "total": 123, "counts": {"kept": 120, "empty": 3}, "examples": {}}}
HOSTILE = "Bon\x1b[31mjour\x07 [red]tout[/red]\u2028le monde <script>\r\n"


def step(number: int, *, loss: float = 3.0, seconds: float = 0.5) -> StepReport:
    return StepReport(
        step=number,
        total_steps=100,
        epoch=number / 10,
        loss=loss,
        smoothed_loss=loss + 0.5,
        learning_rate=1e-3,
        grad_norm=1.5,
        target_tokens=1000,
        seconds=seconds,
        waited=0.1,
        flops_share=0.625,
    )


def validation(number: int) -> ValidationReport:
    return ValidationReport(
        step=number,
        epoch=number / 10,
        loss=2.0,
        perplexity=math.exp(2.0),
        bleu=31.25,
        chrf=55.5,
        signatures={"bleu": "nrefs:1|tok:13a"},
        samples=[Sample("Hello", "Bonjour", HOSTILE)],
        best=True,
        seconds=1.0,
    )


def watch(watchers: list[Callback], first: int, last: int, resumed_from: int | None = None) -> None:
    """A run of some steps, with a validation and a checkpoint after every fifth."""
    for watcher in watchers:
        watcher.started(RECIPE, 12345, DATA, resumed_from)
    for number in range(first, last + 1):
        for watcher in watchers:
            watcher.stepped(step(number, loss=5 / number))
            if number % 5 == 0:
                watcher.validated(validation(number))
                watcher.saved(Path("checkpoints") / f"step-{number:08}")


def finish(watchers: list[Callback]) -> None:
    for watcher in watchers:
        watcher.finished({"ended": "all steps are done", "BLEU": 31.25, "nothing": None})


def without_clock(folder: Path) -> list[dict[str, object]]:
    return [{k: v for k, v in line.items() if k not in CLOCK} for line in read_metrics(folder)]


def console(*, terminal: bool = False, width: int = 100, height: int = 40) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=terminal, width=width, height=height, color_system=None
    )


def test_each_line_is_json_and_says_what_happened(tmp_path: Path) -> None:
    watchers = watchers_for(tmp_path, None)
    watch(watchers, 1, 10)
    finish(watchers)
    lines = [json.loads(line) for line in (tmp_path / METRICS).read_text().splitlines()]
    kinds = [line["kind"] for line in lines]
    assert kinds == ["run", *["step"] * 5, "valid", *["step"] * 5, "valid", "end"]
    assert lines[0]["parameters"] == 12345
    assert lines[0]["data"]["train"]["counts"] == {"kept": 120, "empty": 3}
    assert lines[1]["loss"] == 5.0
    assert lines[1]["tokens_per_second"] == 2000
    assert lines[-2]["elapsed"] == pytest.approx(10 * 0.5 + 2 * 1.0)
    assert lines[6]["samples"][0]["translation"] == HOSTILE
    assert lines[-1]["summary"]["BLEU"] == 31.25


@pytest.mark.parametrize("stopped", [0, 4, 5, 7, 12])
@pytest.mark.parametrize("ended", [True, False])
def test_a_resumed_file_equals_an_uninterrupted_one(
    tmp_path: Path, stopped: int, ended: bool
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    one = [Metrics(whole)]
    watch(one, 1, 15)
    finish(one)
    first = [Metrics(parts)]
    watch(first, 1, 12)  # goes on beyond what was saved, and is killed
    if ended:
        finish(first)
    with (parts / METRICS).open("a") as file:
        file.write('{"kind": "step", "step": 13, "lo')  # in the middle of a line
    second = [Metrics(parts)]
    watch(second, stopped + 1, 15, resumed_from=stopped)
    finish(second)
    assert without_clock(parts) == without_clock(whole)
    elapsed = [line["elapsed"] for line in read_metrics(parts) if line["kind"] == "step"]
    assert elapsed == sorted(elapsed)


def test_a_validation_that_is_done_again_is_one_line(tmp_path: Path) -> None:
    watch([Metrics(tmp_path)], 1, 5)
    again = Metrics(tmp_path)
    again.started(RECIPE, 12345, DATA, 5)
    again.validated(validation(5))
    assert [line["kind"] for line in read_metrics(tmp_path)].count("valid") == 1


def test_what_is_no_number_is_null(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path)
    metrics.started(RECIPE, 1, {}, None)
    metrics.stepped(step(1, loss=math.nan))
    metrics.stepped(step(2, loss=math.inf))
    lines = [json.loads(line, parse_constant=pytest.fail) for line in _text(tmp_path)]
    assert [line.get("loss") for line in lines[1:]] == [None, None]


def _text(folder: Path) -> list[str]:
    return (folder / METRICS).read_text().splitlines()


def test_a_full_disk_is_one_clear_error() -> None:
    metrics = Metrics(Path("/dev/full/nowhere"))
    with pytest.raises(PellucidError, match="cannot write"):
        metrics.started(RECIPE, 1, {}, None)


# Events: read back by TensorBoard itself.


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of one second are told apart by a number, which TensorBoard reads in alphabetic order;
    let it begin at 0, so that no test depends on how many were written before."""
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(0))


def board_of(folder: Path) -> EventAccumulator:
    everything = {"scalars": 0, "tensors": 0}
    return EventAccumulator(str(folder / events.EVENTS), size_guidance=everything).Reload()


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    """What TensorBoard draws: steps in their order, each once."""
    return [(one.step, one.value) for one in board_of(folder).Scalars(tag)]


DRAWN = {
    "train/loss": lambda line: line["loss"],
    "train/smoothed_loss": lambda line: line["smoothed_loss"],
    "train/perplexity": lambda line: math.exp(line["loss"]),
    "train/rate": lambda line: line["rate"],
    "train/gradient_norm": lambda line: line["gradient_norm"],
    "train/tokens_per_second": lambda line: line["tokens_per_second"],
    "train/epoch": lambda line: line["epoch"],
    "train/share_of_peak": lambda line: line["flops_share"],
    "valid/loss": lambda line: line["loss"],
    "valid/perplexity": lambda line: line["perplexity"],
    "valid/BLEU": lambda line: line["bleu"],
    "valid/chrF": lambda line: line["chrf"],
}


def compare_with_metrics(folder: Path) -> None:
    """TensorBoard draws what metrics.jsonl has, in float32, and nothing else."""
    lines = list(read_metrics(folder))
    found = board_of(folder)
    assert set(found.Tags()["scalars"]) == DRAWN.keys()
    assert found.Tags()["tensors"] == ["valid/samples"]
    for tag, value in DRAWN.items():
        kind = "step" if tag.startswith("train") else "valid"
        wanted = [(one["step"], value(one)) for one in lines if one["kind"] == kind]
        drawn = [(one.step, one.value) for one in found.Scalars(tag)]
        assert [step for step, _ in drawn] == [step for step, _ in wanted], tag
        assert [n for _, n in drawn] == pytest.approx([n for _, n in wanted], rel=1e-6), tag


@pytest.mark.usefixtures("board")
def test_tensorboard_gets_the_curves_and_the_samples(tmp_path: Path) -> None:
    watchers = watchers_for(tmp_path, None)
    watch(watchers, 1, 5)
    finish(watchers)
    compare_with_metrics(tmp_path)
    assert dict(scalars(tmp_path, "train/loss"))[2] == 2.5
    (path,) = (tmp_path / events.EVENTS).iterdir()
    assert "tfevents" in path.name
    (samples,) = board_of(tmp_path).Tensors("valid/samples")
    (text,) = samples.tensor_proto.string_val
    assert samples.step == 5
    assert HOSTILE in text.decode()
    assert board_of(tmp_path).SummaryMetadata("valid/samples").plugin_data.plugin_name == "text"
    written = list(EventFileLoader(str(path)).Load())
    assert written[0].file_version == "brain.Event:2"
    assert not any(event.HasField("session_log") for event in written)


@pytest.mark.usefixtures("board")
@pytest.mark.parametrize("stopped", [0, 5, 7, 12])
def test_tensorboard_draws_a_resumed_run_once(tmp_path: Path, stopped: int) -> None:
    first = watchers_for(tmp_path, None)
    watch(first, 1, 12)
    finish(first)
    second = watchers_for(tmp_path, None)
    watch(second, stopped + 1, 15, resumed_from=stopped)
    finish(second)
    assert len(list((tmp_path / events.EVENTS).iterdir())) == 2
    assert [step for step, _ in scalars(tmp_path, "train/loss")] == list(range(1, 16))
    compare_with_metrics(tmp_path)


@pytest.mark.usefixtures("board")
def test_what_was_validated_or_saved_can_be_seen_at_once(tmp_path: Path) -> None:
    watcher = events.Events(tmp_path)
    watch([watcher], 1, 5)
    assert len(scalars(tmp_path, "train/loss")) == len(scalars(tmp_path, "valid/loss")) * 5 == 5
    watcher.stepped(step(6))
    watcher.saved(Path("step-00000006"))
    assert len(scalars(tmp_path, "train/loss")) == 6
    watcher.finished({})


@pytest.mark.usefixtures("board")
def test_huge_numbers_do_not_break_the_events(tmp_path: Path) -> None:
    watcher = events.Events(tmp_path)
    watcher.started(RECIPE, 1, {}, None)
    watcher.stepped(step(1, loss=1e4))
    watcher.stepped(step(2, loss=700.0))  # its perplexity is more than float32 can hold
    watcher.finished({})
    assert all(math.isinf(value) for _, value in scalars(tmp_path, "train/perplexity"))


def test_half_a_letter_does_not_break_the_events(tmp_path: Path) -> None:
    watcher = events.Events(tmp_path)
    watcher.started(RECIPE, 1, {}, None)
    sample = Sample("\ud800", "b", "c")
    watcher.validated(dataclasses.replace(validation(1), samples=[sample]))
    watcher.finished({})
    assert len(board_of(tmp_path).Tensors("valid/samples")) == 1


@pytest.mark.parametrize("terminal", [True, False])
def test_without_tensorboard_one_line_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    for name in ("torch.utils.tensorboard", "tensorboard"):
        monkeypatch.setitem(sys.modules, name, None)
    place = console(terminal=terminal)
    watchers = watchers_for(tmp_path, place)
    watch(watchers, 1, 10)
    finish(watchers)
    said = place.file.getvalue()
    assert said.count("TensorBoard: not written; pip install tensorboard") == 1
    assert said.count("TensorBoard") == 1
    assert not (tmp_path / events.EVENTS).exists()
    assert [line["kind"] for line in read_metrics(tmp_path)].count("step") == 10


def test_events_that_cannot_be_written_are_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / events.EVENTS).write_text("in the way")
    with pytest.raises(PellucidError, match="cannot write to") as caught:
        events.Events(tmp_path).started(RECIPE, 1, {}, None)
    assert "\n" not in str(caught.value)


FULL = """
import resource, signal, sys, threading
from pathlib import Path
from pellucid.errors import PellucidError
from pellucid.training.callbacks.tensorboard import Events
from tests.unit.test_progress import step

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
watcher = Events(Path(sys.argv[1]))
watcher.started(None, 1, {}, None)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
for work in (lambda: [watcher.stepped(step(n)) for n in range(500)], lambda: watcher.finished({})):
    try:
        work()
        watcher.saved(Path("step"))
    except PellucidError as error:
        print(error)
assert threading.excepthook is threading.__excepthook__
"""


def test_a_disk_that_fills_is_one_clear_error_too(tmp_path: Path) -> None:
    code = [sys.executable, "-c", FULL, str(tmp_path)]
    run = subprocess.run(code, check=True, capture_output=True, text=True, timeout=300)
    line = f"cannot write to {tmp_path / events.EVENTS}: File too large"
    assert set(run.stdout.splitlines()) == {line}
    assert run.stderr == ""


def test_nothing_of_tensorboard_is_imported_before_a_run_starts() -> None:
    code = (
        "import sys, pellucid.training.run\n"
        "sys.exit(any(name.startswith('tensorboard') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# The console.


def test_a_terminal_gets_a_panel_and_a_pipe_gets_lines(tmp_path: Path) -> None:
    assert isinstance(watchers_for(tmp_path, console(terminal=True))[0], Panel)
    assert isinstance(watchers_for(tmp_path, console())[0], Lines)
    ascii_only = Console(file=io.TextIOWrapper(io.BytesIO(), "ascii"), force_terminal=True)
    assert isinstance(watchers_for(tmp_path, ascii_only)[0], Lines)


def test_lines_say_all_that_matters() -> None:
    place = console()
    lines = [Lines(place, seconds=0)]
    watch(lines, 1, 5)
    finish(lines)
    text = place.file.getvalue()
    for part in (
        "A [bold]toy[/bold]: 12,345 parameters, 120 pairs",
        "step 5 of 100",
        "loss 1.000",
        "perplexity 2.718",
        "rate 1.00e-03",
        "2,000 tokens/s",
        "62% of peak",
        "48 s left",
        "validation at step 5: loss 2.000, perplexity 7.389, BLEU 31.2, chrF 55.5 (the best",
        "saved step-00000005",
        "BLEU: 31.25",
    ):
        assert part in text, part
    assert "nothing" not in text
    assert "[red]tout[/red]" in text
    assert not any(ord(c) < 32 for c in text.replace("\n", ""))


def test_few_lines_for_many_steps() -> None:
    place = console()
    watch([Lines(place, seconds=1000)], 1, 4)
    assert place.file.getvalue().count("step ") == 1


def test_lines_do_not_fail_where_letters_are_missing() -> None:
    raw = io.BytesIO()
    place = Console(file=io.TextIOWrapper(raw, "ascii"), width=100)
    lines = Lines(place)
    lines.said("Ça va — déjà 42 %")
    place.file.flush()
    assert raw.getvalue() == b"?a va ? d?j? 42 %\n"


@pytest.mark.parametrize(("width", "height"), [(120, 50), (80, 24), (60, 20), (30, 10)])
def test_the_panel_fits_the_screen(width: int, height: int) -> None:
    place = console(terminal=True, width=width, height=height)
    panel = Panel(place)
    watch([panel], 1, 10)
    paper = console(width=width, height=height)  # the same without the control of the cursor
    paper.print(panel._panel())
    drawn = paper.file.getvalue().splitlines()
    assert all(len(line) <= width for line in drawn)
    if width >= 60:
        text = "\n".join(drawn)
        for part in ("step 10 of 100", "perplexity 1.649", "of peak 62%", "left 63 s", "▁"):
            assert part in text, part
        if height >= 24:
            assert "translation Bon [31mjour" in text
        assert len(drawn) <= height
    assert "\x1b[31mjour" not in place.file.getvalue()
    finish([panel])
    assert panel._live is None


def test_time_left_counts_validations_and_stops_at_the_minutes() -> None:
    place = console(terminal=True)
    panel = Panel(place)
    recipe = SimpleNamespace(title="", training=SimpleNamespace(minutes=1.0))
    panel.started(recipe, 1, {}, None)
    assert panel._pace.left is None
    panel.stepped(step(1, seconds=1.0))
    assert panel._pace.left == pytest.approx(59)  # the minute ends before the 99 steps
    panel.finished({})


def test_a_resumed_run_goes_on_counting_time(tmp_path: Path) -> None:
    watch([Metrics(tmp_path)], 1, 10)
    lines = Lines(console(), tmp_path)
    lines.started(RECIPE, 1, {}, 10)
    assert lines._pace.elapsed == pytest.approx(7.0)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (89, "89 s"), (90, "2 min"), (5000, "83 min"), (5400, "1 h 30"),
     (86400, "24 h 00"), (3 * 86400, "3.0 days")],
)  # fmt: skip
def test_durations(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200), st.integers(1, 50))
def test_a_sparkline_has_its_width(values: list[float], width: int) -> None:
    line = sparkline(values, width)
    assert len(line) == min(width, len(values))
    assert set(line) <= set("▁▂▃▄▅▆▇█")
