"""Subword regularization: random segmentations of a text, reproducible from a seed.

SentencePiece can sample, but its generator is seeded once per thread and cannot be set again, so a
sample cannot be repeated. The two samplers here (unigram sampling, Kudo 2018; BPE-dropout,
Provilkov and others 2020) use the generator they are given.

Pieces never cross a space, so a sentence is segmented word by word, and the possible segmentations
of a word are computed once and cached.
"""

from __future__ import annotations

import math
import random
import re
from bisect import bisect_right
from itertools import pairwise

SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # how SentencePiece writes a space inside a piece

_WORD = re.compile(f"{SPACE}?[^{SPACE}]+|{SPACE}")
_UNKNOWN_PENALTY = 10.0  # below the worst piece, as in SentencePiece
_CACHED_WORDS = 100_000
_LONGEST_CACHED = 40

# The pieces that end at a position: cumulative probabilities, where each begins, its ids.
_Endings = tuple[list[float], list[int], list[list[int]]]


class UnigramSampler:
    """Samples a segmentation with probability proportional to exp(alpha * sum of piece scores).

    alpha -> infinity gives the best segmentation; alpha = 0 samples uniformly.
    """

    def __init__(self, scores: dict[str, tuple[int, float]], bytes_from: int) -> None:
        self._scores = scores
        self._bytes_from = bytes_from
        self._longest = max(map(len, scores), default=1)
        self._unknown = min((s for _, s in scores.values()), default=0.0) - _UNKNOWN_PENALTY
        self._cache: dict[tuple[str, float], list[_Endings]] = {}

    def sample(self, text: str, alpha: float, generator: random.Random) -> list[int]:
        """Return the ids of a random segmentation of `text`, in which spaces are `SPACE`."""
        ids: list[int] = []
        for word in _WORD.findall(text):
            ids += self._draw(self._lattice(word, alpha), generator)
        return ids

    @staticmethod
    def _draw(lattice: list[_Endings], generator: random.Random) -> list[int]:
        """Sample backwards from the end of the word: at each position a piece that ends there."""
        pieces: list[list[int]] = []
        end = len(lattice)
        while end:
            cumulative, starts, ids = lattice[end - 1]
            last = len(starts) - 1
            choice = min(bisect_right(cumulative, generator.random()), last) if last else 0
            pieces.append(ids[choice])
            end = starts[choice]
        return [token for piece in reversed(pieces) for token in piece]

    def _lattice(self, word: str, alpha: float) -> list[_Endings]:
        key = (word, alpha)
        known = self._cache.get(key)
        if known is None:
            known = self._compute(word, alpha)
            if len(word) <= _LONGEST_CACHED:
                if len(self._cache) >= _CACHED_WORDS:
                    self._cache.clear()
                self._cache[key] = known
        return known

    def _compute(self, word: str, alpha: float) -> list[_Endings]:
        """Run the forward algorithm: sum the weights of all segmentations up to each position."""
        total_weight = [0.0]  # log of the total weight, by position
        lattice: list[_Endings] = []
        for end in range(1, len(word) + 1):
            starts, ids, weights = [], [], []
            for start in range(max(0, end - self._longest), end):
                found = self._scores.get(word[start:end])
                if found is not None:
                    starts.append(start)
                    ids.append([found[0]])
                    weights.append(total_weight[start] + alpha * found[1])
                elif start == end - 1:  # a character without a piece is encoded in bytes
                    starts.append(start)
                    ids.append([self._bytes_from + byte for byte in word[start:end].encode()])
                    weights.append(total_weight[start] + alpha * self._unknown)
            top = max(weights)
            shares = [math.exp(weight - top) for weight in weights]
            total = math.fsum(shares)
            total_weight.append(top + math.log(total))
            cumulative, so_far = [], 0.0
            for share in shares:
                so_far += share / total
                cumulative.append(so_far)
            lattice.append((cumulative, starts, ids))
        return lattice


class BpeDropout:
    """BPE-dropout: each possible merge is skipped with a probability, at each step."""

    def __init__(self, scores: dict[str, tuple[int, float]], bytes_from: int) -> None:
        self._scores = scores
        self._bytes_from = bytes_from

    def sample(self, text: str, dropout: float, generator: random.Random) -> list[int]:
        """Return the ids of a random segmentation of `text`, in which spaces are `SPACE`."""
        ids: list[int] = []
        for word in _WORD.findall(text):
            for piece in self._merge(list(word), dropout, generator):
                found = self._scores.get(piece)
                if found is not None:
                    ids.append(found[0])
                else:
                    ids += [self._bytes_from + byte for byte in piece.encode()]
        return ids

    def _merge(self, pieces: list[str], dropout: float, generator: random.Random) -> list[str]:
        pairs = [self._score(a, b) for a, b in pairwise(pieces)]
        draw = generator.random
        while pairs:
            best, position = -math.inf, -1
            for index, score in enumerate(pairs):
                if score > best and (not dropout or draw() >= dropout):
                    best, position = score, index
            if position < 0:
                break
            pieces[position : position + 2] = [pieces[position] + pieces[position + 1]]
            del pairs[position]
            if position > 0:
                pairs[position - 1] = self._score(pieces[position - 1], pieces[position])
            if position < len(pairs):
                pairs[position] = self._score(pieces[position], pieces[position + 1])
        return pieces

    def _score(self, left: str, right: str) -> float:
        found = self._scores.get(left + right)
        return found[1] if found is not None else -math.inf
