"""Whether a folder is a whole model, before anything in it is used."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

from pellucid.bundle.layout import (
    FORMAT,
    MANIFEST,
    NEEDED,
    TOKENIZERS,
    BundleConfig,
    DamagedBundleError,
    short,
)
from pellucid.config import split_direction
from pellucid.errors import InputError
from pellucid.storage.manifest import file_hash, manifest_hash
from pellucid.tokenizers.base import Subwords

_LARGEST_MANIFEST = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


def read_manifest(folder: Path) -> dict[str, Any]:
    """The list of files of a model, itself whole, naming none outside the folder."""
    path = folder / MANIFEST
    if not path.exists():
        raise InputError(f"no model in {folder}: it has no {MANIFEST}")
    check_plain(path)
    if path.stat().st_size > _LARGEST_MANIFEST:
        raise DamagedBundleError(f"{path} is too large to be a manifest")
    try:
        manifest = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedBundleError(f"{path} cannot be read: {short(error)}") from None
    if not isinstance(manifest, dict) or manifest_hash(manifest) != manifest.get("sha256"):
        raise DamagedBundleError(f"{path} is damaged (its hash differs): get the model again")
    if manifest.get("format") != FORMAT:
        raise DamagedBundleError(
            f"{path} has format {manifest.get('format')!r}, and this version reads {FORMAT}"
        )
    files = manifest.get("files")
    if not isinstance(files, dict) or not all(_is_entry(entry) for entry in files.values()):
        raise DamagedBundleError(f"{path} does not list its files with size and hash")
    for name in files:
        if len(name) > 200 or not all(_NAME.fullmatch(part) for part in name.split("/")):
            raise DamagedBundleError(f"{path} names a file outside its folder: {name[:80]!r}")
    for name in NEEDED:
        if name not in files:
            raise DamagedBundleError(f"{path} lists no {name}: the model is not whole")
    if not any(files.keys() >= set(kind) for kind in TOKENIZERS):
        raise DamagedBundleError(
            f"{path} lists no {TOKENIZERS[0][0]}, nor the files of Marian's tokenizer: the model "
            "is not whole"
        )
    return manifest


def _is_entry(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("bytes"), int)
        and isinstance(entry.get("sha256"), str)
    )


def check_plain(path: Path) -> None:
    """Refuse links, pipes and devices: a bundle is made of plain files."""
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        raise DamagedBundleError(f"{path} cannot be read: {error.strerror}") from None
    if stat.S_ISLNK(mode):
        raise DamagedBundleError(f"{path} is a link, and a model holds none: copy the file itself")
    if not stat.S_ISREG(mode):
        raise DamagedBundleError(f"{path} is not a plain file")


def check_file(folder: Path, name: str, expected: dict[str, Any]) -> None:
    """Refuse a file that is not what the manifest says."""
    path = folder / name
    for parent in path.relative_to(folder).parents:
        if parent != Path() and (folder / parent).is_symlink():
            raise DamagedBundleError(f"{folder / parent} is a link, and a model holds none")
    check_plain(path)
    try:
        size = path.stat().st_size
        if size != expected["bytes"]:
            raise DamagedBundleError(
                f"{path} is damaged (it has {size:,} bytes instead of {expected['bytes']:,}): "
                "get the model again"
            )
        if file_hash(path) != expected["sha256"]:
            raise DamagedBundleError(f"{path} is damaged (its hash differs): get the model again")
    except OSError as error:
        raise DamagedBundleError(f"{path} cannot be read: {error.strerror}") from None


def check_fit(folder: Path, settings: BundleConfig, tokenizer: Subwords) -> None:
    """Refuse a model and a tokenizer that do not belong together."""
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
    """Refuse to write where something other than a model stands."""
    if not (folder.exists() or folder.is_symlink()):
        return
    if folder.is_symlink() or not folder.is_dir():
        raise InputError(f"{folder} is in the way of the model: choose another place")
    if any(folder.iterdir()) and not (folder / MANIFEST).is_file():
        raise InputError(f"{folder} holds something that is not a model: choose another folder")
