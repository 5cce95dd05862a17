"""The callbacks of a run: a live panel on a terminal, plain log lines anywhere else."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.console.formatting import sanitize_line
from pellucid.training.callbacks.callback import Callback, StepReport, ValidationReport
from pellucid.training.callbacks.live_panel import LivePanel
from pellucid.training.callbacks.metrics_file import MetricsFile
from pellucid.training.callbacks.run_facts import (
    score_line,
    start_line,
    step_facts,
    summary_lines,
)
from pellucid.training.callbacks.tensorboard import TensorBoard
from pellucid.training.callbacks.throughput import Throughput

if TYPE_CHECKING:
    from rich.console import Console

LINE_SECONDS = 10.0


def default_callbacks(run_folder: Path, console: Console | None) -> list[Callback]:
    """Return the callbacks of a run: the console, metrics.jsonl and TensorBoard.

    Without a console only the files are written, into `run_folder`.
    """
    if console is None:
        return [MetricsFile(run_folder), TensorBoard(run_folder)]
    drawable = console.is_terminal and not console.is_dumb_terminal and _has_unicode(console)
    shown: Callback = LivePanel(console, run_folder) if drawable else PlainLog(console, run_folder)
    return [shown, MetricsFile(run_folder), TensorBoard(run_folder, shown.on_message)]


def _has_unicode(console: Console) -> bool:
    return (console.encoding or "").lower().startswith("utf")


class PlainLog(Callback):
    """Callback that prints plain lines: a step every ten seconds, and every validation."""

    def __init__(
        self, console: Console, run_folder: Path | None = None, seconds: float = LINE_SECONDS
    ) -> None:
        self.console = console
        self.seconds = seconds
        self.run_folder = run_folder
        self._throughput = Throughput()
        self._printed_at = -math.inf

    def on_start(
        self,
        recipe: Any,
        model_parameters: int,
        prepared_report: Mapping[str, Any],
        resumed_from: int | None,
    ) -> None:
        """Print a line about the run."""
        self._throughput.start(recipe, resumed_from, self.run_folder)
        self._print(start_line(recipe, model_parameters, prepared_report, resumed_from))

    def on_step(self, report: StepReport) -> None:
        """Print a line, if the last one is ten seconds old."""
        self._throughput.add(report)
        now = time.monotonic()
        if now - self._printed_at >= self.seconds or report.step == report.total_steps:
            self._printed_at = now
            self._print("  ".join(step_facts(report, self._throughput)))

    def on_validation(self, report: ValidationReport) -> None:
        """Print a line with the scores, and the samples."""
        self._throughput.pause(report.seconds)
        self._print(f"validation at step {report.step:,}: {score_line(report)}")
        for sample in report.samples:
            self._print(f"  source       {sample.source}")
            self._print(f"  reference    {sample.reference}")
            self._print(f"  translation  {sample.translation}")

    def on_save(self, path: Path) -> None:
        """Print the name of the checkpoint."""
        self._print(f"saved {path.name}")

    def on_message(self, line: str) -> None:
        """Print the line."""
        self._print(line)

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """Print the results, one per line."""
        for line in summary_lines(summary):
            self._print(line)

    def _print(self, line: str) -> None:
        # characters that the console's encoding lacks become question marks: logging must not fail
        encoding = self.console.encoding or "utf-8"
        shown = sanitize_line(line).encode(encoding, "replace").decode(encoding)
        self.console.print(shown, markup=False, highlight=False, emoji=False, soft_wrap=True)
