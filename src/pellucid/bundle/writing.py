"""Writing a model's folder so that all of it is there or none."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pellucid import __version__
from pellucid.bundle.layout import (
    FORMAT,
    MANIFEST,
)
from pellucid.storage.manifest import file_hash, manifest_hash, sync_folder


def write_bytes(path: Path, data: bytes) -> None:
    """Bytes that are on the disk when this returns."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_text(path: Path, text: str) -> None:
    """Text, as UTF-8."""
    write_bytes(path, text.encode())


def finish_draft(draft: Path, names: Sequence[str]) -> None:
    """Write the manifest of these files, and see that all of it has reached the disk."""
    for name in names:
        with (draft / name).open("rb+") as file:
            os.fsync(file.fileno())
    files = {name: _described(draft / name) for name in names}
    manifest = {"format": FORMAT, "pellucid": __version__, "files": files}
    manifest["sha256"] = manifest_hash(manifest)
    write_text(draft / MANIFEST, json.dumps(manifest, indent=1))
    sync_folder(draft)


def _described(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": file_hash(path)}


def swap_in(draft: Path, folder: Path) -> None:
    """Put the finished folder in its place. An old one is moved aside first, and then removed."""
    old = folder.parent / f".{folder.name}.old-{secrets.token_hex(4)}"
    if folder.exists():
        os.rename(folder, old)
    try:
        os.rename(draft, folder)
    except OSError:
        if old.exists():
            os.rename(old, folder)
        raise
    try:
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(old, ignore_errors=True)
