"""Scores apart for short and long sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pellucid.evaluation.metrics.sacrebleu import Counts, Measure
from pellucid.evaluation.test_set import Material, words

EDGES = (1, 6, 11, 16, 21, 31, 41, 61)
"""The shortest sentence of each group, in words of the source."""

FEW = 30
"""Sentences; a score of fewer says little."""


@dataclass(frozen=True)
class LengthGroup:
    """Sentences of similar length."""

    low: int
    high: int | None
    """The longest it may have; None: any."""
    places: list[int]

    @property
    def label(self) -> str:
        """E.g. 6-10, 61+."""
        if self.high is None:
            return f"{self.low}+"
        return f"{self.low}-{self.high}" if self.high > self.low else str(self.low)


@dataclass(frozen=True)
class LengthGroupScores:
    """How a system did on one group."""

    group: LengthGroup
    scores: dict[str, float]
    length_ratio: float
    """Characters of the translations to those of the (first) references."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "from": self.group.low,
            "to": self.group.high,
            "sentences": len(self.group.places),
            **self.scores,
            "length_ratio": self.length_ratio,
        }


def groups(sources: Sequence[str]) -> list[LengthGroup]:
    """Groups by the number of words, those without a sentence left out."""
    counted = [len(words(source)) for source in sources]
    found = []
    for low, after in zip(EDGES, (*EDGES[1:], None), strict=True):
        floor = 0 if low == EDGES[0] else low  # a line without a word is a short one
        places = [
            place
            for place, count in enumerate(counted)
            if count >= floor and (after is None or count < after)
        ]
        if places:
            found.append(LengthGroup(low, None if after is None else after - 1, places))
    return found


def by_length(
    found: Sequence[LengthGroup],
    material: Material,
    texts: Sequence[str],
    measures: Sequence[Measure],
    counts: dict[str, Counts],
) -> list[LengthGroupScores]:
    """The scores of each group."""
    made = []
    for group in found:
        written = sum(len(texts[place]) for place in group.places)
        wanted = sum(len(material.references[0][place]) for place in group.places)
        scores = {m.key: m.score(counts[m.key][group.places].sum(axis=0)) for m in measures}
        made.append(LengthGroupScores(group, scores, written / max(wanted, 1)))
    return made
