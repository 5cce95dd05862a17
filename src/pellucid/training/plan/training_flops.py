"""How much arithmetic a step of training is.

`model.flops` counts the products of the forward pass. The backward
pass needs two products for each of the forward pass (one for the gradient of each factor), so a
training step is three times the forward pass.

The usual estimate 6·N·D (parameters times tokens) takes every token through every parameter. In
an encoder and decoder it does not: source tokens see the encoder and the keys and values of
cross-attention, target tokens see the decoder; so with D as the tokens of both sides, 6·N·D is
about twice what is computed.
"""

from __future__ import annotations

from typing import NamedTuple

from pellucid.config import ModelConfig
from pellucid.model.flops import BatchShape, forward_flops

BACKWARD = 2  # products of the backward pass for each of the forward pass


def training_flops(config: ModelConfig, shape: BatchShape) -> int:
    """FLOPs of one batch in training, forward and backward."""
    return (1 + BACKWARD) * sum(forward_flops(config, shape).values())


def six_nd(parameters: int, tokens: float) -> float:
    """The usual estimate: six FLOPs for each parameter and token."""
    return 6.0 * parameters * tokens


class PaperRun(NamedTuple):
    """A run of the paper, as its sections 5.2 and 6.1 and its tables 2 and 3 have it."""

    steps: int
    seconds_per_step: float
    hours: float
    parameters: float
    cost: float
    """FLOPs in the column "training cost"."""


PAPER = {
    "base": PaperRun(100_000, 0.4, 12.0, 65e6, 3.3e18),
    "big": PaperRun(300_000, 1.0, 84.0, 213e6, 2.3e19),
}
PAPER_GPUS = 8
PAPER_RATE = 9.5e12
"""FLOP/s that the paper reckons a P100 sustains, in single precision."""


def paper_cost(hours: float, gpus: int = PAPER_GPUS, rate: float = PAPER_RATE) -> float:
    """The paper's own method: time · GPUs · what a GPU sustains.

    So it counts what the machines could have done in that time, not what was computed.
    """
    return hours * 3600 * gpus * rate
