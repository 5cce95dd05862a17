"""What BLEU, chrF and TER have in common: they are sacreBLEU's metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pellucid.errors import MissingExtraError
from pellucid.evaluation.metrics.corpus_metric import Statistics

BATCH_SENTENCES = 1000
"""Sentences whose statistics are computed together; a reference's n-grams take some 30 KB."""


class SacreBleuMetric:
    """One of sacreBLEU's metrics with its references.

    sacreBLEU computes statistics and scores in methods whose names begin with an underscore; they
    have been the same since its version 2.0, and tests/parity/test_sacrebleu.py compares the
    results with its public functions.
    """

    digits = 1

    def __init__(
        self,
        key: str,
        name: str,
        metric: Any,
        references: Sequence[Sequence[str]],
        higher_is_better: bool = True,
    ) -> None:
        self.key, self.name, self.higher_is_better = key, name, higher_is_better
        self._metric, self._references = metric, references

    def statistics(self, sources: Sequence[str], translations: Sequence[str]) -> Statistics:
        """Return a row of statistics for each sentence, against the metric's references."""
        rows: list[Any] = []
        for start in range(0, len(translations), BATCH_SENTENCES):
            batch = slice(start, start + BATCH_SENTENCES)
            rows += self._metric._extract_corpus_statistics(
                translations[batch], [reference[batch] for reference in self._references]
            )
        return np.array(rows, dtype=np.float64)

    def score(self, summed: NDArray[np.float64]) -> float:
        """Return the score of a set of sentences, from the sum of their rows."""
        return float(self._metric._compute_score_from_stats(summed).score)

    def signature(self, resamples: int, seed: int) -> str:
        """Return sacreBLEU's signature, complete once statistics were computed."""
        signature = self._metric.get_signature()
        if resamples:
            signature.update("bs", resamples)
            signature.update("seed", seed)
        return str(signature)

    def detail(self, summed: NDArray[np.float64]) -> dict[str, Any]:
        """Return nothing more, unless the metric has more to say."""
        return {}


def import_sacrebleu() -> Any:
    """Import sacreBLEU's metrics."""
    try:
        from sacrebleu import metrics
    except ImportError:
        raise MissingExtraError("evaluating", "evaluate") from None
    return metrics
