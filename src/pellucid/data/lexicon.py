"""Single words and their translations, found by counting over sentence pairs.

People type one word and expect a dictionary's answer; a corpus of sentences hardly has such lines.
IBM's first model (Brown and others, 1993) finds them in the sentences: each word of one side is
explained by the words of the other, in proportion to t(word | other word), and t is counted
again from the explanations, a few times over. That is done both ways; what is left are words that
are each other's best translation, and likely ones.

Where a word stands for several ("please" for "s'il vous plaît"), the model finds one of them.
Such pairs give themselves away: where they stand, one side is longer than sentences usually are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

ROUNDS = 6
"""How often t is counted again; more changes little."""

LIKELY = 0.35
"""The least √(t(a | b) · t(b | a)) of a pair of words."""

SEEN = 2.5
"""How many times at least a pair of words must have explained each other."""

SHORTEST = 3
"""Letters of a word: shorter ones are mostly articles and pronouns, with no one translation."""

LONGER = 1.0
"""How many words one side may have, in the mean, beyond what the length of the other suggests."""

_WORD = re.compile(r"aujourd'hui|[^\W\d_]+(?:-[^\W\d_]+)*(?:'[^\W\d_]{1,2}\b|')?")


class _Side(NamedTuple):
    """The words of one side of all pairs; each word counts once in a sentence."""

    words: list[str]
    sentences: list[list[int]]


def lexicon(pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Pairs of words that translate each other, those first that are seen most often."""
    sides = [_read([pair[side] for pair in pairs]) for side in (0, 1)]
    links = _Links.between(*sides)
    if not len(links.kinds):
        return
    (there, n_there), (back, n_back) = links.counted(0), links.counted(1)
    score, seen = np.sqrt(there * back), np.minimum(n_there, n_back)
    first, second = links.words(0), links.words(1)
    mutual = np.intersect1d(_best(first, score), _best(second, score))
    fits = (score >= LIKELY) & (seen >= SEEN) & (np.abs(links.excess()) <= LONGER)
    kept = mutual[fits[mutual]]
    for number in kept[np.argsort(-seen[kept], kind="stable")]:
        one, other = sides[0].words[first[number]], sides[1].words[second[number]]
        if min(len(one), len(other)) >= SHORTEST and "'" not in one + other:
            yield one, other


def dictionary_lines(pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The lexicon as lines to learn from: a word as it is, and as people begin or end one."""
    for one, other in lexicon(pairs):
        large = one[:1].upper() + one[1:], other[:1].upper() + other[1:]
        yield one, other
        if large != (one, other):
            yield large
        yield f"{large[0]}.", f"{large[1]}."


def _read(sentences: Sequence[str]) -> _Side:
    numbers: dict[str, int] = {}
    found = []
    for sentence in sentences:
        plain = (sentence[:1].lower() + sentence[1:]).replace("’", "'")
        words = dict.fromkeys(_WORD.findall(plain))
        found.append([numbers.setdefault(word, len(numbers)) for word in words])
    return _Side(list(numbers), found)


class _Links(NamedTuple):
    """Every word of a sentence with every word of its translation.

    A *kind* is a pair of words wherever they meet; a *link* is one of their meetings.
    """

    kinds: NDArray[np.int64]
    """first word · size + second word, each once."""
    size: int
    kind_of: NDArray[np.int64]
    """of a link"""
    tokens: tuple[NDArray[np.int64], NDArray[np.int64]]
    """of a link: which word of which sentence it has on either side"""
    lengths: NDArray[np.int64]
    """(pairs, 2) of each sentence, in words"""

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
        """Of each kind, its word on a side."""
        return self.kinds % self.size if side else self.kinds // self.size

    def counted(self, given: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of each kind t(its other word | its word of side `given`), and how often that was so."""
        told, words = self.tokens[1 - given], self.words(given)
        t = count = np.ones(len(self.kinds))
        for _ in range(ROUNDS):
            weight = t[self.kind_of]
            share = weight / np.bincount(told, weight)[told]
            count = np.bincount(self.kind_of, share).astype(np.float64)
            t = count / np.bincount(words, count)[words]
        return t, count

    def excess(self) -> NDArray[np.float64]:
        """Of each kind, by how many words the second side is longer where it stands than the
        length of the first suggests."""
        first, second = self.lengths[:, 0], self.lengths[:, 1]
        line = np.stack([first, np.ones_like(first)], axis=1)
        beyond = second - line @ np.linalg.lstsq(line, second, rcond=None)[0]
        of_links = np.repeat(beyond, first * second)
        return np.bincount(self.kind_of, of_links) / np.bincount(self.kind_of)


def _best(groups: NDArray[np.int64], score: NDArray[np.float64]) -> NDArray[np.int64]:
    """The number of the highest score in each group."""
    order = np.lexsort((-score, groups))
    sorted_groups = groups[order]
    first = np.ones(len(order), bool)
    first[1:] = sorted_groups[1:] != sorted_groups[:-1]
    return order[first]
