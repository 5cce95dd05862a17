"""How much arithmetic a step of training is, counted product by product.

A product of (m, k) and (k, n) is m·k·n multiplications and as many additions: 2·m·k·n FLOPs. Only
matrix products are counted; norms, softmax and the like are a few percent at most. The backward
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

GATED = ("geglu", "geglu_tanh", "swiglu")
BACKWARD = 2  # products of the backward pass for each of the forward pass


class BatchShape(NamedTuple):
    """A padded batch: B sentences of S source and T target tokens."""

    sentences: int
    source: int
    target: int

    @property
    def tokens(self) -> int:
        """Places on both sides together."""
        return self.sentences * (self.source + self.target)


def forward_flops(config: ModelConfig, shape: BatchShape) -> dict[str, int]:
    """FLOPs of one forward pass, by part of the model."""
    B, S, T = shape
    D, F, V = config.width, config.feed_forward_width, config.vocab_size
    wide = config.heads * config.head_width  # H · K
    narrow = (config.key_value_heads or config.heads) * config.head_width  # G · K
    feed_forward = (3 if config.activation in GATED else 2) * D * F

    def attention(queries: int, keys: int) -> int:
        """W_Q, W_K and W_V, scores and mix, W_O."""
        projections = queries * D * wide + 2 * keys * D * narrow + queries * wide * D
        return B * (projections + 2 * queries * keys * wide)

    multiply_adds = {
        "encoder self-attention": config.encoder_layers * attention(S, S),
        "encoder feed-forward": config.encoder_layers * B * S * feed_forward,
        "decoder self-attention": config.decoder_layers * attention(T, T),
        "decoder cross-attention": config.decoder_layers * attention(T, S),
        "decoder feed-forward": config.decoder_layers * B * T * feed_forward,
        "output (logits)": B * T * D * V,
    }
    return {part: 2 * count for part, count in multiply_adds.items()}


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
