"""How fast a run goes, and how long it may still take."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

from pellucid.training.callbacks.callback import StepReport
from pellucid.training.callbacks.metrics_file import read_metrics

RECENT = 50  # reports that the speed is averaged over


class Pace:
    """How fast a run goes, and how long it may still take."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self.minutes: float | None = None
        self._recent: deque[tuple[int, StepReport]] = deque(maxlen=RECENT)
        self._last_step = 0
        self._between = 0.0  # seconds of validations and the like in this start
        self._stepping = 0.0

    def start(self, recipe: Any, resumed_from: int | None, run_folder: Path | None) -> None:
        """A run begins, or goes on; then the time before counts too."""
        self.minutes = getattr(getattr(recipe, "training", None), "minutes", None)
        self._last_step = resumed_from or 0
        if resumed_from and run_folder is not None:
            before = (
                line.get("elapsed") or 0.0
                for line in read_metrics(run_folder)
                if line["kind"] != "run" and line["step"] <= resumed_from
            )
            self.elapsed = max(before, default=0.0)

    def add(self, report: StepReport) -> None:
        """A step was done."""
        self._recent.append((max(1, report.step - self._last_step), report))
        self._last_step = report.step
        self.elapsed += report.seconds
        self._stepping += report.seconds

    def pause(self, seconds: float) -> None:
        """Time went by between steps, in a validation."""
        self.elapsed += seconds
        self._between += seconds

    @property
    def tokens_per_second(self) -> float:
        """Target tokens a second, of late."""
        seconds = sum(report.seconds for _, report in self._recent)
        tokens = sum(report.target_tokens for _, report in self._recent)
        return tokens / seconds if seconds > 0 else 0.0

    @property
    def flops_share(self) -> float | None:
        """Share of the machine's peak, of late."""
        shares = [r.flops_share for _, r in self._recent if r.flops_share is not None]
        return sum(shares) / len(shares) if shares else None

    @property
    def waiting(self) -> float:
        """Share of the time spent waiting for data."""
        seconds = sum(report.seconds for _, report in self._recent)
        return sum(r.waited for _, r in self._recent) / seconds if seconds > 0 else 0.0

    @property
    def left(self) -> float | None:
        """Seconds that are left, validations at the same share as so far."""
        if not self._recent:
            return None
        report = self._recent[-1][1]
        ends = []
        if report.total_steps is not None:
            steps = sum(count for count, _ in self._recent)
            each = sum(r.seconds for _, r in self._recent) / steps
            around = 1 + self._between / self._stepping if self._stepping else 1.0
            ends.append(max(0, report.total_steps - report.step) * each * around)
        if self.minutes is not None:
            ends.append(max(0.0, self.minutes * 60 - self.elapsed))
        return min(ends, default=None)
