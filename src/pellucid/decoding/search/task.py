"""The input of a search: sentences with their limits, checked before the first step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from pellucid.decoding.engine import SpecialIds
from pellucid.decoding.options import DecodingOptions, penalty
from pellucid.decoding.steps import NEAR_TIE, EndReason, Hypothesis, Result
from pellucid.errors import InputError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Task:
    """Sentences to decode: for each its prefix, its minimum and maximum output length, its key."""

    options: DecodingOptions
    special: SpecialIds
    sources: list[list[int]]
    prefixes: list[list[int]]
    limits: list[int]
    """Maximum output length of each sentence, the end token counted."""
    minimums: list[int]
    """Minimum output length of each sentence."""
    keys: list[int]
    """Identifies a sentence in the random draws of sampling."""

    @cached_property
    def limit_table(self) -> np.ndarray:
        """`limits` as an array, to index by many sentences at once."""
        import numpy as np

        return np.array(self.limits, dtype=np.int64)

    @cached_property
    def minimum_table(self) -> np.ndarray:
        """`minimums` as an array, to index by many sentences at once."""
        import numpy as np

        return np.array(self.minimums, dtype=np.int64)

    @cached_property
    def longest_prefix(self) -> int:
        """Length of the longest forced prefix."""
        return max(map(len, self.prefixes), default=0)

    def forced(self, sentences: np.ndarray, position: int) -> np.ndarray | None:
        """Return each sentence's prefix token at a position, -1 where free; None if all are."""
        if position >= self.longest_prefix:
            return None
        import numpy as np

        prefixes = (self.prefixes[s] for s in sentences)
        return np.array([p[position] if position < len(p) else -1 for p in prefixes])

    def common_prefix_length(self, sentences: np.ndarray) -> int:
        """Return how many tokens are forced in every sentence."""
        return min((len(self.prefixes[s]) for s in sentences), default=0)

    def normalised(self, sums: np.ndarray, length: int) -> np.ndarray:
        """Return log-probabilities divided by the length penalty."""
        return sums / penalty(
            self.options.length_normalization, self.options.length_penalty, length
        )

    def result(self, sentence: int, finished: list[Hypothesis], near_tie: bool) -> Result:
        """Return the n best of a sentence's finished hypotheses; of equal ones the earlier."""
        n = self.options.n_best
        ranked = sorted(finished, key=lambda h: -h.score)
        scores = [h.score for h in ranked[: n + 1]]
        close = any(a - b < NEAR_TIE for a, b in pairwise(scores))
        return Result(tuple(ranked[:n]), near_tie or close, len(self.prefixes[sentence]))

    def trivial(self, sentence: int) -> Result | None:
        """Return the result of a sentence without a search: empty source or maximum length 0."""
        ended: EndReason
        if not self.sources[sentence]:
            ended = "empty"
        elif self.limits[sentence] == 0:
            ended = "length"
        else:
            return None
        return Result((Hypothesis((), 0, 0.0, 0.0, ended, ()),))


def plan(
    sources: Sequence[Sequence[int]],
    options: DecodingOptions,
    special: SpecialIds,
    *,
    vocab_size: int,
    source_vocab_size: int | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
    keys: Sequence[int] | None = None,
    longest: int | None = None,
) -> Task:
    """Check ids and prefixes, and compute each sentence's length limits.

    longest: the most output tokens that the model has positions for.
    """
    given = [[int(token) for token in source] for source in sources]
    forced = [[] for _ in given] if prefixes is None else [[int(t) for t in p] for p in prefixes]
    if len(forced) != len(given):
        raise InputError(
            f"{len(forced)} prefixes for {len(given)} sentences: give one for each, empty for none"
        )
    if keys is not None and len(keys) != len(given):
        raise InputError(f"{len(keys)} keys for {len(given)} sentences: give one for each")
    for number, source in enumerate(given):
        _check_ids(source, f"source {number}", source_vocab_size or vocab_size, {special.pad})
        where = f"prefix {number}"
        _check_ids(forced[number], where, vocab_size, {special.pad, special.start, special.end})
        if forced[number] and not source:
            raise InputError(f"{where} has no source to translate: leave it empty")
    outside = [t for t in options.suppress_tokens if not 0 <= t < vocab_size]
    if outside:
        raise InputError(
            f"suppress_tokens: token {outside[0]} is outside the vocabulary of {vocab_size}"
        )

    limits = [options.limit(len(source)) for source in given]
    if longest is not None:
        limits = [min(limit, longest) for limit in limits]
    limits = [max(limit, len(prefix)) for limit, prefix in zip(limits, forced, strict=True)]
    minimums = [min(options.min_length, limit) for limit in limits]
    chosen = list(range(len(given))) if keys is None else [int(key) for key in keys]
    return Task(options, special, given, forced, limits, minimums, chosen)


def _check_ids(ids: list[int], where: str, vocab_size: int, reserved: set[int]) -> None:
    if not ids:
        return
    if min(ids) < 0 or max(ids) >= vocab_size:
        wrong = next(token for token in ids if not 0 <= token < vocab_size)
        raise InputError(
            f"{where}: token id {wrong} is outside the vocabulary of {vocab_size}: "
            "was it made with this model's tokenizer?"
        )
    clash = reserved.intersection(ids)
    if clash:
        raise InputError(
            f"{where}: token id {min(clash)} is a special token and not allowed here: remove it"
        )
