"""FLOPs of a forward pass, counted product by product.

A matrix product of (m, k) and (k, n) is m·k·n multiplications and as many additions: 2·m·k·n FLOPs.
Only matrix products are counted; norms, softmax and the like are a few percent at most.
"""

from __future__ import annotations

from typing import NamedTuple

from pellucid.config import ModelConfig

GATED = ("geglu", "geglu_tanh", "swiglu")


class BatchShape(NamedTuple):
    """A padded batch: B sentences of S source and T target tokens."""

    sentences: int
    source: int
    target: int

    @property
    def tokens(self) -> int:
        """Positions of both sides together, padding included."""
        return self.sentences * (self.source + self.target)


def forward_flops(config: ModelConfig, shape: BatchShape) -> dict[str, int]:
    """Return the FLOPs of one forward pass by part of the model."""
    B, S, T = shape
    D, V = config.d_model, config.vocab_size
    wide, narrow, feed_forward = _widths(config)

    def attention(queries: int, keys: int) -> int:
        """Count W_Q, W_K and W_V, scores and mix, W_O."""
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


def step_flops(config: ModelConfig, length: int, source: int, *, cached: bool = True) -> int:
    """Return the FLOPs of the decoder to compute token number `length` (from 1) of a hypothesis.

    With the KV cache it processes one token, and has the keys and values of all others. Without,
    it processes the whole output again, and computes the keys and values of the source too.
    """
    D, V = config.d_model, config.vocab_size
    wide, narrow, feed_forward = _widths(config)
    tokens = 1 if cached else length
    pairs = length if cached else length * length
    own = tokens * D * (2 * wide + 2 * narrow) + 2 * pairs * wide
    cross = tokens * D * 2 * wide + 2 * tokens * source * wide
    if not cached:
        cross += 2 * source * D * narrow
    return 2 * (config.decoder_layers * (own + cross + tokens * feed_forward) + D * V)


def _widths(config: ModelConfig) -> tuple[int, int, int]:
    """Return H · K, G · K, and the multiply-adds of a feed-forward layer per token."""
    wide = config.num_heads * config.head_dim
    narrow = (config.num_kv_heads or config.num_heads) * config.head_dim
    matrices = 3 if config.activation in GATED else 2
    return wide, narrow, matrices * config.d_model * config.d_ff
