"""What a person sees of a run: a live panel on a terminal, plain lines anywhere else."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.training.callbacks.callback import Callback, Sample, StepReport, ValidationReport
from pellucid.training.callbacks.formatting import (
    beginning,
    harmless,
    scores_of,
    step_facts,
    summary_lines,
)
from pellucid.training.callbacks.metrics_file import Metrics
from pellucid.training.callbacks.panel import Panel
from pellucid.training.callbacks.tensorboard import Events
from pellucid.training.callbacks.throughput import Pace

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Callback", "Lines", "Panel", "Sample", "StepReport", "ValidationReport", "watchers_for"]

LINE_SECONDS = 10.0


def watchers_for(run_folder: Path, console: Console | None) -> list[Callback]:
    """Everything that watches a run by default: the console, metrics.jsonl and TensorBoard.

    Without a console only the files are written. The watchers' files are in `run_folder`.
    """
    if console is None:
        return [Metrics(run_folder), Events(run_folder)]
    drawable = console.is_terminal and not console.is_dumb_terminal and _has_unicode(console)
    seen: Callback = Panel(console, run_folder) if drawable else Lines(console, run_folder)
    return [seen, Metrics(run_folder), Events(run_folder, seen.said)]


def _has_unicode(console: Console) -> bool:
    return (console.encoding or "").lower().startswith("utf")


class Lines:
    """A watcher that prints plain lines: one for a step every ten seconds, all validations."""

    def __init__(
        self, console: Console, run_folder: Path | None = None, seconds: float = LINE_SECONDS
    ) -> None:
        self.console = console
        self.seconds = seconds
        self.run_folder = run_folder
        self._pace = Pace()
        self._last = -math.inf

    def started(
        self,
        recipe: Any,
        model_parameters: int,
        prepared_report: Mapping[str, Any],
        resumed_from: int | None,
    ) -> None:
        """One line about what begins."""
        self._pace.start(recipe, resumed_from, self.run_folder)
        self._print(beginning(recipe, model_parameters, prepared_report, resumed_from))

    def stepped(self, report: StepReport) -> None:
        """A line, if the last one is ten seconds old."""
        self._pace.add(report)
        now = time.monotonic()
        if now - self._last >= self.seconds or report.step == report.total_steps:
            self._last = now
            self._print("  ".join(step_facts(report, self._pace)))

    def validated(self, report: ValidationReport) -> None:
        """A line with the scores, and the samples."""
        self._pace.pause(report.seconds)
        self._print(f"validation at step {report.step:,}: {scores_of(report)}")
        for sample in report.samples:
            self._print(f"  source       {sample.source}")
            self._print(f"  reference    {sample.reference}")
            self._print(f"  translation  {sample.translation}")

    def saved(self, path: Path) -> None:
        """Which checkpoint."""
        self._print(f"saved {path.name}")

    def said(self, line: str) -> None:
        """The line."""
        self._print(line)

    def finished(self, summary: Mapping[str, Any]) -> None:
        """What came of it, a line each."""
        for line in summary_lines(summary):
            self._print(line)

    def _print(self, line: str) -> None:
        # what the console's encoding lacks becomes a question mark: watching must not fail
        encoding = self.console.encoding or "utf-8"
        shown = harmless(line).encode(encoding, "replace").decode(encoding)
        self.console.print(shown, markup=False, highlight=False, emoji=False, soft_wrap=True)
