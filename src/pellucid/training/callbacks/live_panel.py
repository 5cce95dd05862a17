"""Live view of a training run on a terminal."""

from __future__ import annotations

import atexit
import math
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.console.formatting import sanitize_line, sparkline
from pellucid.training.callbacks.callback import Callback, StepReport, ValidationReport
from pellucid.training.callbacks.metrics_file import METRICS, read_metrics
from pellucid.training.callbacks.run_facts import (
    fact_table,
    score_line,
    start_line,
    summary_lines,
)
from pellucid.training.callbacks.throughput import Throughput

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

REFRESH_SECONDS = 0.25


class LivePanel(Callback):
    """Callback that redraws one panel in place on a terminal.

    It has no thread of its own: it is redrawn when something is reported.
    """

    def __init__(self, console: Console, run_folder: Path | None = None) -> None:
        self.console = console
        self.run_folder = run_folder
        self._throughput = Throughput()
        self._title = "training"
        self._parameters = 0
        self._step: StepReport | None = None
        self._validation: ValidationReport | None = None
        self._losses: deque[float] = deque(maxlen=4096)
        self._saved = ""
        self._drawn_at = -math.inf
        self._live: Live | None = None

    def on_start(
        self,
        recipe: Any,
        model_parameters: int,
        prepared_report: Mapping[str, Any],
        resumed_from: int | None,
    ) -> None:
        """Print a line about the run and open the panel below it."""
        from rich.live import Live

        self._throughput.start(recipe, resumed_from, self.run_folder)
        self._title = sanitize_line(getattr(recipe, "title", "")) or "training"
        self._parameters = model_parameters
        self.on_message(start_line(recipe, model_parameters, prepared_report, resumed_from))
        if resumed_from and self.run_folder is not None and (self.run_folder / METRICS).exists():
            lines = read_metrics(self.run_folder)
            self._losses.extend(
                line["loss"]
                for line in lines
                if line["kind"] == "step" and line["step"] <= resumed_from and line.get("loss")
            )
        self._live = Live(console=self.console, auto_refresh=False, get_renderable=self._panel)
        self._live.start(refresh=True)
        atexit.register(self._close)  # an error must not leave the cursor hidden

    def on_step(self, report: StepReport) -> None:
        """Redraw the panel, at most a few times per second."""
        self._throughput.add(report)
        self._step = report
        if math.isfinite(report.loss):
            self._losses.append(report.loss)
        if time.monotonic() - self._drawn_at >= REFRESH_SECONDS:
            self._draw()

    def on_validation(self, report: ValidationReport) -> None:
        """Show scores and samples in the panel, and print a line above it."""
        self._throughput.pause(report.seconds)
        self._validation = report
        self.on_message(f"validation at step {report.step:,}: {score_line(report)}")
        self._draw()

    def on_save(self, path: Path) -> None:
        """Show the name of the newest checkpoint."""
        self._saved = path.name
        self._draw()

    def on_message(self, line: str) -> None:
        """Print a line above the panel."""
        self.console.print(sanitize_line(line), markup=False, highlight=False, emoji=False)

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """Close the panel and print the results of the run below it."""
        self._draw()
        self._close()
        for line in summary_lines(summary):
            self.on_message(line)

    def _close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
            atexit.unregister(self._close)

    def _draw(self) -> None:
        self._drawn_at = time.monotonic()
        if self._live is not None:
            self._live.refresh()

    def _panel(self) -> RenderableType:
        from rich import box
        from rich.console import Group
        from rich.panel import Panel as Frame
        from rich.text import Text

        width = max(20, self.console.width - 6)
        parts: list[RenderableType] = []
        if self._step is None:
            parts.append(Text("running the first step", style="dim"))
        else:
            parts += self._numbers(self._step, width)
        if self._validation is not None:
            parts += [Text(), *_validation_rows(self._validation, width, self._room_for_samples())]
        if self._saved:
            parts += [Text(), Text(f"saved {self._saved} · Ctrl-C saves and stops", style="dim")]
        return Frame(
            Group(*parts),
            title=Text(self._title, style="bold", overflow="ellipsis"),
            subtitle=Text(f"{self._parameters:,} parameters", style="dim"),
            title_align="left",
            subtitle_align="right",
            padding=(0, 2),
            box=box.ROUNDED,
        )

    def _numbers(self, report: StepReport, width: int) -> list[RenderableType]:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        rows: list[RenderableType] = []
        if report.total_steps:
            bar = Table.grid()  # a bar alone does not end its line
            bar.add_row(ProgressBar(report.total_steps, report.step, width=width))
            rows.append(bar)
        facts = fact_table(report, self._throughput)
        columns = 4 if width >= 92 else 3 if width >= 60 else 2
        table = Table.grid(padding=(0, 3), expand=False)
        for _ in range(columns):
            table.add_column(justify="left", no_wrap=True, overflow="ellipsis")
        cells = [Text.assemble((f"{name} ", "dim"), (value, style)) for name, value, style in facts]
        cells += [Text()] * (-len(cells) % columns)
        for start in range(0, len(cells), columns):
            table.add_row(*cells[start : start + columns])
        rows.append(table)
        if len(self._losses) > 1:
            line = sparkline(list(self._losses), max(8, min(64, width - 8)))
            rows.append(Text.assemble(("loss ", "dim"), (line, "cyan")))
        return rows

    def _room_for_samples(self) -> int:
        """Return how many samples fit below the numbers without leaving the screen."""
        return max(0, (self.console.height - 16) // 4)


def _validation_rows(
    report: ValidationReport, width: int, max_samples: int
) -> list[RenderableType]:
    from rich.text import Text

    heading = Text.assemble(
        ("validation ", "dim"), f"at step {report.step:,}  ", (score_line(report), "bold green")
    )
    heading.truncate(width, overflow="ellipsis")
    rows: list[RenderableType] = [heading]
    for sample in list(report.samples)[:max_samples]:
        rows.append(Text())
        for name, value, style in (
            ("source     ", sample.source, "dim"),
            ("reference  ", sample.reference, "dim"),
            ("translation", sample.translation, "green"),
        ):
            row = Text.assemble((f"{name} ", "dim"), (sanitize_line(value), style))
            row.truncate(width, overflow="ellipsis")
            rows.append(row)
    return rows
