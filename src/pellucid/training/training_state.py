"""The state of a run that a checkpoint stores beside its tensors, and the seeds of a run."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any


@dataclass
class BestValidation:
    """The best validation so far."""

    metric: str
    """Early-stopping metric that decided it."""
    value: float
    """Its value, negated where higher is better."""
    step: int
    loss: float
    bleu: float | None
    chrf: float | None


@dataclass
class TrainingState:
    """How far a run is: with the weights and the optimizer, all that resuming needs."""

    step: int = 0
    epoch: float = 0.0
    target_tokens: int = 0
    seconds: float = 0.0
    best: BestValidation | None = None
    validations_since_best: int = 0
    validated_step: int = 0
    """Step of the last validation."""
    validation_pending: bool = False
    """Whether the validation of this step was interrupted, so that it comes first on resuming."""
    epoch_ended: bool = False
    """Whether this step was the last of its epoch."""

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TrainingState:
        """Read a state as `dataclasses.asdict` wrote it into a checkpoint."""
        best = values["best"]
        return cls(**{**values, "best": BestValidation(**best) if best else None})


def derive_seed(seed: int, *parts: int | str) -> int:
    """Return a 63-bit seed that depends on all its parts, such as the step and the rank."""
    text = "/".join(str(part) for part in (seed, *parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1
