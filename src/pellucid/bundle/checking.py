"""Checks that a folder is a complete, undamaged model, before anything in it is used."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Any

from pellucid.bundle.layout import (
    FORMAT,
    NEEDED,
    TOKENIZERS,
    BundleConfig,
    DamagedBundleError,
)
from pellucid.config import split_direction
from pellucid.errors import InputError
from pellucid.storage.files import Entry
from pellucid.storage.folder import MANIFEST, FolderFormat
from pellucid.tokenizers.base import Subwords

_FORMAT = FolderFormat(FORMAT, DamagedBundleError, "get the model again")
_LARGEST_MANIFEST = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a model and check it: it names no file outside the folder."""
    path = folder / MANIFEST
    if not path.exists():
        raise InputError(f"no model in {folder}: it has no {MANIFEST}")
    check_plain(path)
    if path.stat().st_size > _LARGEST_MANIFEST:
        raise DamagedBundleError(f"{path} is too large to be a manifest")
    manifest = _FORMAT.read_manifest(folder)
    files = manifest.get("files")
    if not isinstance(files, dict) or not all(_is_entry(entry) for entry in files.values()):
        raise DamagedBundleError(f"{path} does not list its files with size and hash")
    for name in files:
        if len(name) > 200 or not all(_NAME.fullmatch(part) for part in name.split("/")):
            raise DamagedBundleError(f"{path} names a file outside its folder: {name[:80]!r}")
    for name in NEEDED:
        if name not in files:
            raise DamagedBundleError(f"{path} lists no {name}: the model is incomplete")
    if not any(files.keys() >= set(kind) for kind in TOKENIZERS):
        raise DamagedBundleError(
            f"{path} lists no {TOKENIZERS[0][0]}, nor the files of Marian's tokenizer: the model "
            "is incomplete"
        )
    return manifest


def _is_entry(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("bytes"), int)
        and isinstance(entry.get("sha256"), str)
    )


def check_plain(path: Path) -> None:
    """Raise an error for links, pipes and devices: a bundle consists of regular files."""
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        raise DamagedBundleError(f"{path} cannot be read: {error.strerror}") from None
    if stat.S_ISLNK(mode):
        raise DamagedBundleError(
            f"{path} is a symbolic link, which a model may not contain: copy the file itself"
        )
    if not stat.S_ISREG(mode):
        raise DamagedBundleError(f"{path} is not a regular file")


def check_file(folder: Path, name: str, expected: Entry) -> None:
    """Raise an error for a file that differs from its entry in the manifest."""
    path = folder / name
    for parent in path.relative_to(folder).parents:
        if parent != Path() and (folder / parent).is_symlink():
            raise DamagedBundleError(
                f"{folder / parent} is a symbolic link, which a model may not contain"
            )
    check_plain(path)
    _FORMAT.check_file(path, expected)


def check_fit(folder: Path, settings: BundleConfig, tokenizer: Subwords) -> None:
    """Raise an error for a model and a tokenizer that do not belong together."""
    config = settings.model
    source_size = config.source_vocab_size or config.vocab_size
    for what, size, pieces in (
        ("vocab_size", config.vocab_size, tokenizer.vocab_size),
        ("source_vocab_size", source_size, tokenizer.source_vocab_size),
    ):
        if size != pieces:
            raise DamagedBundleError(
                f"{folder}: the model's {what} is {size}, and the tokenizer has "
                f"{pieces} pieces: they do not belong together"
            )
    if config.pad_id != tokenizer.pad_id:
        raise DamagedBundleError(
            f"{folder}: pad_id is {config.pad_id}, the tokenizer's {tokenizer.pad_id}"
        )
    for direction in settings.directions:
        target = split_direction(direction)[1]
        try:
            tokenizer.tag_ids(target)
        except InputError:
            raise DamagedBundleError(
                f"{folder}: the tokenizer has no tag for {target!r}, which {direction!r} needs"
            ) from None


def check_replaceable(folder: Path) -> None:
    """Raise an error for a path that holds something other than a model."""
    if not (folder.exists() or folder.is_symlink()):
        return
    if folder.is_symlink() or not folder.is_dir():
        raise InputError(f"{folder} is in the way of the model: choose another place")
    if any(folder.iterdir()) and not (folder / MANIFEST).is_file():
        raise InputError(f"{folder} holds something that is not a model: choose another folder")
