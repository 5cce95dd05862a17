"""What every folder that we write is checked by: the sha256 of each file, and of the list itself.

Prepared data, checkpoints and bundles each have a manifest.json with these hashes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def file_hash(path: Path) -> str:
    """sha256 of a file, in constant memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def manifest_hash(manifest: Mapping[str, Any]) -> str:
    """The hash of a manifest, itself left out."""
    rest = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def sync_folder(folder: Path, sync: Callable[[int], None] = os.fsync) -> None:
    """Make sure that the names in a folder are on the disk (where the system can).

    sync: what does it for an open file, where someone has to know of it.
    """
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        sync(handle)
    finally:
        os.close(handle)
