"""Bar charts, histograms and scatter plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pellucid.drawing.svg import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Frame,
    Point,
    chart,
    escaped,
    legend,
    short_number,
)

COLOURS = 5
"""Number of colours of the page."""

MAX_DOTS = 3000
"""Maximum number of dots of a scatter plot; of more, an even sample is drawn."""


@dataclass(frozen=True)
class Series:
    """Values of one colour."""

    name: str
    values: Sequence[float]
    colour: int = 1


def colour_of(number: int) -> int:
    """Return the colour of a series by its number, from 0; colours repeat after the last."""
    return number % COLOURS + 1


def bar_chart(title: str, labels: Sequence[str], series: Sequence[Series], x_label: str) -> str:
    """Draw for each label a bar of each series, from 0."""
    if not labels or not series:
        return ""
    values = [value for one in series for value in one.values if math.isfinite(value)]
    frame = Frame([(0.0, value) for value in (*values, 0.0)], False, False)
    slot = (WIDTH - LEFT - RIGHT) / len(labels)
    width = min(0.8 * slot / len(series), 34.0)
    parts = frame.y_ticks()
    for index, label in enumerate(labels):
        middle = LEFT + slot * (index + 0.5)
        parts.append(
            f'<text class="tick" x="{middle:.1f}" y="{HEIGHT - BOTTOM + 17}" '
            f'text-anchor="middle">{escaped(label)}</text>'
        )
        for number, one in enumerate(series):
            value = one.values[index]
            if not math.isfinite(value):
                continue
            top, bottom = sorted((frame.y(value), frame.y(0)))
            x = middle + width * (number - len(series) / 2)
            parts.append(
                f'<rect class="bar" style="--c:var(--c{one.colour})" x="{x:.1f}" y="{top:.1f}" '
                f'width="{max(width - 1.5, 1):.1f}" height="{bottom - top:.1f}">'
                f"<title>{escaped(one.name)}, {escaped(label)}: {short_number(value)}</title>"
                "</rect>"
            )
    names = legend((one.name, one.colour) for one in series) if len(series) > 1 else []
    return chart(title, [*parts, *frame.baseline(x_label), *names])


def histogram(
    title: str,
    series: Sequence[Series],
    x_label: str,
    *,
    low: float | None = None,
    high: float | None = None,
    bins: int = 20,
    line_at: float | None = None,
) -> str:
    """Draw a histogram as an area for each series; `line_at` adds a vertical line."""
    usable = [
        Series(one.name, [v for v in one.values if math.isfinite(v)], one.colour) for one in series
    ]
    values = [value for one in usable for value in one.values]
    if not values:
        return ""
    low = min(values) if low is None else low
    high = max(values) if high is None else high
    width = ((high - low) or 1.0) / bins
    steps = [(one, _steps(one.values, low, width, bins)) for one in usable]
    ends = [(low, 0.0), (low + bins * width, 0.0)]
    if line_at is not None:
        ends.append((line_at, 0.0))
    frame = Frame([*ends, *(point for _, points in steps for point in points)], False, True)
    parts = frame.axes(x_label)
    for one, points in steps:
        path = "M" + "L".join(f"{frame.x(x):.1f} {frame.y(y):.1f}" for x, y in points)
        style = f'style="--c:var(--c{one.colour})"'
        parts.append(f'<path class="band" {style} d="{path}Z"/>')
        parts.append(f'<path class="line" {style} d="{path}"/>')
    if line_at is not None:
        x = frame.x(line_at)
        parts.append(f'<path class="mark" d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}"/>')
    names = legend((one.name, one.colour) for one in usable) if len(usable) > 1 else []
    return chart(title, [*parts, *names])


def scatter_plot(
    title: str, points: Sequence[Point], x_label: str, *, highlighted: Sequence[int] = ()
) -> str:
    """Draw points over two axes with the diagonal; highlighted ones in another colour."""
    if not points:
        return ""
    frame = Frame([(0.0, 0.0), *points], False, True)
    end = min(frame.x_high, frame.y_high)
    parts = frame.axes(x_label)
    parts.append(
        f'<path class="mark" d="M{frame.x(0):.1f} {frame.y(0):.1f}'
        f'L{frame.x(end):.1f} {frame.y(end):.1f}"/>'
    )
    marked = set(highlighted)
    step = max(1, math.ceil(len(points) / MAX_DOTS))
    for index, (x, y) in enumerate(points):
        if index in marked or index % step == 0:
            colour = 2 if index in marked else 1
            parts.append(
                f'<circle class="spot" style="--c:var(--c{colour})" cx="{frame.x(x):.1f}" '
                f'cy="{frame.y(y):.1f}" r="{3 if index in marked else 2}"><title>{index + 1}: '
                f"{short_number(x)}, {short_number(y)}</title></circle>"
            )
    return chart(title, parts)


def _steps(values: Sequence[float], low: float, width: float, bins: int) -> list[Point]:
    """Return the outline of a histogram: two points for each bin, starting and ending at 0."""
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, max(0, int((value - low) / width)))] += 1
    points = [(low, 0.0)]
    for number, count in enumerate(counts):
        start = low + number * width
        points += [(start, float(count)), (low + (number + 1) * width, float(count))]
    return [*points, (low + bins * width, 0.0)]
