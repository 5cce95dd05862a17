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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from pellucid.errors import PellucidError
from pellucid.manifest import sync_folder
from pellucid.training.stored import START, STARTS, TYPES, Portion

Written = dict[str, Any]
"""Size and hash of a file, as the manifest has it."""

_PIECE = 1 << 22  # bytes that are gathered for one write

_NAMES = {kind: name for name, kind in TYPES.items()}


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

    def write_file(self, path: Path, pieces: Iterator[bytes | memoryview]) -> Written:
        """A new file, on the disk when this returns."""
        sha, size = hashlib.sha256(), 0
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            gathered = bytearray()
            for piece in pieces:
                sha.update(piece)
                size += len(piece)
                if len(gathered) + len(piece) > _PIECE:
                    self._write_all(handle, gathered)
                    gathered = bytearray()
                if len(piece) > _PIECE:
                    self._write_all(handle, piece)
                else:
                    gathered += piece
            self._write_all(handle, gathered)
            self.sync(handle)
        finally:
            os.close(handle)
        return {"bytes": size, "sha256": sha.hexdigest()}

    def _write_all(self, handle: int, data: bytes | bytearray | memoryview) -> None:
        rest = memoryview(data)
        while len(rest):
            rest = rest[self.write(handle, rest) :]

    def write_json(self, path: Path, value: Any) -> Written:
        """A JSON file."""
        text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        return self.write_file(path, iter([text.encode()]))

    def write_tensors(self, path: Path, portion: Portion) -> Written:
        """A safetensors file, one tensor in memory at a time; the same tensors, the same bytes."""
        return self.write_file(path, _safetensors(portion))

    def sync_folder(self, folder: Path) -> None:
        """Force the names in a folder to the disk (where the system can)."""
        sync_folder(folder, self.sync)


def _safetensors(portion: Portion) -> Iterator[bytes | memoryview]:
    """The safetensors format: length of the header, header, and the tensors in its order."""
    tensors, starts = portion
    # the widest types first, so that every tensor is aligned
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, Any] = {}
    if starts is not None:
        places = {name: {START: list(starts[name])} for name in names}
        header["__metadata__"] = {STARTS: json.dumps(places, separators=(",", ":"))}
    end = 0
    for name in names:
        tensor = tensors[name]
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in names:
        flat = tensors[name].detach().cpu().contiguous().reshape(-1)
        yield memoryview(flat.view(torch.uint8).numpy())  # type: ignore[arg-type]


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
