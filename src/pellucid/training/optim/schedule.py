"""Learning-rate schedules: pure functions of the step.

Each returns a fraction of the peak learning rate, from 0 to 1. Steps count from 1: the first
optimizer update is step 1.
"""

from __future__ import annotations

import math

from pellucid.config import TrainingConfig


def linear_warmup(step: int, warmup: int) -> float:
    """Rise linearly from 0 to 1, which is reached at step `warmup`."""
    return min(1.0, step / warmup) if warmup else 1.0


def constant(step: int, warmup: int) -> float:
    """Stay at the peak after the warm-up."""
    return linear_warmup(step, warmup)


def inverse_sqrt(step: int, warmup: int) -> float:
    """Decay with the inverse square root: min(step / warmup, √(warmup / step)), as in the paper."""
    return min(linear_warmup(step, warmup), math.sqrt(max(1, warmup) / step))


def cosine(step: int, warmup: int, total: int, final: float = 0.0) -> float:
    """Decay along half a cosine from 1 after the warm-up to `final` after the last step."""
    if step < warmup:
        return linear_warmup(step, warmup)
    along = min(1.0, (step - warmup) / max(1, total + 1 - warmup))
    return final + (1 - final) * (1 + math.cos(math.pi * along)) / 2


def warmup_stable_decay(
    step: int, warmup: int, total: int, decay: float, final: float = 0.0
) -> float:
    """Stay at the peak; over the last fraction `decay` of the steps, decay linearly to `final`."""
    decay_steps = max(1.0, decay * total)
    left = max(0.0, (total + 1 - step) / decay_steps)
    return min(linear_warmup(step, warmup), final + (1 - final) * min(1.0, left))


def peak_learning_rate(config: TrainingConfig, d_model: int) -> float:
    """Return the peak learning rate: as set, or with noam the paper's for this model width."""
    if config.learning_rate is not None:
        return config.learning_rate
    if config.schedule == "noam":
        return float(d_model**-0.5 * config.warmup_steps**-0.5)
    return 1e-3


def learning_rate_factor(config: TrainingConfig, step: int, total: int | None) -> float:
    """Return the fraction of the peak learning rate at a step, by the recipe's schedule.

    total: number of steps of the run, where it is known; cosine and warmup_stable_decay need it.
    """
    if config.schedule == "constant":
        return constant(step, config.warmup_steps)
    if config.schedule in ("noam", "inverse_sqrt"):
        return inverse_sqrt(step, config.warmup_steps)
    if total is None:
        raise ValueError(f"{config.schedule} needs the number of steps")
    if config.schedule == "cosine":
        return cosine(step, config.warmup_steps, total, config.min_lr_ratio)
    return warmup_stable_decay(
        step, config.warmup_steps, total, config.decay_fraction, config.min_lr_ratio
    )
