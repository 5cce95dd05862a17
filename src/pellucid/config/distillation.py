"""Settings of knowledge distillation."""

from __future__ import annotations

from pydantic import Field

from pellucid.config.settings import Settings


class DistillationConfig(Settings):
    """Knowledge distillation: learn from the output probabilities of other models."""

    teachers: tuple[str, ...] = ()
    """Teacher models, as folders or names. Before the first step the mean of their token
    probabilities over the training targets is computed once and stored in the run's folder. They
    must have the run's vocabulary: models trained on the same data with the same tokenizer section
    do, or one takes it over (tokenizer.from_model)."""

    weight: float = Field(default=0.5, gt=0, le=1)
    """Weight of the teachers' probabilities in the training target; the rest is the right token."""
