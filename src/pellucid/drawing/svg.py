"""Curves and attention maps as SVG, for a page that brings its own colours.

The colours are CSS variables and `currentColor`, so one chart serves light, dark and print. All
text is escaped.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 520, 280
LEFT, RIGHT, TOP, BOTTOM = 58, 16, 30, 42
MAX_POINTS = 240  # of a curve; more are averaged, with a band from the lowest to the highest
LARGEST = 1e100  # larger values are left out, like NaN and infinity
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

Point = tuple[float, float]


@dataclass(frozen=True)
class Curve:
    """Points of one colour; `colour` is the number of a CSS variable."""

    name: str
    points: Sequence[Point]
    colour: int = 1
    dots: bool = False
    """Mark each point, if there are few."""


def escaped(text: object) -> str:
    """Escape text for HTML or SVG; control characters become U+FFFD."""
    return html.escape(_CONTROL.sub("\ufffd", str(text)))


def short_number(value: float) -> str:
    """Format a number for an axis: 20k, 1.5M, 0.002, 1e-05."""
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:.4g}M"
    if size >= 1e4:
        return f"{value / 1e3:.4g}k"
    return f"{value:.4g}"


def ticks(low: float, high: float, count: int = 6) -> list[float]:
    """Return round numbers from low to high, at most `count`."""
    if not high > low:
        return [low]
    for exponent in range(math.floor(math.log10(high - low)) - 2, 400):
        for digit in (1, 2, 5):
            step = digit * 10.0**exponent
            first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
            if last - first < count:
                return [number * step for number in range(first, last + 1)]
    return [low]


def log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten, with multiples between them if there are few."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        found = [d * 10.0**e for e in exponents for d in digits if low <= d * 10.0**e <= high]
        if len(found) >= 3:
            return found
    return ticks(low, high)


def line_chart(
    title: str,
    curves: Sequence[Curve],
    x_label: str,
    *,
    log: bool = False,
    from_zero: bool = False,
) -> str:
    """Draw curves. Points that are NaN or infinite (or not positive, if `log`) are left out."""
    usable = [(curve, _usable(curve.points, log)) for curve in curves]
    usable = [(curve, points) for curve, points in usable if points]
    if not usable:
        return ""
    frame = Frame([p for _, points in usable for p in points], log, from_zero)
    parts = frame.axes(x_label)
    for curve, points in usable:
        parts += _drawn(curve, points, frame)
    return chart(title, [*parts, *legend((curve.name, curve.colour) for curve, _ in usable)])


def chart(title: str, parts: Iterable[str]) -> str:
    """Return the SVG around axes, curves and bars."""
    opening = f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escaped(title)}"'
    heading = f'<text class="title" x="{LEFT}" y="16">{escaped(title)}</text>'
    return "".join([f'<svg class="chart" {opening}>{heading}', *parts, "</svg>"])


class Frame:
    """Maps values to positions in the chart, and draws the axes."""

    def __init__(self, points: Sequence[Point], log: bool, from_zero: bool) -> None:
        xs, ys = [x for x, _ in points], [y for _, y in points]
        self.log = log
        self.x_low, self.x_high = min(0.0, *xs) if len(xs) > 1 else 0.0, max(xs)
        self.y_low, self.y_high = 0.0 if from_zero else min(ys), max(ys)
        if self.x_high <= self.x_low:
            self.x_high = self.x_low + 1
        if log:
            margin = max(1.05, (self.y_high / self.y_low) ** 0.05)
            self.y_low, self.y_high = self.y_low / margin, self.y_high * margin
        else:
            margin = (self.y_high - self.y_low) * 0.06 or abs(self.y_high) * 0.1 or 1.0
            floor = 0.0 if self.y_low >= 0 else -math.inf
            self.y_low, self.y_high = max(floor, self.y_low - margin), self.y_high + margin

    def x(self, value: float) -> float:
        """Return the horizontal position of a value."""
        share = (value - self.x_low) / (self.x_high - self.x_low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Return the vertical position of a value."""
        low, high = self.y_low, self.y_high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    def axes(self, x_label: str) -> list[str]:
        """Draw both axes, with their numbers."""
        return [*self.y_ticks(), *self.x_ticks(), *self.baseline(x_label)]

    def y_ticks(self) -> list[str]:
        """Draw horizontal grid lines with their values."""
        levels = log_ticks if self.log else ticks
        return [
            f'<path class="grid" d="M{LEFT} {self.y(value):.1f}H{WIDTH - RIGHT}"/>'
            f'<text class="tick" x="{LEFT - 8}" y="{self.y(value) + 3.5:.1f}" text-anchor="end">'
            f"{short_number(value)}</text>"
            for value in levels(self.y_low, self.y_high)
        ]

    def x_ticks(self) -> list[str]:
        """Draw the values along the x axis."""
        bottom = HEIGHT - BOTTOM
        return [
            f'<path class="grid" d="M{self.x(value):.1f} {bottom}v4"/>'
            f'<text class="tick" x="{self.x(value):.1f}" y="{bottom + 17}" text-anchor="middle">'
            f"{short_number(value)}</text>"
            for value in ticks(self.x_low, self.x_high, count=8)
        ]

    def baseline(self, x_label: str) -> list[str]:
        """Draw the x axis and its label."""
        return [
            f'<path class="axis" d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>'
            f'<text class="tick" x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 6}" '
            f'text-anchor="middle">{escaped(x_label)}</text>'
        ]


def _usable(points: Sequence[Point], log: bool) -> list[Point]:
    return [
        (x, y)
        for x, y in points
        if abs(x) <= LARGEST and abs(y) <= LARGEST and (not log or y >= 1 / LARGEST)
    ]


def _drawn(curve: Curve, points: list[Point], frame: Frame) -> list[str]:
    style = f'style="--c:var(--c{curve.colour})"'
    parts = []
    if len(points) > MAX_POINTS:
        groups = [
            points[number * len(points) // MAX_POINTS : (number + 1) * len(points) // MAX_POINTS]
            for number in range(MAX_POINTS)
        ]
        xs = [sum(x for x, _ in group) / len(group) for group in groups]
        highs = [(x, max(y for _, y in group)) for x, group in zip(xs, groups, strict=True)]
        lows = [(x, min(y for _, y in group)) for x, group in zip(xs, groups, strict=True)]
        parts.append(f'<path class="band" {style} d="{_path([*highs, *lows[::-1]], frame)}Z"/>')
        points = [
            (x, sum(y for _, y in group) / len(group)) for x, group in zip(xs, groups, strict=True)
        ]
    if len(points) > 1:
        parts.append(f'<path class="line" {style} d="{_path(points, frame)}"/>')
    if (curve.dots and len(points) <= 60) or len(points) == 1:
        parts += [
            f'<circle class="dot" {style} cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" r="3">'
            f"<title>{escaped(curve.name)}: {short_number(y)} at {short_number(x)}</title></circle>"
            for x, y in points
        ]
    return parts


def _path(points: Sequence[Point], frame: Frame) -> str:
    return "M" + "L".join(f"{frame.x(x):.1f} {frame.y(y):.1f}" for x, y in points)


def legend(named: Iterable[tuple[str, int]]) -> list[str]:
    """Draw the names of series, given with their colours, from the right."""
    parts = []
    right = float(WIDTH - RIGHT)
    for name, colour in reversed([one for one in named if one[0]]):
        right -= 6.5 * len(name) + 30
        parts.append(
            f'<path class="line" style="--c:var(--c{colour})" d="M{right:.0f} 12h14"/>'
            f'<text class="tick" x="{right + 18:.0f}" y="16">{escaped(name)}</text>'
        )
    return parts


def attention_map(
    title: str, source: Sequence[str], target: Sequence[str], weights: Sequence[Sequence[float]]
) -> str:
    """Draw attention weights: rows are target tokens, columns source tokens; darker is more."""
    cell = 20
    left = 12 + 7 * max(len(token) for token in target)
    top = 30 + 6 * max(len(token) for token in source)
    width, height = left + cell * len(source) + 30, top + cell * len(target) + 6
    parts = [
        f'<svg class="map" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escaped(title)}">',
        f'<text class="title" x="0" y="14">{escaped(title)}</text>',
    ]
    for column, token in enumerate(source):
        x = left + cell * column + cell / 2
        parts.append(
            f'<text class="tick" transform="translate({x + 3:.0f} {top - 6}) rotate(-60)">'
            f"{escaped(token)}</text>"
        )
    for row, token in enumerate(target):
        y = top + cell * row
        parts.append(
            f'<text class="tick" x="{left - 6}" y="{y + 14}" text-anchor="end">'
            f"{escaped(token)}</text>"
        )
        for column, weight in enumerate(weights[row]):
            share = min(1.0, max(0.0, float(weight))) if math.isfinite(weight) else 0.0
            parts.append(
                f'<rect class="cell" x="{left + cell * column}" y="{y}" width="{cell - 1}" '
                f'height="{cell - 1}"><title>{escaped(token)} → {escaped(source[column])}: '
                f"{share:.2f}</title></rect>"
            )
            if share >= 0.005:
                parts.append(
                    f'<rect class="weight" x="{left + cell * column}" y="{y}" '
                    f'width="{cell - 1}" height="{cell - 1}" opacity="{share:.2f}"/>'
                )
    return "".join([*parts, "</svg>"])
