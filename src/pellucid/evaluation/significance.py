"""Is a difference more than chance? sacreBLEU's paired bootstrap, from counts made once.

The test set is drawn again from itself, sentence by sentence, many times; each draw scores both
systems on the same sentences. The draws, the p-value and the interval of a score are those of
`sacrebleu --paired-bs` and `--confidence` with the same seed, number by number, in memory that does
not grow with the number of draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pellucid.evaluation.metrics.sacrebleu import Counts, Measure

Scores = NDArray[np.float64]
"""The score of each resample."""

LEVEL = 0.05
"""Differences with a smaller p-value are called real."""

_AT_ONCE = 1 << 24  # drawn numbers held in memory


@dataclass(frozen=True)
class Interval:
    """Where a score would lie on other sentences of this kind: 95 of 100 times."""

    mean: float
    low: float
    high: float

    @property
    def margin(self) -> float:
        """Half of its width: what sacreBLEU prints after ±."""
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Difference:
    """How two systems compare by one measure."""

    value: float
    """The score of the first minus that of the second."""
    p_value: float
    """How probable a difference as large is, if the systems are equally good."""
    low: float
    high: float
    """The interval of the difference: 95 of 100 resamples lie in it."""
    wins: float
    """The share of resamples in which the first is better; a tie counts half."""


def draws(sentences: int, resamples: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Which sentences each resample has, some resamples at a time."""
    generator = np.random.default_rng(seed)
    rows = max(1, _AT_ONCE // sentences)
    for start in range(0, resamples, rows):
        count = min(rows, resamples - start)
        yield generator.choice(sentences, size=(count, sentences), replace=True)


def resampled(measure: Measure, counts: Counts, resamples: int, seed: int) -> Scores:
    """The score of each resample."""
    scores = []
    for drawn in draws(len(counts), resamples, seed):
        for row in drawn:
            times = np.bincount(row, minlength=len(counts))
            scores.append(measure.score(times @ counts))
    return np.array(scores)


def interval(scores: Scores) -> Interval:
    """The mean of resamples, and the bounds that 1 of 40 on each side lie beyond."""
    ordered = np.sort(scores)
    beyond = len(ordered) // 40
    return Interval(float(ordered.mean()), float(ordered[beyond]), float(ordered[-1 - beyond]))


def difference(
    value: float, first: Scores, second: Scores, *, higher_is_better: bool
) -> Difference:
    """Compare two systems over the same resamples; `value` is the difference of their scores.

    Equal scores have the p-value 1. (sacreBLEU gives a small one to a system that is compared with
    itself.)
    """
    differences = first - second
    bounds = interval(differences)
    sizes = np.abs(differences)
    beyond = int(np.sum(sizes - sizes.mean() > abs(value)))
    better = np.sign(differences) * (1 if higher_is_better else -1)
    return Difference(
        value,
        (beyond + 1) / (len(differences) + 1) if value else 1.0,
        bounds.low,
        bounds.high,
        float(np.mean((better + 1) / 2)),
    )
