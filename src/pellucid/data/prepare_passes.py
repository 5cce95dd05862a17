"""The passes of the preparation, over a part of the pairs at a time, in any process.

Between the passes the clean text is in files: `text` has the first and the second side of all pairs
one after another in UTF-8, `ends` says where each of them ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pellucid.config import CleaningConfig
from pellucid.data.cleaning import CleaningReport, Verdict, is_dropped, judge, pair_hash
from pellucid.data.corpus import Pair
from pellucid.tokenizers.base import Side, Subwords, open_subwords

CHUNK_PAIRS = 4096
CHUNK_CHARACTERS = 1_000_000
HASHES_AT_ONCE = 1_000_000
"""Bounds the memory for finding duplicates."""


@dataclass
class CleanChunk:
    """A chunk of pairs after cleaning: the report, and the text of those not dropped."""

    report: CleaningReport
    text: bytes
    ends: NDArray[np.int64]
    numbers: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    copies: NDArray[np.bool_]


Raw = list[tuple[str, str, int, str]]


def chunks(pairs: Iterator[Pair]) -> Iterator[Raw]:
    """Yield pairs in lists of bounded size, as tuples, which are faster to send to processes."""
    chunk: Raw = []
    characters = 0
    for pair in pairs:
        chunk.append((pair.first, pair.second, pair.number, pair.problem))
        characters += len(pair.first) + len(pair.second)
        if len(chunk) >= CHUNK_PAIRS or characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def clean_chunk(config: CleaningConfig, raw: Raw) -> CleanChunk:
    """Run the first pass over a chunk of pairs (in a worker)."""
    report = CleaningReport(config)
    texts: list[bytes] = []
    numbers, hashes, copies = [], [], []
    for record in raw:
        verdict, pair = judge(Pair(*record), config)
        report.add(verdict, pair)
        if not is_dropped(verdict, config):
            texts += (pair.first.encode(), pair.second.encode())
            numbers.append(pair.number)
            hashes.append(pair_hash(pair))
            copies.append(verdict == Verdict.copy)
    return CleanChunk(
        report,
        b"".join(texts),
        np.cumsum([len(text) for text in texts], dtype=np.int64),
        np.array(numbers, np.int64),
        np.array(hashes, np.uint64),
        np.array(copies, np.bool_),
    )


def duplicates(path: Path) -> NDArray[np.bool_]:
    """Return a mask over the hashes in a file: True for those that occur earlier in it.

    They are compared in groups by their lowest bits, so that memory does not grow with their
    number, apart from one byte each in the mask.
    """
    count = path.stat().st_size // 8
    repeated = np.zeros(count, np.bool_)
    groups = 1 << (count // HASHES_AT_ONCE).bit_length()
    for group in range(groups):
        indices, values = [], []
        for start in range(0, count, HASHES_AT_ONCE):
            some = np.fromfile(path, np.uint64, HASHES_AT_ONCE, offset=8 * start)
            here = np.flatnonzero(some % np.uint64(groups) == group)
            indices.append(start + here)
            values.append(some[here])
        if not indices:
            break
        found = np.concatenate(indices)
        _, firsts = np.unique(np.concatenate(values), return_index=True)
        seen = np.ones(len(found), np.bool_)
        seen[firsts] = False
        repeated[found] = seen
    return repeated


def ranges(count: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of pairs for the third pass: (start, stop)."""
    for start in range(0, count, CHUNK_PAIRS):
        yield start, min(count, start + CHUNK_PAIRS)


_Side = tuple[NDArray[Any], NDArray[np.int64]]


@dataclass(frozen=True)
class CleanFiles:
    """Files that the first pass writes to the workspace."""

    text: Path
    ends: Path
    """int64, two for each pair."""

    numbers: Path
    """int64, number of the pair in its corpus."""

    hashes: Path
    """uint64, to find duplicates."""

    copies: Path
    """bool, whether both sides are identical."""

    keep: Path
    """bool, whether the pair goes into the store; written after the duplicates are found."""

    @classmethod
    def of(cls, workspace: Path, split: str) -> CleanFiles:
        """Return the files of a split."""
        return cls(*(workspace / f"{split}.clean.{field.name}" for field in fields(cls)))


@dataclass(frozen=True)
class StoredTokenizer:
    """A tokenizer for workers to open: its files and its hash."""

    folder: Path
    names: tuple[str, ...]
    sha256: str
    sides: tuple[Side, Side]
    """Side of translation of the first and of the second language of a pair."""


def tokenize_range(
    stored: StoredTokenizer, files: CleanFiles, dtype: str, span: tuple[int, int]
) -> tuple[NDArray[np.int64], list[_Side]]:
    """Run the third pass over some pairs (in a worker): numbers; ids and lengths of both sides."""
    tokenizer = _load_once(stored)
    kept = np.flatnonzero(mapped(files.keep, np.bool_)[slice(*span)])
    result: list[_Side] = []
    with CleanText(files) as text:
        both = text.sides(*span)
    for texts, side in zip(both, stored.sides, strict=True):
        rows = tokenizer.encode_batch([texts[index] for index in kept], side=side)
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        ids = np.fromiter(chain.from_iterable(rows), dtype, int(lengths.sum()))
        result.append((ids, lengths))
    return mapped(files.numbers, np.int64)[slice(*span)][kept], result


@lru_cache(maxsize=1)
def _load_once(stored: StoredTokenizer) -> Subwords:
    """Open a tokenizer; `sha256` distinguishes it from others in the same folder."""
    tokenizer = open_subwords(stored.folder, stored.names)
    assert tokenizer.sha256 == stored.sha256
    return tokenizer


class CleanText:
    """The text that the first pass wrote, by pair.

    It is read rather than memory-mapped: mapped pages would count as memory of this process.
    """

    def __init__(self, files: CleanFiles) -> None:
        self._ends = files.ends.open("rb")
        self._text = files.text.open("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()
        self._text.close()

    def sides(self, start: int, stop: int) -> tuple[list[str], list[str]]:
        """Return the first and the second sides of pairs `start` to `stop`."""
        before = 1 if start else 0  # a pair begins where the one before ends
        self._ends.seek(8 * (2 * start - before))
        ends = np.frombuffer(self._ends.read(8 * (2 * (stop - start) + before)), np.int64)
        bounds: list[int] = ends.tolist() if before else [0, *ends.tolist()]
        self._text.seek(bounds[0])
        data = self._text.read(bounds[-1] - bounds[0])
        offsets = [bound - bounds[0] for bound in bounds]
        sides = [data[a:b].decode() for a, b in pairwise(offsets)]
        return sides[::2], sides[1::2]


def mapped(path: Path, dtype: Any) -> NDArray[Any]:
    """Return a file as a memory-mapped array."""
    if not path.stat().st_size:  # an empty file cannot be mapped
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, mode="r").view(np.ndarray)
