"""A disk that fails at a chosen operation of a save."""

import os
from collections.abc import Callable
from pathlib import Path

from pellucid.storage.files import Disk


class FailingDisk(Disk):
    """Fails at a chosen operation: by `fail`, after half of the operation where it has halves."""

    def __init__(self, at: int, fail: Callable[[], None], half: bool = False) -> None:
        self.at, self.fail, self.half = at, fail, half
        self.log: list[str] = []

    def _count(self, name: str, first_half: Callable[[], object] = lambda: None) -> None:
        self.log.append(name)
        if len(self.log) == self.at:
            if self.half:
                first_half()
            self.fail()

    def make_folder(self, path: Path) -> None:
        self._count("make_folder")
        super().make_folder(path)

    def write(self, handle: int, data: memoryview) -> int:
        self._count("write", lambda: os.write(handle, data[: len(data) // 2]))
        return super().write(handle, data)

    def fill(self, path: Path, write: Callable[[Path], object]) -> None:
        def first_half() -> None:
            write(path)
            os.truncate(path, path.stat().st_size // 2)

        self._count("write", first_half)
        super().fill(path, write)

    def sync(self, handle: int) -> None:
        self._count("sync")
        super().sync(handle)

    def rename(self, old: Path, new: Path) -> None:
        self._count("rename")
        super().rename(old, new)

    def exchange(self, draft: Path, folder: Path) -> Path:
        self._count("exchange")
        return super().exchange(draft, folder)

    def remove(self, path: Path) -> None:
        self._count("remove", lambda: next(path.iterdir()).unlink())
        super().remove(path)
