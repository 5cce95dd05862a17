"""Training throughput and the remaining time."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

from pellucid.training.callbacks.callback import StepReport
from pellucid.training.callbacks.metrics_file import read_metrics

RECENT = 50  # steps that the throughput is averaged over


class Throughput:
    """Target tokens per second, MFU, and the remaining time of a run."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self.minutes: float | None = None
        self._recent: deque[tuple[int, StepReport]] = deque(maxlen=RECENT)
        self._last_step = 0
        self._validating = 0.0  # seconds between steps since this start
        self._stepping = 0.0

    def start(self, recipe: Any, resumed_from: int | None, run_folder: Path | None) -> None:
        """Start counting; a resumed run includes the time before."""
        self.minutes = getattr(getattr(recipe, "training", None), "minutes", None)
        self._last_step = resumed_from or 0
        if resumed_from and run_folder is not None:
            earlier = (
                line.get("elapsed") or 0.0
                for line in read_metrics(run_folder)
                if line["kind"] != "run" and line["step"] <= resumed_from
            )
            self.elapsed = max(earlier, default=0.0)

    def add(self, report: StepReport) -> None:
        """Count a step."""
        self._recent.append((max(1, report.step - self._last_step), report))
        self._last_step = report.step
        self.elapsed += report.seconds
        self._stepping += report.seconds

    def pause(self, seconds: float) -> None:
        """Count time between steps, such as a validation."""
        self.elapsed += seconds
        self._validating += seconds

    @property
    def tokens_per_second(self) -> float:
        """Target tokens per second over the recent steps."""
        seconds = sum(report.seconds for _, report in self._recent)
        tokens = sum(report.target_tokens for _, report in self._recent)
        return tokens / seconds if seconds > 0 else 0.0

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilization, the mean over the recent steps."""
        values = [r.mfu for _, r in self._recent if r.mfu is not None]
        return sum(values) / len(values) if values else None

    @property
    def data_share(self) -> float:
        """Fraction of the time spent waiting for data."""
        seconds = sum(report.seconds for _, report in self._recent)
        return sum(r.waited for _, r in self._recent) / seconds if seconds > 0 else 0.0

    @property
    def left(self) -> float | None:
        """Remaining seconds, with validations taking the same share of the time as so far."""
        if not self._recent:
            return None
        report = self._recent[-1][1]
        ends = []
        if report.total_steps is not None:
            steps = sum(count for count, _ in self._recent)
            per_step = sum(r.seconds for _, r in self._recent) / steps
            overhead = 1 + self._validating / self._stepping if self._stepping else 1.0
            ends.append(max(0, report.total_steps - report.step) * per_step * overhead)
        if self.minutes is not None:
            ends.append(max(0.0, self.minutes * 60 - self.elapsed))
        return min(ends, default=None)
