"""Numbers, durations and curves as short text, and text that is safe to print on a terminal."""

from __future__ import annotations

import math
import re

SPARKS = "▁▂▃▄▅▆▇█"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def format_number(value: float) -> str:
    """Format a number with about four significant digits."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 1e6:
        return f"{value:.2e}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def format_duration(seconds: float) -> str:
    """Format a duration as a person says it: 42 s, 7 min, 3 h 05, 2.5 days."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d}"
    return f"{seconds / 86400:.1f} days"


def sparkline(values: list[float], width: int) -> str:
    """Draw numbers as a row of bars; each bar is the mean of an equal share of them."""
    width = min(width, len(values))
    means = []
    for column in range(width):
        part = values[column * len(values) // width : (column + 1) * len(values) // width]
        means.append(sum(part) / len(part))
    low, high = min(means), max(means)
    span = (high - low) or 1.0
    return "".join(SPARKS[round((mean - low) / span * (len(SPARKS) - 1))] for mean in means)


def sanitize_line(text: str) -> str:
    """Make text one line without control characters: model output must not steer a terminal."""
    return _CONTROL.sub(" ", text).encode("utf-8", "replace").decode()
