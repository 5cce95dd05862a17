"""What the evaluation needs of a metric.

A metric computes the sufficient statistics of each sentence once (matching n-grams, edits,
lengths). Every score that is asked for later, of the whole set, of its short sentences, of one
sentence or of a thousand bootstrap resamples, is computed from sums of these statistics, so that
nothing is counted twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Statistics = NDArray[np.float64]
"""(sentences, statistics of the metric)"""


class CorpusMetric(Protocol):
    """A metric whose corpus score is a function of summed sentence statistics."""

    key: str
    """Its name in JSON."""
    name: str
    """Its name for people."""
    higher_is_better: bool
    digits: int
    """Digits after the decimal point that are worth showing."""

    def statistics(self, sources: Sequence[str], translations: Sequence[str]) -> Statistics:
        """Return a row of statistics for each sentence."""
        ...

    def score(self, summed: NDArray[np.float64]) -> float:
        """Return the score of a set of sentences, from the sum of their rows."""
        ...

    def signature(self, resamples: int, seed: int) -> str:
        """Return the settings that two scores must share to be comparable."""
        ...

    def detail(self, summed: NDArray[np.float64]) -> dict[str, Any]:
        """Return what else is known of a score, for JSON."""
        ...
