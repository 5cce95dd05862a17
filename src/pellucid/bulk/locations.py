"""Locations of files: local paths, or addresses such as s3://bucket/folder.

Everything goes through pyarrow's file systems, and through fsspec's for addresses that pyarrow
does not know, so a job reads and writes wherever Ray does. A file is written under another name
and renamed, so under its own name there is the complete file or none.
"""

from __future__ import annotations

import contextlib
import posixpath
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any

from pellucid.errors import InputError, MissingExtraError, PellucidError
from pellucid.storage.files import atomic_path, sync_file

_WILD = "*?["


@dataclass(frozen=True)
class Location:
    """A file or folder, local or remote. It can be sent to another process."""

    files: Any
    """A pyarrow.fs.FileSystem."""
    path: str

    @classmethod
    def of(cls, address: str) -> Location:
        """Return the location of an address or a local path."""
        try:
            from pyarrow.fs import (  # type: ignore[import-untyped]
                FileSystem,
                FSSpecHandler,
                LocalFileSystem,
                PyFileSystem,
            )
        except ImportError:
            raise MissingExtraError("translating files in bulk", "cluster") from None
        if "://" not in address:
            path = Path(address).expanduser().absolute().as_posix()
            return cls(LocalFileSystem(), posixpath.normpath(path))
        try:
            return cls(*FileSystem.from_uri(address))
        except (OSError, ValueError) as first:
            import fsspec  # type: ignore[import-untyped]

            try:
                system, path = fsspec.core.url_to_fs(address)
            except (OSError, ValueError, ImportError) as error:
                raise InputError(f"cannot open {address}: {first}; {error}") from None
            return cls(PyFileSystem(FSSpecHandler(system)), path)

    def __str__(self) -> str:
        return self.path if self.is_local else f"{self.files.type_name}:{self.path}"

    @property
    def is_local(self) -> bool:
        """Whether it is on a local or mounted file system."""
        return bool(self.files.type_name == "local")

    def child(self, name: str) -> Location:
        """Return the file or folder of this name in the folder."""
        return Location(self.files, posixpath.join(self.path, name))

    def info(self) -> Any:
        """Return size, time and type, as pyarrow.fs.FileInfo."""
        with self._explained("look at"):
            return self.files.get_file_info(self.path)

    def exists(self) -> bool:
        """Whether it is an existing file."""
        return bool(self.info().is_file)

    def names(self) -> set[str]:
        """Return the names of the files in the folder; none if there is no such folder."""
        from pyarrow.fs import FileSelector

        with self._explained("look into"):
            found = self.files.get_file_info(FileSelector(self.path, allow_not_found=True))
        return {one.base_name for one in found if one.is_file}

    @contextlib.contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open it for reading the bytes as they are stored."""
        with self._explained("read"), self.files.open_input_file(self.path) as file:
            yield file

    def read(self) -> bytes:
        """Return all its bytes."""
        with self.open() as file:
            return file.read()

    def write(self, fill: bytes | Callable[[Any], None]) -> None:
        """Write the file atomically: bytes, or what a function writes to the stream it gets."""
        with self._explained("write"):
            self.files.create_dir(posixpath.dirname(self.path), recursive=True)
            if self.is_local:
                with atomic_path(Path(self.path)) as local:
                    self._fill(local.as_posix(), fill)
                    sync_file(local)
                return
            draft = f"{self.path}.{uuid.uuid4().hex[:8]}.tmp"
            try:
                self._fill(draft, fill)
                self.files.move(draft, self.path)
            except BaseException:
                with contextlib.suppress(OSError):
                    self.files.delete_file(draft)
                raise

    def _fill(self, path: str, fill: bytes | Callable[[Any], None]) -> None:
        with self.files.open_output_stream(path, compression=None) as stream:
            if callable(fill):
                fill(stream)
            else:
                stream.write(fill)

    def move_to(self, other: Location) -> None:
        """Rename it, over an existing file if there is one."""
        with self._explained("move"):
            self.files.create_dir(posixpath.dirname(other.path), recursive=True)
            self.files.move(self.path, other.path)

    def remove(self) -> None:
        """Remove the file, or the folder with its contents, if it exists."""
        from pyarrow.fs import FileType

        with self._explained("remove"):
            kind = self.info().type
            if kind is FileType.Directory:
                self.files.delete_dir(self.path)
            elif kind is FileType.File:
                self.files.delete_file(self.path)

    @contextlib.contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise InputError(f"there is no {self}: check the name") from None
        except OSError as error:
            reason = error.strerror or " ".join(str(error).split())[:300]
            raise PellucidError(f"cannot {doing} {self}: {reason}") from None


def find_inputs(pattern: str) -> list[tuple[str, Location]]:
    """Return the files that match a pattern, with their names below its fixed part.

    `in/*.txt` finds files in `in`; `in/**` and a folder find all below it. Names that begin with a
    dot or an underscore are left out: they are usually metadata.
    """
    from pyarrow.fs import FileSelector, FileType

    location = Location.of(pattern)
    parts = location.path.split("/")
    wild = next((i for i, part in enumerate(parts) if any(c in part for c in _WILD)), None)
    if wild is None:
        kind = location.info().type
        if kind is FileType.File:
            return [(posixpath.basename(location.path), location)]
        if kind is not FileType.Directory:
            raise InputError(f"there is no file or folder {pattern}: check --input")
        wild, parts = len(parts), [*parts, "**"]
    base = "/".join(parts[:wild]) or "/"
    selector = FileSelector(base, recursive=len(parts) > wild + 1 or "**" in parts)
    try:
        infos = location.files.get_file_info(selector)
    except OSError:
        raise InputError(f"there is no folder {base}: check --input {pattern}") from None
    found = []
    for info in infos:
        name = posixpath.relpath(info.path, base)
        steps = name.split("/")
        hidden = any(step.startswith((".", "_")) for step in steps)
        if info.is_file and not hidden and _matches(steps, parts[wild:]):
            found.append((name, Location(location.files, info.path)))
    if not found:
        raise InputError(f"no file matches {pattern}: check --input")
    return sorted(found, key=lambda pair: pair[0])


def _matches(steps: list[str], wanted: list[str]) -> bool:
    """Whether the parts of a path match those of a pattern, in which ** is any number of parts."""
    if not wanted:
        return not steps
    if wanted[0] == "**":
        rest = wanted[1:]
        return bool(steps) and (
            (not rest) or any(_matches(steps[i:], rest) for i in range(len(steps)))
        )
    return bool(steps) and fnmatchcase(steps[0], wanted[0]) and _matches(steps[1:], wanted[1:])
