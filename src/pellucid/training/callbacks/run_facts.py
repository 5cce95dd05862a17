"""Facts about a training run as text, for the live panel and for plain log lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pellucid.console.formatting import format_duration, format_number
from pellucid.training.callbacks.callback import StepReport, ValidationReport
from pellucid.training.callbacks.throughput import Throughput


def fact_table(report: StepReport, throughput: Throughput) -> list[tuple[str, str, str]]:
    """Return name, value and rich style of each fact about a step."""
    of = f" of {report.total_steps:,}" if report.total_steps else ""
    facts = [
        ("step", f"{report.step:,}{of}", "bold"),
        ("epoch", f"{report.epoch:.2f}", ""),
        ("loss", f"{report.loss:.3f}", "bold cyan"),
        ("perplexity", format_number(report.perplexity), "bold cyan"),
        ("learning rate", f"{report.learning_rate:.2e}", ""),
        ("grad norm", f"{report.grad_norm:.2f}", ""),
        ("tokens/s", f"{throughput.tokens_per_second:,.0f}", ""),
    ]
    if throughput.mfu is not None:
        facts.append(("MFU", f"{throughput.mfu:.0%}", ""))
    if throughput.data_share >= 0.02:
        facts.append(("waiting for data", f"{throughput.data_share:.0%}", "yellow"))
    facts.append(("elapsed", format_duration(throughput.elapsed), ""))
    if throughput.left is not None:
        facts.append(("left", format_duration(throughput.left), "bold"))
    return facts


def step_facts(report: StepReport, throughput: Throughput) -> list[str]:
    """Return the same facts as words for a plain line."""
    name_last = {"tokens/s", "MFU", "elapsed", "left"}
    return [
        f"{value} {name}" if name in name_last else f"{name} {value}"
        for name, value, _ in fact_table(report, throughput)
    ]


def start_line(
    recipe: Any,
    model_parameters: int,
    prepared_report: Mapping[str, Any],
    resumed_from: int | None,
) -> str:
    """Describe a run as it starts."""
    title = getattr(recipe, "title", "") or "training"
    train = prepared_report.get("train")
    pairs = f", {train['kept']:,} pairs" if isinstance(train, Mapping) and "kept" in train else ""
    resumed = f", resuming from step {resumed_from:,}" if resumed_from is not None else ""
    return f"{title}: {model_parameters:,} parameters{pairs}{resumed}"


def score_line(report: ValidationReport) -> str:
    """Return the scores of a validation on one line."""
    scores = [f"loss {report.loss:.3f}", f"perplexity {format_number(report.perplexity)}"]
    if report.bleu is not None:
        scores.append(f"BLEU {report.bleu:.1f}")
    if report.chrf is not None:
        scores.append(f"chrF {report.chrf:.1f}")
    return ", ".join(scores) + (" (best so far)" if report.best else "")


def summary_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return the results of a run, one per line."""
    return [f"{name}: {_as_text(value)}" for name, value in summary.items() if value is not None]


def _as_text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else format_number(value)
