"""Ctrl-C and SIGTERM: the step under way is finished and saved, and then the run ends."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from pellucid.errors import PellucidError


class StoppedError(PellucidError):
    """A run was asked to stop, and has saved itself. Exit code 130 (Ctrl-C) or 143 (SIGTERM)."""

    everywhere = True

    def __init__(self, number: int, step: int, folder: Path) -> None:
        self.exit_code = 128 + number
        how = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        what = f"saved at step {step}" if step else "nothing was learned yet"
        super().__init__(f"stopped by {how}, {what}; to go on: pellucid train {folder} --resume")


class Signals:
    """While it is entered, the first signal is only noted in `asked`; a second one ends at once."""

    watched = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.asked: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        # Only the main thread may set handlers; elsewhere signals do what they always do.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in self.watched}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked is not None:
            raise KeyboardInterrupt
        self.asked = number
