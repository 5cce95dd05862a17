"""Ctrl-C and SIGTERM: the current step is finished and saved, and then the run ends."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from pellucid.errors import PellucidError


class TrainingStoppedError(PellucidError):
    """The run was stopped by a signal and has saved a checkpoint.

    Exit code 130 (Ctrl-C) or 143 (SIGTERM).
    """

    on_all_ranks = True

    def __init__(self, number: int, step: int, folder: Path) -> None:
        self.exit_code = 128 + number
        how = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        what = f"saved at step {step}" if step else "before the first step"
        super().__init__(f"stopped by {how}, {what}; to resume: pellucid train {folder} --resume")


class Signals:
    """Context in which the first signal is only noted in `received`; a second one ends at once."""

    handled = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        # Only the main thread may set handlers; elsewhere signals keep their default effect.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in self.handled}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = number
