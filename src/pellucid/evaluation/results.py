"""What an evaluation found, for a program: typed, and as JSON with names that stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pellucid.evaluation.length_groups import LengthGroupScores
from pellucid.evaluation.overlap import Overlap
from pellucid.evaluation.significance import LEVEL, Difference, Interval, Scores
from pellucid.evaluation.systems import System
from pellucid.evaluation.test_set import Material


@dataclass(frozen=True)
class Score:
    """A system's score by one measure."""

    key: str
    name: str
    value: float
    higher_is_better: bool
    signature: str
    digits: int = 1
    interval: Interval | None = None
    """Where it would lie on other sentences of this kind; None without resamples."""
    detail: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        margin = f" ± {self.interval.margin:.{self.digits}f}" if self.interval else ""
        return f"{self.value:.{self.digits}f}{margin}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
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
class Judgement:
    """What was found about one system."""

    system: System
    scores: Mapping[str, Score]
    """By the key of the measure: bleu, chrf, ter, comet."""
    sentence_chrf: Sequence[float]
    by_length: Sequence[LengthGroupScores]
    findings: Mapping[str, Sequence[int]]
    unseen: Mapping[str, float] | None = None
    """Scores over the sentences that training data do not have, where those were given."""

    @property
    def name(self) -> str:
        """The system's name."""
        return self.system.name

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        made: dict[str, Any] = {
            "name": self.name,
            "kind": "model" if self.system.written is not None else "file",
            "scores": {key: score.to_dict() for key, score in self.scores.items()},
            "by_length": [group.to_dict() for group in self.by_length],
            "findings": {kind: [i + 1 for i in found] for kind, found in self.findings.items()},
            "speed": self.system.speed.to_dict() if self.system.speed else None,
        }
        if self.unseen is not None:
            made["unseen"] = dict(self.unseen)
        return made


@dataclass(frozen=True)
class Comparison:
    """The first system against another, by one measure."""

    system: str
    against: str
    measure: Score
    """The first system's score."""
    difference: Difference
    resampled: Scores = field(repr=False)
    """The difference in each resample."""

    @property
    def gain(self) -> float:
        """How much better the first system is; below 0: worse."""
        return self.difference.value if self.measure.higher_is_better else -self.difference.value

    @property
    def verdict(self) -> str:
        """better, worse, or no difference that chance could not make."""
        if self.difference.p_value >= LEVEL:
            return "no clear difference"
        return "better" if self.gain > 0 else "worse"

    @property
    def sentence(self) -> str:
        """The same in words."""
        name, digits = self.measure.name, self.measure.digits
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
        """For JSON."""
        return {
            "system": self.system,
            "against": self.against,
            "measure": self.measure.key,
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
    """All that was found. The first system is the one that was asked about."""

    material: Material
    source_language: str
    target_language: str
    systems: Sequence[Judgement]
    comparisons: Sequence[Comparison]
    cautions: Sequence[str]
    settings: Mapping[str, Any]
    date: str
    overlap: Overlap | None = None

    @property
    def scores(self) -> Mapping[str, Score]:
        """The scores of the system that was asked about."""
        return self.systems[0].scores

    def to_dict(self) -> dict[str, Any]:
        """For JSON; docs/evaluate.md says what each field means."""
        from sacrebleu import __version__ as sacrebleu_version

        from pellucid import __version__

        made: dict[str, Any] = {
            "pellucid": __version__,
            "sacrebleu": sacrebleu_version,
            "date": self.date,
            "source": self.material.source_name,
            "references": list(self.material.reference_names),
            "from": self.source_language,
            "to": self.target_language,
            "count": len(self.material),
            "settings": dict(self.settings),
            "cautions": list(self.cautions),
            "systems": [one.to_dict() for one in self.systems],
            "comparisons": [one.to_dict() for one in self.comparisons],
            "overlap": self.overlap.to_dict() if self.overlap else None,
        }
        made["sentences"] = [self._sentence(place) for place in range(len(self.material))]
        return made

    def _sentence(self, place: int) -> dict[str, Any]:
        return {
            "number": place + 1,
            "source": self.material.sources[place],
            "references": self.material.of(place),
            "translations": [self._translation(one, place) for one in self.systems],
        }

    def _translation(self, judged: Judgement, place: int) -> dict[str, Any]:
        made: dict[str, Any] = {
            "text": judged.system.texts[place],
            "chrf": judged.sentence_chrf[place],
        }
        if judged.system.written is not None:
            written = judged.system.written[place]
            made |= {"score": written.score, "tokens": written.tokens, "cut": written.cut}
        return made


def percent(share: float) -> str:
    """A probability as a person says it: 0.3%, 12%, below 0.1%."""
    if share < 0.001:
        return "below 0.1%"
    return f"{share:.1%}" if share < 0.1 else f"{share:.0%}"
