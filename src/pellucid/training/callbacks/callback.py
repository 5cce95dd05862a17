"""The callback interface of a training run, and the reports that callbacks get."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class StepReport:
    """One optimizer step (or all steps since the last report, where not each is reported)."""

    step: int
    """Optimizer steps done, including this one."""

    total_steps: int | None
    """Step at which the run ends, where that is known."""

    epoch: float
    """Passes over the training data so far."""

    loss: float
    """Cross-entropy in nats per target token, without label smoothing."""

    smoothed_loss: float
    """Training loss in nats per target token: with label smoothing and distillation."""

    learning_rate: float
    """Learning rate of this step."""

    grad_norm: float
    """Norm of the gradient before clipping."""

    target_tokens: int
    """Target tokens of the step without padding, summed over all processes."""

    seconds: float
    """Duration of the step, waiting for data included."""

    waited: float
    """Seconds of it spent waiting for data."""

    mfu: float | None = None
    """Model FLOPs utilization: FLOP/s of the step over the measured peak of the machine."""

    @property
    def perplexity(self) -> float:
        """e^loss."""
        return perplexity(self.loss)

    @property
    def tokens_per_second(self) -> float:
        """Target tokens per second."""
        return self.target_tokens / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class Sample:
    """A sentence of the validation data with the model's current translation."""

    source: str
    reference: str
    translation: str


@dataclass(frozen=True)
class ValidationReport:
    """Result of one validation."""

    step: int
    epoch: float
    loss: float
    """Cross-entropy in nats per target token, without label smoothing."""

    perplexity: float
    bleu: float | None = None
    chrf: float | None = None
    signatures: Mapping[str, str] = field(default_factory=dict)
    """sacreBLEU signature of each score."""

    samples: tuple[Sample, ...] | list[Sample] = ()
    best: bool = False
    """Whether this is the best validation so far."""

    seconds: float = 0.0


class Callback:
    """A training callback: override the methods of the events you need.

    A callback only observes; it must not change what is trained. In a distributed run only
    process 0 has callbacks.
    """

    def on_start(
        self,
        recipe: Any,
        model_parameters: int,
        prepared_report: Mapping[str, Any],
        resumed_from: int | None,
    ) -> None:
        """The run starts, or resumes from the step `resumed_from`."""

    def on_step(self, report: StepReport) -> None:
        """An optimizer step is done."""

    def on_validation(self, report: ValidationReport) -> None:
        """A validation is done."""

    def on_save(self, path: Path) -> None:
        """A checkpoint was saved."""

    def on_message(self, line: str) -> None:
        """There is a line for the user to read."""

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """The run ended, finished or interrupted; the summary holds its results by name."""


def perplexity(loss: float) -> float:
    """Return e^loss, or infinity where a float cannot hold it."""
    return math.exp(loss) if loss < 700 else math.inf if loss == loss else math.nan
