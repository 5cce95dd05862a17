"""Prepared data on disk: token ids of all pairs, memory-mapped, each file checked by its hash.

A store is a folder of flat arrays and a manifest, which is written last. A store whose manifest
is missing or disagrees with a file, because it is half-written or damaged, is never used.

    manifest.json                   settings, counts, cleaning report, size and sha256 of every
                                    file, and its own sha256
    tokenizer.model                 the tokenizer
    train.first.tokens              token ids of the first side of all pairs, concatenated:
                                    uint16, or uint32 for a vocabulary of more than 65,536
    train.first.offsets             int64, where each pair begins in the ids, and their end
    train.second.tokens, .offsets   the other side
    train.numbers                   int64, each pair's number in its corpus

Each pair is stored once, in the order of the corpora, and serves both directions. The text is not
stored, because it can be decoded exactly from the ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pellucid.errors import PellucidError
from pellucid.storage.folder import MANIFEST, FolderFormat
from pellucid.tokenizers.base import Subwords, open_subwords

FORMAT = 1
SIDES = ("first", "second")


class DamagedStoreError(PellucidError):
    """A store is missing, half-written or damaged; the data has to be prepared again."""


STORE = FolderFormat(FORMAT, DamagedStoreError, "prepare the data again")
"""How a store is checked; the stored probabilities of teachers are checked like one."""


@dataclass(frozen=True)
class StoredCorpus:
    """The range of one corpus's pairs in a split."""

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
    """Concatenated token ids of the first and of the second side."""

    offsets: tuple[NDArray[np.int64], NDArray[np.int64]]
    numbers: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.numbers)

    def ids(self, pair: int, side: int) -> NDArray[Any]:
        """Return the token ids of one side (0 or 1) of a pair, without special tokens."""
        start, stop = self.offsets[side][pair : pair + 2]
        return self.tokens[side][start:stop]

    def lengths(self, side: int) -> NDArray[np.int32]:
        """Return the number of tokens of one side of every pair."""
        return np.diff(self.offsets[side]).astype(np.int32)


@dataclass(frozen=True)
class PreparedData:
    """A verified store. Open one with `PreparedData.open`, create one with `prepare`."""

    folder: Path
    manifest: dict[str, Any]
    tokenizer: Subwords
    splits: dict[str, Split]
    fresh: bool = False
    """Whether this call created it, rather than found it."""

    @classmethod
    def open(cls, folder: Path | str, *, verify: bool = True) -> PreparedData:
        """Open the store in a folder.

        Every file is read once to compare its hash (about a second per gigabyte). `verify=False`
        compares only the sizes, for processes that open what another one has just verified.
        """
        folder = Path(folder)
        manifest = read_manifest(folder)
        for name, expected in manifest["files"].items():
            STORE.check_file(folder / name, expected, hashed=verify)
        tokenizer = open_subwords(folder, manifest["files"])
        splits = {name: _open_split(folder, name, about) for name, about in _splits(manifest)}
        return cls(folder, manifest, tokenizer, splits)

    @property
    def directions(self) -> tuple[str, ...]:
        """The directions to train, as in the data settings."""
        return tuple(self.manifest["directions"])

    @property
    def temperature(self) -> float | None:
        """Temperature of the sampling of corpora, as in the data settings."""
        value: float | None = self.manifest["temperature"]
        return value

    @property
    def report(self) -> dict[str, Any]:
        """For each split, how many pairs were kept and dropped, and why."""
        value: dict[str, Any] = self.manifest["report"]
        return value

    @property
    def fingerprint(self) -> str:
        """Hash of the whole store: two stores with the same fingerprint are identical."""
        value: str = self.manifest["sha256"]
        return value


def _splits(manifest: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return list(manifest["splits"].items())


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a store, its own hash compared."""
    if not (folder / MANIFEST).exists():
        raise DamagedStoreError(f"{folder} holds no prepared data: prepare the data again")
    return STORE.read_manifest(folder)


def _open_split(folder: Path, name: str, about: dict[str, Any]) -> Split:
    def array(suffix: str, dtype: Any) -> NDArray[Any]:
        path = folder / f"{name}.{suffix}"
        if path.stat().st_size == 0:  # an empty file cannot be mapped
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
