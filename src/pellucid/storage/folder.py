"""A folder that appears whole: written beside its place, with hashes, then swapped in.

The manifest lists each file with its size and sha256, and has a hash of itself. Whoever opens the
folder compares them, so that a damaged file or a half-copied folder is never used.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pellucid.errors import PellucidError
from pellucid.storage.files import (
    DISK,
    Disk,
    Entry,
    file_hash,
    new_file,
    sync_file,
    sync_folder,
)

MANIFEST = "manifest.json"


def manifest_hash(manifest: Mapping[str, Any]) -> str:
    """Return the hash of a manifest, without its own entry for that hash."""
    rest = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _indented(value: Any) -> str:
    return json.dumps(value, indent=1)


class FolderDraft:
    """A folder while it is written, beside the place where it will appear.

    files: what was written so far, by name with `/` between its parts; the manifest's list.
    """

    def __init__(self, folder: Path, path: Path | None = None, disk: Disk = DISK) -> None:
        self.folder = folder
        self.path = path or folder.with_name(f".{folder.name[:40]}.writing-{secrets.token_hex(4)}")
        self.disk = disk
        self.files: dict[str, Entry] = {}

    def begin(self) -> None:
        """Create the draft, which must not exist."""
        self.disk.make_folder(self.path)

    def write(self, name: str, data: bytes | str) -> Entry:
        """Write a file of the folder; text as UTF-8."""
        with self.open(name) as stream:
            stream.write(data.encode() if isinstance(data, str) else data)
        return self.files[name]

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[Any]:
        """A stream of bytes into a file of the folder, for one that is large."""
        entries: list[Entry] = []
        with new_file(self.path / name, entries.append, self.disk) as stream:
            yield stream
        self.files[name] = entries[0]

    def fill(self, name: str, write: Callable[[Path], object]) -> Entry:
        """Have a library write a file of the folder by its path, so that it need not fit in memory.

        The file gets the usual permissions, whatever the library gives it.
        """
        path = self.path / name
        path.touch()
        mode = path.stat().st_mode & 0o777
        self.disk.fill(path, write)
        path.chmod(mode)
        return self.add(name)

    def add(self, name: str) -> Entry:
        """Take up a file that something else has written into the draft."""
        path = self.path / name
        sync_file(path, self.disk)
        self.files[name] = {"bytes": path.stat().st_size, "sha256": file_hash(path)}
        return self.files[name]

    def name_of(self, path: Path) -> str:
        """Return the name of a file in the draft, as the manifest has it."""
        return path.relative_to(self.path).as_posix()

    def write_manifest(
        self, about: Mapping[str, Any], as_text: Callable[[Any], str] = _indented
    ) -> None:
        """Write the manifest: `about`, the files in the order they were added, and its own hash."""
        manifest = {**about, "files": self.files}
        manifest["sha256"] = manifest_hash(manifest)
        with new_file(self.path / MANIFEST, lambda entry: None, self.disk) as stream:
            stream.write(as_text(manifest).encode())

    def publish(self) -> None:
        """Put the folder in its place, in place of the one that is there.

        A kill at any moment leaves either the old folder or the new one. What it leaves over has
        the draft's name.
        """
        written = {*self.files, MANIFEST}
        for path in sorted(self.path.rglob("*"), reverse=True):
            if path.is_dir():
                sync_folder(path, self.disk)
            elif self.name_of(path) not in written:
                sync_file(path, self.disk)
        sync_folder(self.path, self.disk)
        old = None
        if os.path.lexists(self.folder):
            old = self.disk.exchange(self.path, self.folder)
        else:
            self.disk.rename(self.path, self.folder)
        try:
            sync_folder(self.folder.parent, self.disk)
        finally:
            if old is not None:
                self._remove(old)

    def publish_into(self) -> None:
        """Move the files one by one into a folder that has other files too, the manifest last.

        Killed on the way, it leaves a mixture, which fits neither manifest.
        """
        for name in self.files:
            if name != MANIFEST:
                self.disk.rename(self.path / name, self.folder / name)
        sync_folder(self.folder, self.disk)
        self.disk.rename(self.path / MANIFEST, self.folder / MANIFEST)
        sync_folder(self.folder, self.disk)

    def discard(self) -> None:
        """Delete the draft if it is there, as far as that is possible."""
        self._remove(self.path)

    def _remove(self, path: Path) -> None:
        if path.exists():
            with contextlib.suppress(OSError):
                self.disk.remove(path)


@contextlib.contextmanager
def atomic_folder(folder: Path, disk: Disk = DISK) -> Iterator[FolderDraft]:
    """A draft to be filled in the block, which then appears as `folder`, in place of an old one.

    If the block fails, `folder` stays as it was.
    """
    draft = FolderDraft(folder.absolute(), disk=disk)
    try:
        draft.begin()
        yield draft
        draft.publish()
    finally:
        draft.discard()


@dataclass(frozen=True)
class FolderFormat:
    """How one kind of folder is checked before it is used.

    version: its `format`. error: raised for a folder that is not whole. remedy: what a person is
    told to do about it.
    """

    version: int
    error: type[PellucidError]
    remedy: str = ""

    def read_manifest(self, folder: Path) -> dict[str, Any]:
        """Return the manifest of a folder, its own hash and version compared."""
        path = folder / MANIFEST
        try:
            manifest = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise self._failed(f"{folder} is incomplete (it has no {MANIFEST})") from None
        except (OSError, ValueError, RecursionError) as error:
            reason = " ".join(str(error).split())[:160] or type(error).__name__
            raise self._failed(f"{path} cannot be read ({reason})") from None
        if not isinstance(manifest, dict) or manifest_hash(manifest) != manifest.get("sha256"):
            raise self._failed(f"{path} is damaged (its hash differs)")
        version = manifest.get("format")
        if version != self.version:
            raise self._failed(
                f"{path} has format {version!r}, and this version of Pellucid reads {self.version}"
            )
        return manifest

    def check_file(self, path: Path, expected: Entry, hashed: bool = True) -> None:
        """Raise the error unless a file has the size, and if `hashed` the hash, of its entry."""
        try:
            size = path.stat().st_size
            if size != expected["bytes"]:
                raise self._failed(
                    f"{path} is damaged (it has {size:,} bytes instead of {expected['bytes']:,})"
                )
            if hashed and file_hash(path) != expected["sha256"]:
                raise self._failed(f"{path} is damaged (its hash differs)")
        except OSError as error:
            raise self._failed(f"{path} cannot be read ({error.strerror})") from None

    def _failed(self, what: str) -> PellucidError:
        return self.error(f"{what}: {self.remedy}" if self.remedy else what)
