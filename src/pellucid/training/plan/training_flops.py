"""FLOPs of a training step.

`model.flops` counts the matrix products of the forward pass. The backward pass needs two for each
of them (one for the gradient of each factor), so a training step is three times the forward pass.

The usual estimate 6·N·D (N parameters, D tokens) assumes that every token passes through every
parameter. In an encoder-decoder it does not: source tokens pass through the encoder and the keys
and values of cross-attention, target tokens through the decoder. So with the tokens of both sides
as D, 6·N·D is about twice what is computed.
"""

from __future__ import annotations

from typing import NamedTuple

from pellucid.config import ModelConfig
from pellucid.model.flops import BatchShape, forward_flops

BACKWARD = 2  # matrix products of the backward pass for each of the forward pass


def training_flops(config: ModelConfig, shape: BatchShape) -> int:
    """Return the FLOPs of a forward and backward pass over one batch."""
    return (1 + BACKWARD) * sum(forward_flops(config, shape).values())


def six_nd(parameters: int, tokens: float) -> float:
    """Return the usual estimate: six FLOPs for each parameter and token."""
    return 6.0 * parameters * tokens


class PaperRun(NamedTuple):
    """A training run of the paper (its sections 5.2 and 6.1, tables 2 and 3)."""

    steps: int
    seconds_per_step: float
    hours: float
    parameters: float
    cost: float
    """FLOPs in the column "training cost" of table 2."""


PAPER = {
    "base": PaperRun(100_000, 0.4, 12.0, 65e6, 3.3e18),
    "big": PaperRun(300_000, 1.0, 84.0, 213e6, 2.3e19),
}
PAPER_GPUS = 8
PAPER_RATE = 9.5e12
"""FLOP/s that the paper assumes a P100 sustains, in single precision."""


def paper_cost(hours: float, gpus: int = PAPER_GPUS, rate: float = PAPER_RATE) -> float:
    """Compute the training cost by the paper's method: time · GPUs · sustained FLOP/s of a GPU.

    It counts what the machines could have computed in that time, not what was computed.
    """
    return hours * 3600 * gpus * rate
