"""A bilingual lexicon, extracted from sentence pairs with IBM Model 1.

People type one word and expect a dictionary's answer, but a corpus of sentences has few such lines.
IBM Model 1 (Brown and others, 1993) aligns words by expectation maximization: each word of one side
is explained by the words of the other in proportion to t(word | other word), and t is estimated
again from these expected counts, for a few iterations. That is done in both directions, and kept
are word pairs that are each other's best translation with a high probability.

Where a word translates to several ("please" to "s'il vous plaît"), the model finds one of them.
Such pairs can be recognised: in their sentences one side is longer than its length predicts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

ITERATIONS = 6
"""Iterations of expectation maximization; more change little."""

MIN_SCORE = 0.35
"""Minimum √(t(a | b) · t(b | a)) of a pair of words."""

MIN_COUNT = 2.5
"""Minimum expected number of times that the words of a pair are aligned."""

MIN_LETTERS = 3
"""Minimum length of a word: shorter ones are mostly articles and pronouns, which have several
translations."""

MAX_EXCESS = 1.0
"""Maximum mean number of words by which one side exceeds the length predicted from the other."""

_WORD = re.compile(r"aujourd'hui|[^\W\d_]+(?:-[^\W\d_]+)*(?:'[^\W\d_]{1,2}\b|')?")


class _Side(NamedTuple):
    """The words of one side of all pairs; a word counts once per sentence."""

    words: list[str]
    sentences: list[list[int]]


def lexicon(pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield pairs of words that translate each other, the most frequent first."""
    sides = [_read([pair[side] for pair in pairs]) for side in (0, 1)]
    links = _Links.between(*sides)
    if not len(links.kinds):
        return
    (forward, n_forward), (backward, n_backward) = links.estimate(0), links.estimate(1)
    score, count = np.sqrt(forward * backward), np.minimum(n_forward, n_backward)
    first, second = links.words(0), links.words(1)
    mutual = np.intersect1d(_best(first, score), _best(second, score))
    fits = (score >= MIN_SCORE) & (count >= MIN_COUNT) & (np.abs(links.excess()) <= MAX_EXCESS)
    kept = mutual[fits[mutual]]
    for number in kept[np.argsort(-count[kept], kind="stable")]:
        one, other = sides[0].words[first[number]], sides[1].words[second[number]]
        if min(len(one), len(other)) >= MIN_LETTERS and "'" not in one + other:
            yield one, other


def dictionary_lines(pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the lexicon as training pairs: as it is, capitalized, and with a full stop."""
    for one, other in lexicon(pairs):
        capitalized = one[:1].upper() + one[1:], other[:1].upper() + other[1:]
        yield one, other
        if capitalized != (one, other):
            yield capitalized
        yield f"{capitalized[0]}.", f"{capitalized[1]}."


def _read(sentences: Sequence[str]) -> _Side:
    numbers: dict[str, int] = {}
    found = []
    for sentence in sentences:
        plain = (sentence[:1].lower() + sentence[1:]).replace("’", "'")
        words = dict.fromkeys(_WORD.findall(plain))
        found.append([numbers.setdefault(word, len(numbers)) for word in words])
    return _Side(list(numbers), found)


class _Links(NamedTuple):
    """Every word of each sentence with every word of its translation.

    A *kind* is a pair of words; a *link* is one occurrence of it.
    """

    kinds: NDArray[np.int64]
    """Unique values of first word · size + second word."""
    size: int
    kind_of: NDArray[np.int64]
    """Kind of each link."""
    tokens: tuple[NDArray[np.int64], NDArray[np.int64]]
    """Token of each link on either side: a word in a sentence."""
    lengths: NDArray[np.int64]
    """(pairs, 2) Number of words of each sentence."""

    @classmethod
    def between(cls, first: _Side, second: _Side) -> _Links:
        size = max(1, len(second.words))
        keys, ones, others = [], [], []
        before = [0, 0]
        for a, b in zip(first.sentences, second.sentences, strict=True):
            grid = np.add.outer(np.array(a, np.int64) * size, np.array(b, np.int64))
            keys.append(grid.ravel())
            ones.append(np.repeat(np.arange(len(a)) + before[0], len(b)))
            others.append(np.tile(np.arange(len(b)) + before[1], len(a)))
            before = [before[0] + len(a), before[1] + len(b)]
        empty = np.zeros(0, np.int64)
        kinds, kind_of = np.unique(np.concatenate([empty, *keys]), return_inverse=True)
        tokens = np.concatenate([empty, *ones]), np.concatenate([empty, *others])
        lengths = np.array(
            [[len(a), len(b)] for a, b in zip(first.sentences, second.sentences, strict=True)]
        )
        return cls(kinds, size, kind_of, tokens, lengths)

    def words(self, side: int) -> NDArray[np.int64]:
        """Return the word of each kind on a side."""
        return self.kinds % self.size if side else self.kinds // self.size

    def estimate(self, given: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return t(other word | word of side `given`) of each kind, and its expected count."""
        explained, words = self.tokens[1 - given], self.words(given)
        t = count = np.ones(len(self.kinds))
        for _ in range(ITERATIONS):
            weight = t[self.kind_of]
            share = weight / np.bincount(explained, weight)[explained]
            count = np.bincount(self.kind_of, share).astype(np.float64)
            t = count / np.bincount(words, count)[words]
        return t, count

    def excess(self) -> NDArray[np.float64]:
        """Return by how many words the second side of the sentences of each kind exceeds, in the
        mean, the length that a linear regression on the first side predicts."""
        first, second = self.lengths[:, 0], self.lengths[:, 1]
        line = np.stack([first, np.ones_like(first)], axis=1)
        residual = second - line @ np.linalg.lstsq(line, second, rcond=None)[0]
        of_links = np.repeat(residual, first * second)
        return np.bincount(self.kind_of, of_links) / np.bincount(self.kind_of)


def _best(groups: NDArray[np.int64], score: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the index of the highest score in each group."""
    order = np.lexsort((-score, groups))
    sorted_groups = groups[order]
    first = np.ones(len(order), bool)
    first[1:] = sorted_groups[1:] != sorted_groups[:-1]
    return order[first]
