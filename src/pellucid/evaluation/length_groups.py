"""Separate scores for short and long sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pellucid.evaluation.metrics.corpus_metric import CorpusMetric, Statistics
from pellucid.evaluation.test_set import EvaluationSet, words

EDGES = (1, 6, 11, 16, 21, 31, 41, 61)
"""Minimum length of each group, in words of the source."""

FEW = 30
"""A group of fewer sentences has a score that says little."""


@dataclass(frozen=True)
class LengthGroup:
    """Sentences of similar length, by index."""

    low: int
    high: int | None
    """Maximum length; None: any."""
    indices: list[int]

    @property
    def label(self) -> str:
        """E.g. 6-10, 61+."""
        if self.high is None:
            return f"{self.low}+"
        return f"{self.low}-{self.high}" if self.high > self.low else str(self.low)


@dataclass(frozen=True)
class LengthGroupScores:
    """A system's scores on one group."""

    group: LengthGroup
    scores: dict[str, float]
    length_ratio: float
    """Characters of the translations relative to those of the (first) references."""

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "from": self.group.low,
            "to": self.group.high,
            "sentences": len(self.group.indices),
            **self.scores,
            "length_ratio": self.length_ratio,
        }


def group_by_length(sources: Sequence[str]) -> list[LengthGroup]:
    """Group sentences by their number of words; empty groups are left out."""
    lengths = [len(words(source)) for source in sources]
    groups = []
    for low, after in zip(EDGES, (*EDGES[1:], None), strict=True):
        floor = 0 if low == EDGES[0] else low  # a line without a word counts as a short one
        indices = [
            index
            for index, length in enumerate(lengths)
            if length >= floor and (after is None or length < after)
        ]
        if indices:
            groups.append(LengthGroup(low, None if after is None else after - 1, indices))
    return groups


def score_by_length(
    groups: Sequence[LengthGroup],
    test_set: EvaluationSet,
    texts: Sequence[str],
    metrics: Sequence[CorpusMetric],
    statistics: dict[str, Statistics],
) -> list[LengthGroupScores]:
    """Score each group."""
    made = []
    for group in groups:
        length = sum(len(texts[index]) for index in group.indices)
        reference_length = sum(len(test_set.references[0][index]) for index in group.indices)
        scores = {m.key: m.score(statistics[m.key][group.indices].sum(axis=0)) for m in metrics}
        made.append(LengthGroupScores(group, scores, length / max(reference_length, 1)))
    return made
