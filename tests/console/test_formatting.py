"""Numbers, durations and sparklines as text, and lines that are safe to print."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.console.formatting import (
    format_duration,
    format_number,
    sanitize_line,
    sparkline,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (89, "89 s"), (90, "2 min"), (5000, "83 min"), (5400, "1 h 30"),
     (86400, "24 h 00"), (3 * 86400, "3.0 days")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200), st.integers(1, 50))
def test_a_sparkline_has_its_width(values: list[float], width: int) -> None:
    line = sparkline(values, width)
    assert len(line) == min(width, len(values))
    assert set(line) <= set("▁▂▃▄▅▆▇█")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.31494, "0.3149"), (12.0, "12"), (4912.3, "4,912"), (2.5e7, "2.50e+07"),
     (float("inf"), "inf"), (float("nan"), "nan")],
)  # fmt: skip
def test_numbers(value: float, text: str) -> None:
    assert format_number(value) == text


@given(st.text())
def test_a_printed_line_cannot_steer_a_terminal(text: str) -> None:
    line = sanitize_line(text)
    assert len(line) == len(text)
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u2028\u2029" for c in line)
    line.encode()
