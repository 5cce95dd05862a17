"""What a run tells those who watch it. The loop makes these reports; watchers show or keep them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class StepReport:
    """One step of training (or all steps since the last report, where not each is reported)."""

    step: int
    """Steps done, this one included."""

    total_steps: int | None
    """Steps after which the run ends, where that is known."""

    epoch: float
    """How often the data has been seen."""

    loss: float
    """Nats a target token, without label smoothing."""

    smoothed_loss: float
    """Nats a target token against the smoothed target: what is minimised."""

    learning_rate: float
    """Learning rate of this step."""

    grad_norm: float
    """Length of the gradient before it was clipped."""

    target_tokens: int
    """Target tokens learned from, padding left out, on all processes together."""

    seconds: float
    """How long it took, waiting included."""

    waited: float
    """How many of those seconds were spent waiting for data."""

    flops_share: float | None = None
    """Share of the machine's matrix-multiply rate that was used."""

    @property
    def perplexity(self) -> float:
        """e^loss: among how many tokens the model hesitates, so to say."""
        return perplexity(self.loss)

    @property
    def tokens_per_second(self) -> float:
        """Target tokens a second."""
        return self.target_tokens / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class Sample:
    """A sentence of the validation data, and what the model makes of it now."""

    source: str
    reference: str
    translation: str


@dataclass(frozen=True)
class ValidationReport:
    """How good the model is on data that it does not learn from."""

    step: int
    epoch: float
    loss: float
    """Nats a target token, without label smoothing."""

    perplexity: float
    bleu: float | None = None
    chrf: float | None = None
    signatures: Mapping[str, str] = field(default_factory=dict)
    """sacreBLEU's signature of each score, by its name."""

    samples: tuple[Sample, ...] | list[Sample] = ()
    best: bool = False
    """Whether no validation before was better."""

    seconds: float = 0.0


class Callback(Protocol):
    """Something that looks on. It never changes what is learned."""

    def started(
        self,
        recipe: Any,
        model_parameters: int,
        prepared_report: Mapping[str, Any],
        resumed_from: int | None,
    ) -> None:
        """A run begins, or goes on from the step `resumed_from`."""

    def stepped(self, report: StepReport) -> None:
        """A step is done."""

    def validated(self, report: ValidationReport) -> None:
        """A validation is done."""

    def saved(self, path: Path) -> None:
        """A checkpoint is on the disk."""

    def said(self, line: str) -> None:
        """Something a person should know."""

    def finished(self, summary: Mapping[str, Any]) -> None:
        """The run ends, done or interrupted; what came of it, by name."""


def perplexity(loss: float) -> float:
    """e^loss, and infinity where that is too large for a number."""
    return math.exp(loss) if loss < 700 else math.inf if loss == loss else math.nan
