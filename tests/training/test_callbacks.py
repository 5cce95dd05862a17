"""Training callbacks: the live panel, plain log lines, metrics.jsonl and TensorBoard."""

import dataclasses
import io
import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.summary.writer import event_file_writer

from pellucid.errors import PellucidError
from pellucid.training.callbacks.callback import Callback, Sample, StepReport, ValidationReport
from pellucid.training.callbacks.live_panel import LivePanel
from pellucid.training.callbacks.metrics_file import CLOCK, METRICS, MetricsFile, read_metrics
from pellucid.training.callbacks.tensorboard import EVENTS, TensorBoard
from pellucid.training.callbacks.terminal import PlainLog, default_callbacks

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
        mfu=0.625,
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


def train(
    callbacks: list[Callback], first: int, last: int, resumed_from: int | None = None
) -> None:
    """A run of some steps, with a validation and a checkpoint after every fifth."""
    for callback in callbacks:
        callback.on_start(RECIPE, 12345, DATA, resumed_from)
    for number in range(first, last + 1):
        for callback in callbacks:
            callback.on_step(step(number, loss=5 / number))
            if number % 5 == 0:
                callback.on_validation(validation(number))
                callback.on_save(Path("checkpoints") / f"step-{number:08}")


def finish(callbacks: list[Callback]) -> None:
    for callback in callbacks:
        callback.on_end({"ended": "all steps are done", "BLEU": 31.25, "nothing": None})


def without_clock(folder: Path) -> list[dict[str, object]]:
    return [{k: v for k, v in line.items() if k not in CLOCK} for line in read_metrics(folder)]


def console(*, terminal: bool = False, width: int = 100, height: int = 40) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=terminal, width=width, height=height, color_system=None
    )


def test_each_line_is_json_and_says_what_happened(tmp_path: Path) -> None:
    callbacks = default_callbacks(tmp_path, None)
    train(callbacks, 1, 10)
    finish(callbacks)
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
    one = [MetricsFile(whole)]
    train(one, 1, 15)
    finish(one)
    first = [MetricsFile(parts)]
    train(first, 1, 12)  # goes on beyond what was saved, and is killed
    if ended:
        finish(first)
    with (parts / METRICS).open("a") as file:
        file.write('{"kind": "step", "step": 13, "lo')  # in the middle of a line
    second = [MetricsFile(parts)]
    train(second, stopped + 1, 15, resumed_from=stopped)
    finish(second)
    assert without_clock(parts) == without_clock(whole)
    elapsed = [line["elapsed"] for line in read_metrics(parts) if line["kind"] == "step"]
    assert elapsed == sorted(elapsed)


def test_a_validation_that_is_done_again_is_one_line(tmp_path: Path) -> None:
    train([MetricsFile(tmp_path)], 1, 5)
    again = MetricsFile(tmp_path)
    again.on_start(RECIPE, 12345, DATA, 5)
    again.on_validation(validation(5))
    assert [line["kind"] for line in read_metrics(tmp_path)].count("valid") == 1


def test_what_is_no_number_is_null(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path)
    metrics.on_start(RECIPE, 1, {}, None)
    metrics.on_step(step(1, loss=math.nan))
    metrics.on_step(step(2, loss=math.inf))
    lines = [json.loads(line, parse_constant=pytest.fail) for line in _text(tmp_path)]
    assert [line.get("loss") for line in lines[1:]] == [None, None]


def _text(folder: Path) -> list[str]:
    return (folder / METRICS).read_text().splitlines()


def test_a_full_disk_is_one_clear_error() -> None:
    metrics = MetricsFile(Path("/dev/full/nowhere"))
    with pytest.raises(PellucidError, match="cannot write"):
        metrics.on_start(RECIPE, 1, {}, None)


# Events: read back by TensorBoard itself.


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of one second are told apart by a number, which TensorBoard reads in alphabetic order;
    let it begin at 0, so that no test depends on how many were written before."""
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(0))


def board_of(folder: Path) -> EventAccumulator:
    everything = {"scalars": 0, "tensors": 0}
    return EventAccumulator(str(folder / EVENTS), size_guidance=everything).Reload()


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    """What TensorBoard draws: steps in their order, each once."""
    return [(one.step, one.value) for one in board_of(folder).Scalars(tag)]


DRAWN = {
    "train/loss": lambda line: line["loss"],
    "train/smoothed_loss": lambda line: line["smoothed_loss"],
    "train/perplexity": lambda line: math.exp(line["loss"]),
    "train/learning_rate": lambda line: line["learning_rate"],
    "train/grad_norm": lambda line: line["grad_norm"],
    "train/tokens_per_second": lambda line: line["tokens_per_second"],
    "train/epoch": lambda line: line["epoch"],
    "train/mfu": lambda line: line["mfu"],
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
    callbacks = default_callbacks(tmp_path, None)
    train(callbacks, 1, 5)
    finish(callbacks)
    compare_with_metrics(tmp_path)
    assert dict(scalars(tmp_path, "train/loss"))[2] == 2.5
    (path,) = (tmp_path / EVENTS).iterdir()
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
    first = default_callbacks(tmp_path, None)
    train(first, 1, 12)
    finish(first)
    second = default_callbacks(tmp_path, None)
    train(second, stopped + 1, 15, resumed_from=stopped)
    finish(second)
    assert len(list((tmp_path / EVENTS).iterdir())) == 2
    assert [step for step, _ in scalars(tmp_path, "train/loss")] == list(range(1, 16))
    compare_with_metrics(tmp_path)


@pytest.mark.usefixtures("board")
def test_what_was_validated_or_saved_can_be_seen_at_once(tmp_path: Path) -> None:
    callback = TensorBoard(tmp_path)
    train([callback], 1, 5)
    assert len(scalars(tmp_path, "train/loss")) == len(scalars(tmp_path, "valid/loss")) * 5 == 5
    callback.on_step(step(6))
    callback.on_save(Path("step-00000006"))
    assert len(scalars(tmp_path, "train/loss")) == 6
    callback.on_end({})


@pytest.mark.usefixtures("board")
def test_huge_numbers_do_not_break_the_events(tmp_path: Path) -> None:
    callback = TensorBoard(tmp_path)
    callback.on_start(RECIPE, 1, {}, None)
    callback.on_step(step(1, loss=1e4))
    callback.on_step(step(2, loss=700.0))  # its perplexity is more than float32 can hold
    callback.on_end({})
    assert all(math.isinf(value) for _, value in scalars(tmp_path, "train/perplexity"))


def test_half_a_letter_does_not_break_the_events(tmp_path: Path) -> None:
    callback = TensorBoard(tmp_path)
    callback.on_start(RECIPE, 1, {}, None)
    sample = Sample("\ud800", "b", "c")
    callback.on_validation(dataclasses.replace(validation(1), samples=[sample]))
    callback.on_end({})
    assert len(board_of(tmp_path).Tensors("valid/samples")) == 1


@pytest.mark.parametrize("terminal", [True, False])
def test_without_tensorboard_one_line_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    for name in ("torch.utils.tensorboard", "tensorboard"):
        monkeypatch.setitem(sys.modules, name, None)
    place = console(terminal=terminal)
    callbacks = default_callbacks(tmp_path, place)
    train(callbacks, 1, 10)
    finish(callbacks)
    said = place.file.getvalue()
    assert said.count("TensorBoard: not written; pip install tensorboard") == 1
    assert said.count("TensorBoard") == 1
    assert not (tmp_path / EVENTS).exists()
    assert [line["kind"] for line in read_metrics(tmp_path)].count("step") == 10


def test_events_that_cannot_be_written_are_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / EVENTS).write_text("in the way")
    with pytest.raises(PellucidError, match="cannot write to") as caught:
        TensorBoard(tmp_path).on_start(RECIPE, 1, {}, None)
    assert "\n" not in str(caught.value)


FULL = """
import resource, signal, sys, threading
from pathlib import Path
from pellucid.errors import PellucidError
from pellucid.training.callbacks.tensorboard import TensorBoard
from tests.training.test_callbacks import step

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
callback = TensorBoard(Path(sys.argv[1]))
callback.on_start(None, 1, {}, None)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
for work in (lambda: [callback.on_step(step(n)) for n in range(500)], lambda: callback.on_end({})):
    try:
        work()
        callback.on_save(Path("step"))
    except PellucidError as error:
        print(error)
assert threading.excepthook is threading.__excepthook__
"""


def test_a_disk_that_fills_is_one_clear_error_too(tmp_path: Path) -> None:
    code = [sys.executable, "-c", FULL, str(tmp_path)]
    run = subprocess.run(code, check=True, capture_output=True, text=True, timeout=300)
    line = f"cannot write to {tmp_path / EVENTS}: File too large"
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
    assert isinstance(default_callbacks(tmp_path, console(terminal=True))[0], LivePanel)
    assert isinstance(default_callbacks(tmp_path, console())[0], PlainLog)
    ascii_only = Console(file=io.TextIOWrapper(io.BytesIO(), "ascii"), force_terminal=True)
    assert isinstance(default_callbacks(tmp_path, ascii_only)[0], PlainLog)


def test_lines_say_all_that_matters() -> None:
    place = console()
    lines = [PlainLog(place, seconds=0)]
    train(lines, 1, 5)
    finish(lines)
    text = place.file.getvalue()
    for part in (
        "A [bold]toy[/bold]: 12,345 parameters, 120 pairs",
        "step 5 of 100",
        "loss 1.000",
        "perplexity 2.718",
        "learning rate 1.00e-03",
        "2,000 tokens/s",
        "62% MFU",
        "48 s left",
        "validation at step 5: loss 2.000, perplexity 7.389, BLEU 31.2, chrF 55.5 (best so far)",
        "saved step-00000005",
        "BLEU: 31.25",
    ):
        assert part in text, part
    assert "nothing" not in text
    assert "[red]tout[/red]" in text
    assert not any(ord(c) < 32 for c in text.replace("\n", ""))


def test_few_lines_for_many_steps() -> None:
    place = console()
    train([PlainLog(place, seconds=1000)], 1, 4)
    assert place.file.getvalue().count("step ") == 1


def test_lines_do_not_fail_where_letters_are_missing() -> None:
    raw = io.BytesIO()
    place = Console(file=io.TextIOWrapper(raw, "ascii"), width=100)
    lines = PlainLog(place)
    lines.on_message("Ça va — déjà 42 %")
    place.file.flush()
    assert raw.getvalue() == b"?a va ? d?j? 42 %\n"


@pytest.mark.parametrize(("width", "height"), [(120, 50), (80, 24), (60, 20), (30, 10)])
def test_the_panel_fits_the_screen(width: int, height: int) -> None:
    place = console(terminal=True, width=width, height=height)
    panel = LivePanel(place)
    train([panel], 1, 10)
    paper = console(width=width, height=height)  # the same without the control of the cursor
    paper.print(panel._panel())
    drawn = paper.file.getvalue().splitlines()
    assert all(len(line) <= width for line in drawn)
    if width >= 60:
        text = "\n".join(drawn)
        for part in ("step 10 of 100", "perplexity 1.649", "MFU 62%", "left 63 s", "▁"):
            assert part in text, part
        if height >= 24:
            assert "translation Bon [31mjour" in text
        assert len(drawn) <= height
    assert "\x1b[31mjour" not in place.file.getvalue()
    finish([panel])
    assert panel._live is None


def test_time_left_counts_validations_and_stops_at_the_minutes() -> None:
    place = console(terminal=True)
    panel = LivePanel(place)
    recipe = SimpleNamespace(title="", training=SimpleNamespace(minutes=1.0))
    panel.on_start(recipe, 1, {}, None)
    assert panel._throughput.left is None
    panel.on_step(step(1, seconds=1.0))
    assert panel._throughput.left == pytest.approx(59)  # the minute ends before the 99 steps
    panel.on_end({})


def test_a_resumed_run_goes_on_counting_time(tmp_path: Path) -> None:
    train([MetricsFile(tmp_path)], 1, 10)
    lines = PlainLog(console(), tmp_path)
    lines.on_start(RECIPE, 1, {}, 10)
    assert lines._throughput.elapsed == pytest.approx(7.0)
