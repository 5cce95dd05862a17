"""Is a difference more than chance? sacreBLEU's paired bootstrap, from statistics computed once.

The test set is resampled many times, by drawing as many sentences from it with replacement; each
resample scores both systems on the same sentences (paired bootstrap resampling, Koehn 2004). The
resamples, the p-value and the interval of a score are those of `sacrebleu --paired-bs` and
`--confidence` with the same seed, number by number, in memory that does not grow with the number of
resamples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pellucid.evaluation.metrics.corpus_metric import CorpusMetric, Statistics

ResampledScores = NDArray[np.float64]
"""The score of each resample."""

LEVEL = 0.05
"""Significance level: a difference with a smaller p-value counts as real."""

_DRAWS_IN_MEMORY = 1 << 24  # sentence numbers


@dataclass(frozen=True)
class Interval:
    """95% confidence interval of a score: where it would be on other sentences of this kind."""

    mean: float
    low: float
    high: float

    @property
    def margin(self) -> float:
        """Half of its width, which sacreBLEU prints after ±."""
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class PairedDifference:
    """Difference of two systems in one metric."""

    value: float
    """The score of the first minus that of the second."""
    p_value: float
    """Probability of a difference as large if the systems were equally good."""
    low: float
    high: float
    """95% interval of the difference over the resamples."""
    wins: float
    """Fraction of resamples in which the first is better; a tie counts half."""


def draw_resamples(sentences: int, resamples: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Yield the sentence numbers of each resample, some resamples at a time."""
    generator = np.random.default_rng(seed)
    rows = max(1, _DRAWS_IN_MEMORY // sentences)
    for start in range(0, resamples, rows):
        count = min(rows, resamples - start)
        yield generator.choice(sentences, size=(count, sentences), replace=True)


def resample_scores(
    metric: CorpusMetric, statistics: Statistics, resamples: int, seed: int
) -> ResampledScores:
    """Return the score of each resample."""
    scores = []
    for drawn in draw_resamples(len(statistics), resamples, seed):
        for row in drawn:
            times = np.bincount(row, minlength=len(statistics))
            scores.append(metric.score(times @ statistics))
    return np.array(scores)


def interval(scores: ResampledScores) -> Interval:
    """Return the mean of the resamples, and the bounds that cut off 1 of 40 on each side."""
    ordered = np.sort(scores)
    cut = len(ordered) // 40
    return Interval(float(ordered.mean()), float(ordered[cut]), float(ordered[-1 - cut]))


def paired_difference(
    value: float, first: ResampledScores, second: ResampledScores, *, higher_is_better: bool
) -> PairedDifference:
    """Compare two systems over the same resamples; `value` is the difference of their scores.

    Equal scores have the p-value 1. (sacreBLEU gives a small one to a system that is compared with
    itself.)
    """
    differences = first - second
    bounds = interval(differences)
    sizes = np.abs(differences)
    # shifted by their mean, the differences are those of systems that are equally good
    as_large = int(np.sum(sizes - sizes.mean() > abs(value)))
    better = np.sign(differences) * (1 if higher_is_better else -1)
    return PairedDifference(
        value,
        (as_large + 1) / (len(differences) + 1) if value else 1.0,
        bounds.low,
        bounds.high,
        float(np.mean((better + 1) / 2)),
    )
