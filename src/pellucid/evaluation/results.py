"""The results of an evaluation: typed, and as JSON with stable names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pellucid.evaluation.length_groups import LengthGroupScores
from pellucid.evaluation.overlap import Overlap
from pellucid.evaluation.significance import LEVEL, Interval, PairedDifference, ResampledScores
from pellucid.evaluation.systems import SystemOutput
from pellucid.evaluation.test_set import EvaluationSet


@dataclass(frozen=True)
class Score:
    """A system's score in one metric."""

    key: str
    name: str
    value: float
    higher_is_better: bool
    signature: str
    digits: int = 1
    interval: Interval | None = None
    """95% confidence interval; None without resamples."""
    detail: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        margin = f" ± {self.interval.margin:.{self.digits}f}" if self.interval else ""
        return f"{self.value:.{self.digits}f}{margin}"

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        made: dict[str, Any] = {
            "name": self.name,
            "score": self.value,
            "higher_is_better": self.higher_is_better,
            "signature": self.signature,
        }
        if self.interval is not None:
            one = self.interval
            made |= {"mean": one.mean, "margin": one.margin, "low": one.low, "high": one.high}
        return made | dict(self.detail)


@dataclass(frozen=True)
class SystemEvaluation:
    """Scores and findings of one system."""

    output: SystemOutput
    scores: Mapping[str, Score]
    """By the key of the metric: bleu, chrf, ter, comet."""
    sentence_chrf: Sequence[float]
    by_length: Sequence[LengthGroupScores]
    findings: Mapping[str, Sequence[int]]
    unseen: Mapping[str, float] | None = None
    """Scores over the sentences that are not in the training data, if that was given."""

    @property
    def name(self) -> str:
        """The system's name."""
        return self.output.name

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        made: dict[str, Any] = {
            "name": self.name,
            "kind": "model" if self.output.details is not None else "file",
            "scores": {key: score.to_dict() for key, score in self.scores.items()},
            "by_length": [group.to_dict() for group in self.by_length],
            "findings": {kind: [i + 1 for i in found] for kind, found in self.findings.items()},
            "speed": self.output.speed.to_dict() if self.output.speed else None,
        }
        if self.unseen is not None:
            made["unseen"] = dict(self.unseen)
        return made


@dataclass(frozen=True)
class Comparison:
    """The first system against another, in one metric."""

    system: str
    against: str
    metric: Score
    """The first system's score."""
    difference: PairedDifference
    resampled: ResampledScores = field(repr=False)
    """The difference in each resample."""

    @property
    def gain(self) -> float:
        """How much better the first system is; below 0: worse."""
        return self.difference.value if self.metric.higher_is_better else -self.difference.value

    @property
    def verdict(self) -> str:
        """better, worse, or no clear difference (one that could be chance)."""
        if self.difference.p_value >= LEVEL:
            return "no clear difference"
        return "better" if self.gain > 0 else "worse"

    @property
    def sentence(self) -> str:
        """The comparison in words."""
        name, digits = self.metric.name, self.metric.digits
        if not self.difference.value:
            return f"{name}: no difference"
        which = "better" if self.gain > 0 else "worse"
        if self.difference.p_value >= LEVEL:
            return (
                f"{name}: {which} by {abs(self.gain):.{digits}f}, but this may well be chance "
                f"(probability {percent(self.difference.p_value)})"
            )
        return (
            f"{name}: {which} by {abs(self.gain):.{digits}f}; this could be chance with "
            f"probability {percent(self.difference.p_value)}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "system": self.system,
            "against": self.against,
            "metric": self.metric.key,
            "difference": self.difference.value,
            "low": self.difference.low,
            "high": self.difference.high,
            "p_value": self.difference.p_value,
            "wins": self.difference.wins,
            "verdict": self.verdict,
            "sentence": self.sentence,
        }


@dataclass(frozen=True)
class Evaluation:
    """All results. The first system is the one that was asked about."""

    test_set: EvaluationSet
    source_language: str
    target_language: str
    systems: Sequence[SystemEvaluation]
    comparisons: Sequence[Comparison]
    warnings: Sequence[str]
    settings: Mapping[str, Any]
    date: str
    overlap: Overlap | None = None

    @property
    def scores(self) -> Mapping[str, Score]:
        """The scores of the system that was asked about."""
        return self.systems[0].scores

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON; docs/evaluate.md says what each field means."""
        from sacrebleu import __version__ as sacrebleu_version

        from pellucid import __version__

        made: dict[str, Any] = {
            "pellucid": __version__,
            "sacrebleu": sacrebleu_version,
            "date": self.date,
            "source": self.test_set.source_name,
            "references": list(self.test_set.reference_names),
            "from": self.source_language,
            "to": self.target_language,
            "count": len(self.test_set),
            "settings": dict(self.settings),
            "warnings": list(self.warnings),
            "systems": [one.to_dict() for one in self.systems],
            "comparisons": [one.to_dict() for one in self.comparisons],
            "overlap": self.overlap.to_dict() if self.overlap else None,
        }
        made["sentences"] = [self._sentence(index) for index in range(len(self.test_set))]
        return made

    def _sentence(self, index: int) -> dict[str, Any]:
        return {
            "number": index + 1,
            "source": self.test_set.sources[index],
            "references": self.test_set.references_of(index),
            "translations": [self._translation(one, index) for one in self.systems],
        }

    def _translation(self, evaluated: SystemEvaluation, index: int) -> dict[str, Any]:
        made: dict[str, Any] = {
            "text": evaluated.output.texts[index],
            "chrf": evaluated.sentence_chrf[index],
        }
        if evaluated.output.details is not None:
            output = evaluated.output.details[index]
            made |= {"score": output.score, "tokens": output.tokens, "cut": output.cut}
        return made


def percent(probability: float) -> str:
    """Format a probability: 0.3%, 12%, below 0.1%."""
    if probability < 0.001:
        return "below 0.1%"
    return f"{probability:.1%}" if probability < 0.1 else f"{probability:.0%}"
