"""One file, written as a whole: a draft beside it, forced to the disk, then renamed.

A rename within a folder is atomic, so a kill or a full disk at any moment leaves either the old
file or the new one. `storage/folder.py` does the same for a folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import io
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypedDict

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of Linux's renameat2

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)


class Entry(TypedDict):
    """What a manifest says of a file."""

    bytes: int
    sha256: str


class Disk:
    """The file operations of a save, one by one, so that a test can fail at each of them."""

    def make_folder(self, path: Path) -> None:
        """Create a folder, and those above it."""
        path.mkdir(parents=True)

    def write(self, handle: int, data: memoryview) -> int:
        """Write some bytes; return how many the system took."""
        return os.write(handle, data)

    def fill(self, path: Path, write: Callable[[Path], object]) -> None:
        """Have a library write a file by its path."""
        write(path)

    def sync(self, handle: int) -> None:
        """Force an open file or folder to the disk."""
        os.fsync(handle)

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file or folder; a file that has the new name is replaced."""
        os.replace(old, new)

    def exchange(self, draft: Path, folder: Path) -> Path:
        """Put a draft in the place of a folder; return where the old folder is now.

        In one step where the system can (Linux), so that there is always a folder. Elsewhere it
        takes two renames; a kill between them leaves the old folder whole, as the draft's `.old`.
        """
        if _exchanged(draft, folder):
            return draft
        aside = draft.with_name(f"{draft.name}.old")
        self.rename(folder, aside)
        try:
            self.rename(draft, folder)
        except OSError:
            self.rename(aside, folder)
            raise
        return aside

    def remove(self, path: Path) -> None:
        """Delete a folder with all that is in it."""
        shutil.rmtree(path)


DISK = Disk()


def _exchanged(one: Path, other: Path) -> bool:
    """Swap two names with renameat2; False where the system or the file system has no such call."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    paths = os.fsencode(one), os.fsencode(other)
    if renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(other))


def file_hash(path: Path) -> str:
    """Return the sha256 of a file in hex, in constant memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_file(path: Path, disk: Disk = DISK) -> None:
    """Force a file that something else has written to the disk."""
    with path.open("rb+") as file:
        disk.sync(file.fileno())


def sync_folder(folder: Path, disk: Disk = DISK) -> None:
    """Force the names in a folder to the disk (Windows cannot, and need not)."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        disk.sync(handle)
    finally:
        os.close(handle)


class HashedFile(io.RawIOBase):
    """A new file, hashed while it is written. `finish` forces it to the disk."""

    _handle = -1

    def __init__(self, path: Path, disk: Disk = DISK) -> None:
        super().__init__()
        self.name = path.name
        self._disk = disk
        self._size = 0
        self._hash = hashlib.sha256()
        self._handle = os.open(path, _NEW_FILE, 0o666)

    def writable(self) -> bool:
        """Say that it may be written to, as a buffer asks."""
        return True

    def write(self, data: Any) -> int:
        """Write all of some bytes, or of an array of any type."""
        view = memoryview(data)
        if view.format != "B":
            view = memoryview(view.tobytes())
        rest = view
        while rest:
            rest = rest[self._disk.write(self._handle, rest) :]
        self._hash.update(view)
        self._size += len(view)
        return len(view)

    def finish(self) -> Entry:
        """Force the file to the disk and close it; return its size and hash."""
        self._disk.sync(self._handle)
        self.close()
        return {"bytes": self._size, "sha256": self._hash.hexdigest()}

    def close(self) -> None:
        """Close the file as it is."""
        if not self.closed:
            super().close()
            if self._handle >= 0:
                os.close(self._handle)


@contextlib.contextmanager
def new_file(path: Path, made: Callable[[Entry], object], disk: Disk = DISK) -> Iterator[Any]:
    """A buffered stream into a new file, on the disk after the block; `made` gets its entry."""
    raw = HashedFile(path, disk)
    try:
        stream = io.BufferedWriter(raw, 1 << 16)
        yield stream
        stream.detach()  # which flushes it
        made(raw.finish())
    finally:
        raw.close()


@contextlib.contextmanager
def atomic_path(path: Path, mode: int | None = None, disk: Disk = DISK) -> Iterator[Path]:
    """The path of a draft, to be written in the block, which then replaces `path` as a whole.

    If the block fails, `path` stays as it was and the draft is deleted. A symbolic link stays a
    link: what it points to is replaced. mode: the permissions of the new file; by default those of
    the file it replaces.
    """
    path = Path(os.path.realpath(path))
    # The whole of a long name would not fit with what is added to it.
    draft = path.with_name(f".{path.name[:40]}.writing-{secrets.token_hex(4)}")
    try:
        yield draft
        if mode is None and path.exists():
            mode = stat.S_IMODE(path.stat().st_mode)
        if mode is not None:
            draft.chmod(mode)
        disk.rename(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent, disk)


@contextlib.contextmanager
def open_atomic(path: Path, mode: int | None = None, disk: Disk = DISK) -> Iterator[Any]:
    """A stream of bytes that replaces the file `path` as a whole after the block.

    What is no plain file, such as /dev/stdout or a named pipe, is written to directly.
    """
    # /dev/stdout may be a plain file that the shell holds open; to replace it would lose the text.
    if (path.exists() and not path.is_file()) or path.absolute().parts[1] in ("dev", "proc"):
        with path.open("wb") as stream:
            yield stream
        return
    with atomic_path(path, mode, disk) as draft, new_file(draft, lambda entry: None, disk) as file:
        yield file


def write_atomic(path: Path, data: bytes | str, mode: int | None = None, disk: Disk = DISK) -> None:
    """Write a file as a whole; text as UTF-8, its line ends as they are."""
    with open_atomic(path, mode, disk) as stream:
        stream.write(data.encode() if isinstance(data, str) else data)
