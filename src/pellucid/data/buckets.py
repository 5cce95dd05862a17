"""Which sentence pairs an epoch shows, and in which batches.

Everything here is decided by (seed, epoch) and the lengths of the pairs, and is the same on every
machine: random numbers are the raw output of Philox, a counter-based generator, and order is made
from them by stable sorting.

Memory grows by a few bytes a pair, never by Python objects. Measured for 10 million pairs in two
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
"""A source is its pieces, the tag before and the end after."""

TARGET_EXTRA = 1
"""A target is its pieces and the beginning before (as input) or the end after (as output)."""

# What a stream of random numbers is for; each has its own, far from the others.
_DRAW, _WINDOW, _MIX, _ORDER, _CUT = range(5)


def random_bits(seed: int, epoch: int, purpose: int, part: int, count: int) -> NDArray[np.uint64]:
    """Random 64-bit numbers that depend on the arguments alone."""
    key = np.array([seed, epoch], np.uint64)
    counter = np.array([0, 0, part, purpose], np.uint64)
    bits: NDArray[np.uint64] = np.random.Philox(key=key, counter=counter).random_raw(count)
    return bits


def shuffled(seed: int, epoch: int, purpose: int, part: int, count: int) -> NDArray[np.int64]:
    """The numbers below `count` in random order."""
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
    """Plans epochs over a split; `growth` is by how much sampling lengthens sentences."""

    def __init__(
        self,
        split: Split,
        directions: Sequence[str],
        *,
        tokens: int,
        window: int,
        seed: int,
        temperature: float | None = None,
        growth: float = 1.0,
    ) -> None:
        self.tokens = tokens
        self.window = window
        self.seed = seed
        self.temperature = temperature
        self.ways = [split_direction(direction) for direction in directions]
        self.corpora = [c for c in split.corpora if c.stop > c.start and self.ways_of(c)]
        if not self.corpora:
            raise InputError(f"{split.name} has no pair for {', '.join(directions)}")
        self.lengths = (split.lengths(0), split.lengths(1))
        self._check_longest(split, directions)
        if growth > 1:
            self.lengths = (self._grown(0, growth), self._grown(1, growth))

    def ways_of(self, corpus: StoredCorpus) -> list[tuple[int, int]]:
        """The directions a corpus is read in, each with the side that is its source."""
        return [
            (direction, corpus.languages.index(source))
            for direction, (source, target) in enumerate(self.ways)
            if {source, target} == set(corpus.languages)
        ]

    def plan(self, epoch: int) -> Plan:
        """The batches of an epoch in their order."""
        pairs, directions = self._examples(epoch)
        count = len(pairs)
        windows = -(-count // self.window)
        plan_pairs, plan_directions = np.empty_like(pairs), np.empty_like(directions)
        bounds: list[NDArray[np.int64]] = []
        done = 0
        for members in self._windows(epoch, count, windows):
            members = members[shuffled(self.seed, epoch, _MIX, len(bounds), len(members))]
            some_pairs, some_directions = pairs[members], directions[members]
            sources, targets = self.sizes(some_pairs, some_directions)
            longest = np.maximum(sources, targets)
            first, turn = random_bits(self.seed, epoch, _CUT, len(bounds), 2).tolist()
            order = _by_length(longest, sources - targets, turn)
            until = done + len(members)
            plan_pairs[done:until] = some_pairs[order]
            plan_directions[done:until] = some_directions[order]
            bounds.append(done + cut(longest[order], self.tokens, 1 + first % self.tokens))
            done = until
        end = np.concatenate(bounds)
        begin = np.concatenate([[0], end[:-1]])
        order = shuffled(self.seed, epoch, _ORDER, 0, len(end))
        return Plan(plan_pairs, plan_directions, begin[order], end[order])

    def sizes(
        self, pairs: NDArray[np.int32], directions: NDArray[np.uint8]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Lengths of source and target sequences, special tokens included."""
        swapped = self.source_sides(pairs, directions) == 1
        first, second = self.lengths[0][pairs], self.lengths[1][pairs]
        sources = np.where(swapped, second, first) + np.int32(SOURCE_EXTRA)
        targets = np.where(swapped, first, second) + np.int32(TARGET_EXTRA)
        return np.minimum(sources, self.tokens), np.minimum(targets, self.tokens)

    def source_sides(
        self, pairs: NDArray[np.int32], directions: NDArray[np.uint8]
    ) -> NDArray[np.uint8]:
        """Which side of each pair, 0 or 1, is the source in its direction."""
        table = np.zeros((len(self.corpora), len(self.ways)), np.uint8)
        for row, corpus in enumerate(self.corpora):
            for direction, side in self.ways_of(corpus):
                table[row, direction] = side
        starts = np.array([corpus.start for corpus in self.corpora])
        return table[np.searchsorted(starts, pairs, "right") - 1, directions]

    def _examples(self, epoch: int) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """Every pair that the epoch shows, in every direction, in no particular order."""
        pairs, directions = [], []
        for place, (corpus, count) in enumerate(zip(self.corpora, self._draws(), strict=True)):
            drawn = self._drawn(epoch, place, corpus.stop - corpus.start, count)
            for direction, _ in self.ways_of(corpus):
                pairs.append(np.int32(corpus.start) + drawn)
                directions.append(np.full(count, direction, np.uint8))
        return np.concatenate(pairs), np.concatenate(directions)

    def _draws(self) -> list[int]:
        """How many pairs of each corpus an epoch shows: as many in all as there are."""
        sizes = [corpus.stop - corpus.start for corpus in self.corpora]
        weights = [corpus.weight for corpus in self.corpora]
        if len(set(weights)) == 1 and self.temperature in (None, 1.0):
            return sizes
        exact = np.array(mixing_shares(sizes, weights, self.temperature)) * sum(sizes)
        counts = np.floor(exact).astype(np.int64)
        remainders = np.argsort(counts - exact, kind="stable")
        counts[remainders[: sum(sizes) - int(counts.sum())]] += 1
        return [int(count) for count in counts]

    def _drawn(self, epoch: int, place: int, size: int, count: int) -> NDArray[np.int32]:
        """`count` pairs of a corpus: each as often as any other, give or take one."""
        whole = np.tile(np.arange(size, dtype=np.int32), count // size)
        if count % size == 0:
            return whole
        rest = shuffled(self.seed, epoch, _DRAW, place, size)[: count % size]
        return np.concatenate([whole, rest.astype(np.int32)])

    def _windows(self, epoch: int, count: int, windows: int) -> Iterator[NDArray[np.int64]]:
        """The examples dealt at random into windows of about the size asked for."""
        if windows == 1:
            yield np.arange(count)
            return
        dealt = np.empty(count, np.uint16 if windows < 1 << 16 else np.uint32)
        step = 1 << 20
        for part, start in enumerate(range(0, count, step)):
            size = min(step, count - start)
            bits = random_bits(self.seed, epoch, _WINDOW, part, size)
            dealt[start : start + size] = bits % np.uint64(windows)
        for window in range(windows):
            members = np.flatnonzero(dealt == window)
            if len(members):
                yield members

    def _check_longest(self, split: Split, directions: Sequence[str]) -> None:
        longest, pair, way = 0, 0, 0
        for corpus in self.corpora:
            for direction, side in self.ways_of(corpus):
                for which, extra in ((side, SOURCE_EXTRA), (1 - side, TARGET_EXTRA)):
                    lengths = self.lengths[which][corpus.start : corpus.stop]
                    place = int(lengths.argmax())
                    if lengths[place] + extra > longest:
                        longest = int(lengths[place]) + extra
                        pair, way = corpus.start + place, direction
        if longest > self.tokens:
            raise InputError(
                f"tokens = {self.tokens} is too small for the longest sentence of {split.name}, "
                f"which has {longest} tokens (pair {split.numbers[pair]}, {directions[way]}): set "
                f"tokens to {longest} or more, or drop long pairs with max_words or max_characters"
            )

    def _grown(self, side: int, growth: float) -> NDArray[np.int32]:
        grown: NDArray[np.int32] = np.ceil(self.lengths[side] * np.float32(growth)).astype(np.int32)
        return grown


def _by_length(
    longest: NDArray[np.int32], difference: NDArray[np.int32], turn: int
) -> NDArray[np.int64]:
    """Order by the longer side, and among equals by how much the source is longer.

    The second goes up and down in turn, so that neighbours are alike where the first changes too.
    """
    up = (longest + np.int32(turn & 1)) % 2 == 0
    return np.lexsort((np.where(up, difference, -difference), longest))


def cut(longest: NDArray[np.int32], tokens: int, first: int) -> NDArray[np.int64]:
    """Where batches end: each takes sentences as long as count times longest fits in `tokens`.

    The first batch gets only `first` tokens (or one sentence), which moves all others: where few
    sentences are of a length, the same ones would stand together in every epoch otherwise.
    """
    ends, start, count, room = [], 0, len(longest), first
    while start < count:
        most = max(1, room // int(longest[start]))
        widths = np.maximum.accumulate(longest[start : start + most]).astype(np.int64)
        areas = widths * np.arange(1, len(widths) + 1)
        start += max(1, int(np.searchsorted(areas, room, "right")))
        ends.append(start)
        room = tokens
    return np.array(ends, np.int64)
