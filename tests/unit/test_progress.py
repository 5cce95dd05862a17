"""What watches a run: the panel, plain lines, metrics.jsonl and TensorBoard's events."""

import io
import json
import math
import struct
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pellucid.errors import PellucidError
from pellucid.training import events
from pellucid.training.metrics import CLOCK, METRICS, Metrics, read_metrics
from pellucid.training.progress import (
    Lines,
    Panel,
    Sample,
    StepReport,
    ValidationReport,
    Watcher,
    watchers_for,
)
from pellucid.training.wording import duration, sparkline

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
        rate=1e-3,
        gradient_norm=1.5,
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


def watch(watchers: list[Watcher], first: int, last: int, resumed_from: int | None = None) -> None:
    """A run of some steps, with a validation and a checkpoint after every fifth."""
    for watcher in watchers:
        watcher.started(RECIPE, 12345, DATA, resumed_from)
    for number in range(first, last + 1):
        for watcher in watchers:
            watcher.stepped(step(number, loss=5 / number))
            if number % 5 == 0:
                watcher.validated(validation(number))
                watcher.saved(Path("checkpoints") / f"step-{number:08}")


def finish(watchers: list[Watcher]) -> None:
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


# Events: read back by a reader that shares nothing with the writer.


def records(data: bytes) -> list[bytes]:
    found, place = [], 0
    while place < len(data):
        (length,) = struct.unpack_from("<Q", data, place)
        (check,) = struct.unpack_from("<I", data, place + 8)
        message = data[place + 12 : place + 12 + length]
        (check_message,) = struct.unpack_from("<I", data, place + 12 + length)
        assert check == bitwise_masked(data[place : place + 8])
        assert check_message == bitwise_masked(message)
        found.append(message)
        place += 16 + length
    return found


def bitwise_masked(data: bytes) -> int:
    """CRC-32C by long division, bit by bit, and TFRecord's mask."""
    crc = 0xFFFFFFFF
    for byte in data:
        for bit in range(8):
            low = (crc ^ byte >> bit) & 1
            crc >>= 1
            if low:
                crc ^= 0x82F63B78
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17) & 0xFFFFFFFF) + 0xA282EAD8) % 2**32


def fields(message: bytes) -> list[tuple[int, object]]:
    """The fields of a protocol buffer message, as numbers and bytes."""

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    found: list[tuple[int, object]] = []
    place = 0
    while place < len(message):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            found.append((number, varint()))
        elif kind == 1:
            found.append((number, struct.unpack_from("<d", message, place)[0]))
            place += 8
        elif kind == 5:
            found.append((number, struct.unpack_from("<f", message, place)[0]))
            place += 4
        else:
            assert kind == 2
            length = varint()
            found.append((number, message[place : place + length]))
            place += length
    return found


def scalars(folder: Path) -> dict[tuple[str, int], float]:
    found = {}
    for path in sorted((folder / events.EVENTS).iterdir()):
        for message in records(path.read_bytes()):
            event = dict(fields(message))
            for number, summary in fields(event.get(5, b"")):  # type: ignore[arg-type]
                assert number == 1
                value = dict(fields(summary))  # type: ignore[arg-type]
                if 2 in value:
                    found[value[1].decode(), event[2]] = value[2]  # type: ignore[attr-defined]
    return found  # type: ignore[return-value]


def test_the_checksum_is_castagnolis() -> None:
    assert events.crc32c(b"123456789") == 0xE3069283
    assert events.crc32c(bytes(32)) == 0x8A9136AA
    assert events.crc32c(b"\xff" * 32) == 0x62A8AB43


@given(st.binary(max_size=60))
def test_records_check_out(data: bytes) -> None:
    assert records(events.record(data) * 2) == [data, data]


@given(st.integers(0, 2**40), st.text(max_size=30), st.floats(width=32, allow_nan=False))
def test_a_scalar_reads_back(number: int, tag: str, value: float) -> None:
    message = events.event(number, [events.scalar(tag, value)], 12.5)
    (wall, when, summary) = fields(message)
    assert wall == (1, 12.5)
    assert when == (2, number)
    assert summary[0] == 5
    ((_, inner),) = fields(summary[1])  # type: ignore[arg-type]
    assert fields(inner) == [(1, tag.encode()), (2, value)]  # type: ignore[arg-type]


def test_tensorboard_gets_the_curves_and_the_samples(tmp_path: Path) -> None:
    watchers: list[Watcher] = [events.Events(tmp_path)]
    watch(watchers, 1, 5)
    finish(watchers)
    found = scalars(tmp_path)
    assert found["train/loss", 2] == 2.5
    assert found["train/tokens_per_second", 5] == 2000
    assert found["valid/BLEU", 5] == 31.25
    (path,) = (tmp_path / events.EVENTS).iterdir()
    assert "tfevents" in path.name
    messages = [dict(fields(message)) for message in records(path.read_bytes())]
    assert messages[0][3] == b"brain.Event:2"
    assert HOSTILE.encode() in path.read_bytes()
    assert all(7 not in message for message in messages)


def test_a_resumed_run_hides_the_steps_after_it(tmp_path: Path) -> None:
    events.Events(tmp_path).started(RECIPE, 1, {}, None)
    resumed = events.Events(tmp_path)
    resumed.started(RECIPE, 1, {}, 7)
    resumed.stepped(step(8))
    resumed.finished({})
    paths = sorted((tmp_path / events.EVENTS).iterdir())
    assert len(paths) == 2
    session = dict(fields(records(paths[1].read_bytes())[1]))
    assert session[2] == 8  # the first step that is this file's
    assert fields(session[7]) == [(1, 1)]  # type: ignore[arg-type]


def test_huge_numbers_do_not_break_the_events(tmp_path: Path) -> None:
    watcher = events.Events(tmp_path)
    watcher.started(RECIPE, 1, {}, None)
    watcher.stepped(step(1, loss=1e4))
    watcher.finished({})
    assert math.isinf(scalars(tmp_path)["train/perplexity", 1])


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
