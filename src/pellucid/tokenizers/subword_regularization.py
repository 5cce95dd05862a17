"""Subword sampling: other ways to cut the same text into pieces, drawn from a seed.

SentencePiece can sample, but from a generator that is seeded once per thread and cannot be set
again, so a draw cannot be repeated. These two samplers draw from the generator they are given.

Pieces never reach over a space, so a sentence is cut word by word, and what a word can be cut
into is worked out once and remembered.
"""

from __future__ import annotations

import math
import random
import re
from bisect import bisect_right
from itertools import pairwise

SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # how SentencePiece writes a space inside a piece

_WORD = re.compile(f"{SPACE}?[^{SPACE}]+|{SPACE}")
_UNKNOWN_PENALTY = 10.0  # below the worst piece, as SentencePiece has it
_REMEMBERED_WORDS = 100_000
_LONGEST_REMEMBERED = 40

# What can end at a place in a word: cumulative probabilities, where each piece begins, its ids.
_Arrivals = tuple[list[float], list[int], list[list[int]]]


class UnigramSampler:
    """Draws a segmentation with probability proportional to exp(alpha * sum of piece scores).

    alpha -> infinity gives the best segmentation, alpha = 0 a uniform one.
    """

    def __init__(self, scores: dict[str, tuple[int, float]], bytes_from: int) -> None:
        self._scores = scores
        self._bytes_from = bytes_from
        self._longest = max(map(len, scores), default=1)
        self._unknown = min((s for _, s in scores.values()), default=0.0) - _UNKNOWN_PENALTY
        self._remembered: dict[tuple[str, float], list[_Arrivals]] = {}

    def sample(self, text: str, alpha: float, generator: random.Random) -> list[int]:
        """The ids of one segmentation of `text`, in which spaces are written as `SPACE`."""
        ids: list[int] = []
        for word in _WORD.findall(text):
            ids += self._draw(self._arrivals(word, alpha), generator)
        return ids

    @staticmethod
    def _draw(arrivals: list[_Arrivals], generator: random.Random) -> list[int]:
        """Walk back from the end of the word, at each place choosing the piece that ends there."""
        pieces: list[list[int]] = []
        end = len(arrivals)
        while end:
            cumulative, starts, ids = arrivals[end - 1]
            last = len(starts) - 1
            choice = min(bisect_right(cumulative, generator.random()), last) if last else 0
            pieces.append(ids[choice])
            end = starts[choice]
        return [token for piece in reversed(pieces) for token in piece]

    def _arrivals(self, word: str, alpha: float) -> list[_Arrivals]:
        key = (word, alpha)
        known = self._remembered.get(key)
        if known is None:
            known = self._compute(word, alpha)
            if len(word) <= _LONGEST_REMEMBERED:
                if len(self._remembered) >= _REMEMBERED_WORDS:
                    self._remembered.clear()
                self._remembered[key] = known
        return known

    def _compute(self, word: str, alpha: float) -> list[_Arrivals]:
        """The forward pass: the total weight of all ways to reach each place in the word."""
        reached = [0.0]  # log of the total weight, by place
        arrivals: list[_Arrivals] = []
        for end in range(1, len(word) + 1):
            starts, ids, weights = [], [], []
            for start in range(max(0, end - self._longest), end):
                found = self._scores.get(word[start:end])
                if found is not None:
                    starts.append(start)
                    ids.append([found[0]])
                    weights.append(reached[start] + alpha * found[1])
                elif start == end - 1:  # a character that is no piece is spelled in bytes
                    starts.append(start)
                    ids.append([self._bytes_from + byte for byte in word[start:end].encode()])
                    weights.append(reached[start] + alpha * self._unknown)
            top = max(weights)
            shares = [math.exp(weight - top) for weight in weights]
            total = math.fsum(shares)
            reached.append(top + math.log(total))
            cumulative, so_far = [], 0.0
            for share in shares:
                so_far += share / total
                cumulative.append(so_far)
            arrivals.append((cumulative, starts, ids))
        return arrivals


class BpeDropout:
    """Byte-pair merges, each left out with a probability each time it could be made."""

    def __init__(self, scores: dict[str, tuple[int, float]], bytes_from: int) -> None:
        self._scores = scores
        self._bytes_from = bytes_from

    def sample(self, text: str, dropout: float, generator: random.Random) -> list[int]:
        """The ids of one segmentation of `text`, in which spaces are written as `SPACE`."""
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
            best, place = -math.inf, -1
            for index, score in enumerate(pairs):
                if score > best and (not dropout or draw() >= dropout):
                    best, place = score, index
            if place < 0:
                break
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
            del pairs[place]
            if place > 0:
                pairs[place - 1] = self._score(pieces[place - 1], pieces[place])
            if place < len(pairs):
                pairs[place] = self._score(pieces[place], pieces[place + 1])
        return pieces

    def _score(self, left: str, right: str) -> float:
        found = self._scores.get(left + right)
        return found[1] if found is not None else -math.inf
