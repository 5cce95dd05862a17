"""Prepared data on disk: token ids of all pairs, memory-mapped, each file checked by its hash.

A store is a folder of flat arrays and a manifest, which is written last. Without a manifest that
agrees with every file there is no store: a half-written or damaged one is never used.

    manifest.json                   what is here: settings, counts, cleaning report, size and
                                    sha256 of every file, and of itself
    tokenizer.model                 the tokenizer
    train.first.tokens              ids of the first side of all pairs, one after another:
                                    uint16, or uint32 for a vocabulary of more than 65,536
    train.first.offsets             int64, where each pair begins in it, and the end
    train.second.tokens, .offsets   the other side
    train.numbers                   int64, each pair's number in its corpus

Pairs stand once, in the order of their corpora; a direction is a way to read them. Text is not
kept, because the ids give it back exactly.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pellucid.errors import PellucidError
from pellucid.storage.manifest import file_hash, manifest_hash, sync_folder
from pellucid.tokenizers.base import Subwords, open_subwords

FORMAT = 1
MANIFEST = "manifest.json"
SIDES = ("first", "second")


class DamagedStoreError(PellucidError):
    """A store is missing, half-written or changed; it has to be prepared again."""


@dataclass(frozen=True)
class StoredCorpus:
    """Where the pairs of one corpus stand in a split."""

    languages: tuple[str, str]
    weight: float
    start: int
    stop: int


@dataclass(frozen=True)
class Split:
    """The pairs of train, valid or test, memory-mapped."""

    name: str
    corpora: tuple[StoredCorpus, ...]
    tokens: tuple[NDArray[Any], NDArray[Any]]
    """Flat token ids of the first and of the second side."""

    offsets: tuple[NDArray[np.int64], NDArray[np.int64]]
    numbers: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.numbers)

    def ids(self, pair: int, side: int) -> NDArray[Any]:
        """Token ids of one side (0 or 1) of a pair, without special ids."""
        start, stop = self.offsets[side][pair : pair + 2]
        return self.tokens[side][start:stop]

    def lengths(self, side: int) -> NDArray[np.int32]:
        """Number of tokens of one side of every pair."""
        return np.diff(self.offsets[side]).astype(np.int32)


@dataclass(frozen=True)
class PreparedData:
    """A whole, checked store. Open one with `Prepared.open`, make one with `prepare`."""

    folder: Path
    manifest: dict[str, Any]
    tokenizer: Subwords
    splits: dict[str, Split]
    fresh: bool = False
    """Whether it was made by this call, rather than found."""

    @classmethod
    def open(cls, folder: Path | str, *, verify: bool = True) -> PreparedData:
        """The store in a folder.

        Every file is read once and its hash compared (about a second a gigabyte); `verify=False`
        compares the sizes only, for processes that open what another one has just checked.
        """
        folder = Path(folder)
        manifest = read_manifest(folder)
        for name, expected in manifest["files"].items():
            check_file(folder / name, expected, verify)
        tokenizer = open_subwords(folder, manifest["files"])
        splits = {name: _open_split(folder, name, about) for name, about in _splits(manifest)}
        return cls(folder, manifest, tokenizer, splits)

    @property
    def directions(self) -> tuple[str, ...]:
        """Which ways to translate, as in the data's settings."""
        return tuple(self.manifest["directions"])

    @property
    def temperature(self) -> float | None:
        """How the mix of corpora is flattened, as in the data's settings."""
        value: float | None = self.manifest["temperature"]
        return value

    @property
    def report(self) -> dict[str, Any]:
        """By split: how many pairs were kept and dropped, and why."""
        value: dict[str, Any] = self.manifest["report"]
        return value

    @property
    def fingerprint(self) -> str:
        """Stands for everything in the store: two stores with the same one are equal."""
        value: str = self.manifest["sha256"]
        return value


def _splits(manifest: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return list(manifest["splits"].items())


def read_manifest(folder: Path) -> dict[str, Any]:
    """What a store says of itself, if that is whole."""
    path = folder / MANIFEST
    again = "prepare the data again"
    try:
        manifest = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise DamagedStoreError(f"{folder} holds no prepared data: {again}") from None
    except (OSError, ValueError) as error:
        raise DamagedStoreError(f"{path} cannot be read ({error}): {again}") from None
    if not isinstance(manifest, dict) or manifest_hash(manifest) != manifest.get("sha256"):
        raise DamagedStoreError(f"{path} is damaged (its hash differs): {again}")
    if manifest["format"] != FORMAT:
        raise DamagedStoreError(
            f"{path} has format {manifest['format']}, and this version reads {FORMAT}: {again}"
        )
    return manifest


def check_file(path: Path, expected: dict[str, Any], verify: bool) -> None:
    """Raise `DamagedStoreError` unless a file is as its store says."""
    again = "prepare the data again"
    try:
        size = path.stat().st_size
        if size != expected["bytes"]:
            raise DamagedStoreError(
                f"{path} is damaged (it has {size} bytes instead of {expected['bytes']}): {again}"
            )
        if verify and file_hash(path) != expected["sha256"]:
            raise DamagedStoreError(f"{path} is damaged (its hash differs): {again}")
    except OSError as error:
        raise DamagedStoreError(f"{path} cannot be read ({error.strerror}): {again}") from None


def _open_split(folder: Path, name: str, about: dict[str, Any]) -> Split:
    def array(suffix: str, dtype: Any) -> NDArray[Any]:
        path = folder / f"{name}.{suffix}"
        if path.stat().st_size == 0:  # which cannot be mapped
            return np.zeros(0, dtype)
        return np.memmap(path, dtype, mode="r").view(np.ndarray)  # plain arrays index faster

    corpora, start = [], 0
    for corpus in about["corpora"]:
        first, second = corpus["languages"]
        stop = start + corpus["pairs"]
        corpora.append(StoredCorpus((first, second), corpus["weight"], start, stop))
        start = stop
    return Split(
        name,
        tuple(corpora),
        (array("first.tokens", about["dtype"]), array("second.tokens", about["dtype"])),
        (array("first.offsets", "<i8"), array("second.offsets", "<i8")),
        array("numbers", "<i8"),
    )


class StoreFile:
    """A file of a store while it is written: hashed on the way, on the disk when closed."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.bytes = 0
        self._file: BinaryIO = path.open("wb")
        self._hash = hashlib.sha256()

    def write(self, data: bytes | NDArray[Any]) -> None:
        """Append some bytes, or an array's."""
        if not isinstance(data, bytes):
            data = data.tobytes()
        self._file.write(data)
        self._hash.update(data)
        self.bytes += len(data)

    def close(self) -> dict[str, Any]:
        """Make sure that it is on the disk; what the manifest says of it."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return {"bytes": self.bytes, "sha256": self._hash.hexdigest()}


def publish(workspace: Path, folder: Path, manifest: dict[str, Any]) -> None:
    """Move the finished files of a store to their place, the manifest last.

    Whatever happens on the way, there is either a whole store in `folder` or none.
    """
    (folder / MANIFEST).unlink(missing_ok=True)
    sync_folder(folder)
    for name in manifest["files"]:
        os.replace(workspace / name, folder / name)
    sync_folder(folder)
    manifest = {**manifest, "sha256": manifest_hash(manifest)}
    draft = workspace / MANIFEST
    with draft.open("w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, folder / MANIFEST)
    sync_folder(folder)
