"""What is said of a run, in words: for the panel, for plain lines, for the report."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from pellucid.training.callbacks.callback import StepReport, ValidationReport
from pellucid.training.callbacks.throughput import Pace

SPARKS = "▁▂▃▄▅▆▇█"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def fact_table(report: StepReport, pace: Pace) -> list[tuple[str, str, str]]:
    """Name, value and style of what is worth knowing about a run now."""
    of = f" of {report.total_steps:,}" if report.total_steps else ""
    facts = [
        ("step", f"{report.step:,}{of}", "bold"),
        ("epoch", f"{report.epoch:.2f}", ""),
        ("loss", f"{report.loss:.3f}", "bold cyan"),
        ("perplexity", number(report.perplexity), "bold cyan"),
        ("rate", f"{report.learning_rate:.2e}", ""),
        ("gradient", f"{report.grad_norm:.2f}", ""),
        ("tokens/s", f"{pace.tokens_per_second:,.0f}", ""),
    ]
    if pace.flops_share is not None:
        facts.append(("of peak", f"{pace.flops_share:.0%}", ""))
    if pace.waiting >= 0.02:
        facts.append(("waiting for data", f"{pace.waiting:.0%}", "yellow"))
    facts.append(("so far", duration(pace.elapsed), ""))
    if pace.left is not None:
        facts.append(("left", duration(pace.left), "bold"))
    return facts


def step_facts(report: StepReport, pace: Pace) -> list[str]:
    """The same as words, for a plain line."""
    after = {"tokens/s", "of peak", "so far", "left"}
    return [
        f"{value} {name}" if name in after else f"{name} {value}"
        for name, value, _ in fact_table(report, pace)
    ]


def beginning(
    recipe: Any,
    model_parameters: int,
    prepared_report: Mapping[str, Any],
    resumed_from: int | None,
) -> str:
    """What a run is, as it begins."""
    title = getattr(recipe, "title", "") or "training"
    train = prepared_report.get("train")
    pairs = f", {train['kept']:,} pairs" if isinstance(train, Mapping) and "kept" in train else ""
    on = f", going on from step {resumed_from:,}" if resumed_from is not None else ""
    return f"{title}: {model_parameters:,} parameters{pairs}{on}"


def scores_of(report: ValidationReport) -> str:
    """The scores of a validation."""
    scores = [f"loss {report.loss:.3f}", f"perplexity {number(report.perplexity)}"]
    if report.bleu is not None:
        scores.append(f"BLEU {report.bleu:.1f}")
    if report.chrf is not None:
        scores.append(f"chrF {report.chrf:.1f}")
    return ", ".join(scores) + (" (the best so far)" if report.best else "")


def summary_lines(summary: Mapping[str, Any]) -> list[str]:
    """What came of a run, a line each."""
    return [f"{name}: {_said(value)}" for name, value in summary.items() if value is not None]


def _said(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else number(value)


def number(value: float) -> str:
    """A number with about four digits that matter."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 1e6:
        return f"{value:.2e}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def harmless(line: str) -> str:
    """One line without control characters: what a model writes must not steer a terminal."""
    return _CONTROL.sub(" ", line).encode("utf-8", "replace").decode()


def duration(seconds: float) -> str:
    """A time as a person says it: 42 s, 7 min, 3 h 05, 2.5 days."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d}"
    return f"{seconds / 86400:.1f} days"


def sparkline(values: list[float], width: int) -> str:
    """Numbers as a row of bars, each the mean of its share of them."""
    width = min(width, len(values))
    means = []
    for place in range(width):
        part = values[place * len(values) // width : (place + 1) * len(values) // width]
        means.append(sum(part) / len(part))
    low, high = min(means), max(means)
    span = (high - low) or 1.0
    return "".join(SPARKS[round((mean - low) / span * (len(SPARKS) - 1))] for mean in means)
