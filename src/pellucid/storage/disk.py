"""The file operations of a save, one by one, so that a test can stop at each of them.

A folder appears as a whole or not at all: it is written under another name, every file and then
the folder is forced to the disk, and it is renamed. A kill at any moment leaves either the old
state or the new one.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from pellucid.errors import PellucidError
from pellucid.storage.manifest import sync_folder
from pellucid.training.checkpoint.sharded_tensors import START, STARTS, Portion

Written = dict[str, Any]
"""Size and hash of a file, as the manifest has it."""


class Disk:
    """The operations themselves."""

    def make_folder(self, path: Path) -> None:
        """Create a folder."""
        path.mkdir(parents=True)

    def write(self, handle: int, data: memoryview) -> int:
        """Write some bytes; how many of them were taken."""
        return os.write(handle, data)

    def sync(self, handle: int) -> None:
        """Force a file or folder to the disk."""
        os.fsync(handle)

    def rename(self, old: Path, new: Path) -> None:
        """Give a file or folder another name."""
        os.rename(old, new)

    def remove(self, path: Path) -> None:
        """Delete a folder with all that is in it."""
        shutil.rmtree(path)

    def write_file(self, path: Path, data: bytes) -> Written:
        """A new file, on the disk when this returns."""
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            rest = memoryview(data)
            while len(rest):
                rest = rest[self.write(handle, rest) :]
            self.sync(handle)
        finally:
            os.close(handle)
        return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    def write_json(self, path: Path, value: Any) -> Written:
        """A JSON file."""
        text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        return self.write_file(path, text.encode())

    def write_tensors(self, path: Path, portion: Portion) -> Written:
        """A safetensors file, made in memory; the same tensors, the same bytes."""
        from safetensors.torch import save

        about = None
        if portion.starts is not None:
            places = {name: {START: list(portion.starts[name])} for name in sorted(portion.tensors)}
            about = {STARTS: json.dumps(places, separators=(",", ":"))}
        whole = {name: t.detach().cpu().contiguous() for name, t in portion.tensors.items()}
        return self.write_file(path, save(whole, about))

    def sync_folder(self, folder: Path) -> None:
        """Force the names in a folder to the disk (where the system can)."""
        sync_folder(folder, self.sync)


def explained(error: OSError, what: str, folder: Path) -> PellucidError:
    """A failure to write, as one line that says what is still there and what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return PellucidError(
            f"no space left for {what} in {folder}: what was saved before is intact; free some "
            "space and go on with --resume"
        )
    return PellucidError(
        f"cannot write {what} in {folder} ({error.strerror or error}): what was saved before is "
        "intact; mend it and go on with --resume"
    )
