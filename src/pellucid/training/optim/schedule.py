"""How the learning rate changes: pure functions of the step.

Each gives a share of the highest rate, 0 to 1. Steps count from 1: the first update is step 1.
"""

from __future__ import annotations

import math

from pellucid.config import TrainingConfig


def rising(step: int, warmup: int) -> float:
    """The warm-up: a line from 0 to 1, which it reaches at step `warmup`."""
    return min(1.0, step / warmup) if warmup else 1.0


def constant(step: int, warmup: int) -> float:
    """Level after the warm-up."""
    return rising(step, warmup)


def inverse_sqrt(step: int, warmup: int) -> float:
    """min(step / warmup, √(warmup / step)): the paper's curve, whatever its height."""
    return min(rising(step, warmup), math.sqrt(max(1, warmup) / step))


def cosine(step: int, warmup: int, total: int, final: float = 0.0) -> float:
    """Half a cosine from 1 at the end of the warm-up to `final` after the last step."""
    if step < warmup:
        return rising(step, warmup)
    along = min(1.0, (step - warmup) / max(1, total + 1 - warmup))
    return final + (1 - final) * (1 + math.cos(math.pi * along)) / 2


def warmup_stable_decay(
    step: int, warmup: int, total: int, decay: float, final: float = 0.0
) -> float:
    """Level; over the last share `decay` of the steps, a line to `final` just after the last."""
    falling = max(1.0, decay * total)
    left = max(0.0, (total + 1 - step) / falling)
    return min(rising(step, warmup), final + (1 - final) * min(1.0, left))


def peak_learning_rate(config: TrainingConfig, d_model: int) -> float:
    """The rate at the top: as set, or the paper's for a model of this width under noam."""
    if config.learning_rate is not None:
        return config.learning_rate
    if config.schedule == "noam":
        return float(d_model**-0.5 * config.warmup_steps**-0.5)
    return 1e-3


def rate_share(config: TrainingConfig, step: int, total: int | None) -> float:
    """Which share of the highest rate holds at a step, by the recipe's schedule.

    total: all steps of the run, where they are known; cosine and warmup_stable_decay need it.
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
