"""Bucketing: which sentence pairs an epoch shows, and how they are grouped into batches.

Everything here is determined by (seed, epoch) and the lengths of the pairs, and is the same on
every machine: random numbers are the raw output of Philox, a counter-based generator, and orders
are made from them by stable sorting.

Memory grows by a few bytes per pair, never by Python objects. Measured for 10 million pairs in two
directions: 430 MB while an epoch is planned, 300 MB after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pellucid.config import split_direction
from pellucid.data.corpus import mixing_shares
from pellucid.data.store import Split, StoredCorpus
from pellucid.errors import InputError

SOURCE_EXTRA = 2
"""Tokens of a source besides its pieces: the tag before and the end after."""

TARGET_EXTRA = 1
"""Tokens of a target besides its pieces: the start (as input) or the end (as output)."""

# Purposes of random numbers: each has an independent stream.
_SAMPLE, _BUCKET, _MIX, _ORDER, _OFFSET = range(5)


def random_bits(seed: int, epoch: int, purpose: int, part: int, count: int) -> NDArray[np.uint64]:
    """Return random 64-bit numbers that depend on the arguments alone."""
    key = np.array([seed, epoch], np.uint64)
    counter = np.array([0, 0, part, purpose], np.uint64)
    bits: NDArray[np.uint64] = np.random.Philox(key=key, counter=counter).random_raw(count)
    return bits


def shuffled(seed: int, epoch: int, purpose: int, part: int, count: int) -> NDArray[np.int64]:
    """Return the numbers below `count` in random order."""
    return np.argsort(random_bits(seed, epoch, purpose, part, count), kind="stable")


@dataclass(frozen=True)
class Plan:
    """The batches of an epoch: batch i is `pairs[begin[i]:end[i]]`."""

    pairs: NDArray[np.int32]
    directions: NDArray[np.uint8]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.begin)


class Planner:
    """Plans the epochs of a split.

    `growth` is the factor by which subword regularization lengthens sentences.
    """

    def __init__(
        self,
        split: Split,
        directions: Sequence[str],
        *,
        max_tokens: int,
        bucket_size: int,
        seed: int,
        temperature: float | None = None,
        growth: float = 1.0,
    ) -> None:
        self.max_tokens = max_tokens
        self.bucket_size = bucket_size
        self.seed = seed
        self.temperature = temperature
        self.languages = [split_direction(direction) for direction in directions]
        self.corpora = [c for c in split.corpora if c.stop > c.start and self.directions_of(c)]
        if not self.corpora:
            raise InputError(f"{split.name} has no pair for {', '.join(directions)}")
        self.lengths = (split.lengths(0), split.lengths(1))
        self._check_longest(split, directions)
        if growth > 1:
            self.lengths = (self._grown(0, growth), self._grown(1, growth))

    def directions_of(self, corpus: StoredCorpus) -> list[tuple[int, int]]:
        """Return the directions in which a corpus is read, each with its source side."""
        return [
            (direction, corpus.languages.index(source))
            for direction, (source, target) in enumerate(self.languages)
            if {source, target} == set(corpus.languages)
        ]

    def plan(self, epoch: int) -> Plan:
        """Return the batches of an epoch, in random order."""
        pairs, directions = self._examples(epoch)
        count = len(pairs)
        buckets = -(-count // self.bucket_size)
        plan_pairs, plan_directions = np.empty_like(pairs), np.empty_like(directions)
        bounds: list[NDArray[np.int64]] = []
        done = 0
        for members in self._buckets(epoch, count, buckets):
            members = members[shuffled(self.seed, epoch, _MIX, len(bounds), len(members))]
            some_pairs, some_directions = pairs[members], directions[members]
            sources, targets = self.sizes(some_pairs, some_directions)
            longest = np.maximum(sources, targets)
            offset, turn = random_bits(self.seed, epoch, _OFFSET, len(bounds), 2).tolist()
            order = _by_length(longest, sources - targets, turn)
            until = done + len(members)
            plan_pairs[done:until] = some_pairs[order]
            plan_directions[done:until] = some_directions[order]
            first = 1 + offset % self.max_tokens
            bounds.append(done + batch_ends(longest[order], self.max_tokens, first))
            done = until
        end = np.concatenate(bounds)
        begin = np.concatenate([[0], end[:-1]])
        order = shuffled(self.seed, epoch, _ORDER, 0, len(end))
        return Plan(plan_pairs, plan_directions, begin[order], end[order])

    def sizes(
        self, pairs: NDArray[np.int32], directions: NDArray[np.uint8]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the lengths of source and target sequences, special tokens included."""
        swapped = self.source_sides(pairs, directions) == 1
        first, second = self.lengths[0][pairs], self.lengths[1][pairs]
        sources = np.where(swapped, second, first) + np.int32(SOURCE_EXTRA)
        targets = np.where(swapped, first, second) + np.int32(TARGET_EXTRA)
        return np.minimum(sources, self.max_tokens), np.minimum(targets, self.max_tokens)

    def source_sides(
        self, pairs: NDArray[np.int32], directions: NDArray[np.uint8]
    ) -> NDArray[np.uint8]:
        """Return the side of each pair, 0 or 1, that is the source in its direction."""
        table = np.zeros((len(self.corpora), len(self.languages)), np.uint8)
        for row, corpus in enumerate(self.corpora):
            for direction, side in self.directions_of(corpus):
                table[row, direction] = side
        starts = np.array([corpus.start for corpus in self.corpora])
        return table[np.searchsorted(starts, pairs, "right") - 1, directions]

    def _examples(self, epoch: int) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """Return every pair that the epoch shows, in every direction, in no particular order."""
        pairs, directions = [], []
        for index, (corpus, count) in enumerate(zip(self.corpora, self._counts(), strict=True)):
            sampled = self._sampled(epoch, index, corpus.stop - corpus.start, count)
            for direction, _ in self.directions_of(corpus):
                pairs.append(np.int32(corpus.start) + sampled)
                directions.append(np.full(count, direction, np.uint8))
        return np.concatenate(pairs), np.concatenate(directions)

    def _counts(self) -> list[int]:
        """Return the number of pairs of each corpus in an epoch; their sum is that of all pairs."""
        sizes = [corpus.stop - corpus.start for corpus in self.corpora]
        weights = [corpus.weight for corpus in self.corpora]
        if len(set(weights)) == 1 and self.temperature in (None, 1.0):
            return sizes
        exact = np.array(mixing_shares(sizes, weights, self.temperature)) * sum(sizes)
        counts = np.floor(exact).astype(np.int64)
        remainders = np.argsort(counts - exact, kind="stable")
        counts[remainders[: sum(sizes) - int(counts.sum())]] += 1
        return [int(count) for count in counts]

    def _sampled(self, epoch: int, corpus: int, size: int, count: int) -> NDArray[np.int32]:
        """Sample `count` pairs of a corpus: all equally often, up to a difference of one."""
        whole = np.tile(np.arange(size, dtype=np.int32), count // size)
        if count % size == 0:
            return whole
        rest = shuffled(self.seed, epoch, _SAMPLE, corpus, size)[: count % size]
        return np.concatenate([whole, rest.astype(np.int32)])

    def _buckets(self, epoch: int, count: int, buckets: int) -> Iterator[NDArray[np.int64]]:
        """Distribute the examples at random over buckets of about the configured size."""
        if buckets == 1:
            yield np.arange(count)
            return
        bucket_of = np.empty(count, np.uint16 if buckets < 1 << 16 else np.uint32)
        step = 1 << 20
        for part, start in enumerate(range(0, count, step)):
            size = min(step, count - start)
            bits = random_bits(self.seed, epoch, _BUCKET, part, size)
            bucket_of[start : start + size] = bits % np.uint64(buckets)
        for bucket in range(buckets):
            members = np.flatnonzero(bucket_of == bucket)
            if len(members):
                yield members

    def _check_longest(self, split: Split, directions: Sequence[str]) -> None:
        longest, pair, direction = 0, 0, 0
        for corpus in self.corpora:
            for candidate, side in self.directions_of(corpus):
                for which, extra in ((side, SOURCE_EXTRA), (1 - side, TARGET_EXTRA)):
                    lengths = self.lengths[which][corpus.start : corpus.stop]
                    index = int(lengths.argmax())
                    if lengths[index] + extra > longest:
                        longest = int(lengths[index]) + extra
                        pair, direction = corpus.start + index, candidate
        if longest > self.max_tokens:
            raise InputError(
                f"max_tokens = {self.max_tokens} is too small for the longest sentence of "
                f"{split.name}, which has {longest} tokens (pair {split.numbers[pair]}, "
                f"{directions[direction]}): set max_tokens to {longest} or more, or drop long "
                "pairs with max_words or max_characters"
            )

    def _grown(self, side: int, growth: float) -> NDArray[np.int32]:
        grown: NDArray[np.int32] = np.ceil(self.lengths[side] * np.float32(growth)).astype(np.int32)
        return grown


def _by_length(
    longest: NDArray[np.int32], difference: NDArray[np.int32], turn: int
) -> NDArray[np.int64]:
    """Sort by the longer side, then by how much longer the source is.

    The second order alternates between ascending and descending, so that neighbours are similar
    also where the first key changes.
    """
    up = (longest + np.int32(turn & 1)) % 2 == 0
    return np.lexsort((np.where(up, difference, -difference), longest))


def batch_ends(longest: NDArray[np.int32], max_tokens: int, first: int) -> NDArray[np.int64]:
    """Return where batches end: each takes sentences while count * longest fits in `max_tokens`.

    The first batch gets only `first` tokens (or one sentence), which shifts all others. Otherwise,
    where few sentences have the same length, the same ones would share a batch in every epoch.
    """
    ends, start, count, room = [], 0, len(longest), first
    while start < count:
        most = max(1, room // int(longest[start]))
        widths = np.maximum.accumulate(longest[start : start + most]).astype(np.int64)
        areas = widths * np.arange(1, len(widths) + 1)
        start += max(1, int(np.searchsorted(areas, room, "right")))
        ends.append(start)
        room = max_tokens
    return np.array(ends, np.int64)
