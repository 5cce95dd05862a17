"""The layers of encoder and decoder: sub-layers, each in a residual connection with a norm.

A layer gets its parts already built; it only decides in which order they are applied.
"""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.config import Activation, NormPlacement, NormType
from pellucid.model.attention import KeyValues, MultiHeadAttention
from pellucid.model.dropout import Dropout
from pellucid.model.tensor_trace import TensorTrace, inside


class RMSNorm(nn.RMSNorm):
    """PyTorch's RMSNorm with its gain cast to the precision of the input.

    Under autocast (mixed precision) queries and keys are in bf16 and the gain is not.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Divide `x (..., D)` by its root mean square."""
        assert self.weight is not None
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


def make_norm(norm_type: NormType, d_model: int, epsilon: float) -> nn.Module:
    """Return LayerNorm (subtract the mean, divide by the deviation) or RMSNorm (divide only)."""
    if norm_type == "rms":
        return RMSNorm(d_model, eps=epsilon)
    return nn.LayerNorm(d_model, eps=epsilon)


def normed(norm: nn.Module | None, x: Tensor, trace: TensorTrace | None = None) -> Tensor:
    """Return `norm(x)`, or `x` without a norm; a trace records mean and variance of each token."""
    if norm is None:
        return x
    output: Tensor = norm(x)
    if trace is not None:
        trace.record("input", x)
        trace.record("mean", lambda: x.mean(dim=-1))
        trace.record("variance", lambda: x.var(dim=-1, correction=0))
        trace.record("output", output)
    return output


def _squared_relu(x: Tensor) -> Tensor:
    return F.relu(x).square()


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


# Activation function, and whether a second projection gates it.
ACTIVATIONS: dict[Activation, tuple[Callable[[Tensor], Tensor], bool]] = {
    "relu": (F.relu, False),
    "gelu": (F.gelu, False),
    "gelu_tanh": (_gelu_tanh, False),
    "silu": (F.silu, False),
    "relu2": (_squared_relu, False),
    "geglu": (F.gelu, True),
    "geglu_tanh": (_gelu_tanh, True),
    "swiglu": (F.silu, True),
}


class FeedForward(nn.Module):
    """W₂ f(W₁ x + b₁) + b₂, applied to each token separately; gated: W₂ (f(W₁ x) · W₃ x).

    W₁ and the gate's W₃ are one matrix.
    """

    def __init__(
        self, d_model: int, d_ff: int, *, activation: Activation, bias: bool, dropout: float
    ) -> None:
        super().__init__()
        self.activation, self.gated = ACTIVATIONS[activation]
        self.inner = nn.Linear(d_model, d_ff * (2 if self.gated else 1), bias=bias)
        self.outer = nn.Linear(d_ff, d_model, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, *, trace: TensorTrace | None = None) -> Tensor:
        """Map `x (B, T, D)` to `(B, T, D)`, through `(B, T, F)`."""
        inner = self.inner(x)
        if self.gated:
            activated, gate = inner.chunk(2, dim=-1)  # (B, T, F) each
            active = self.activation(activated) * gate
        else:
            active = self.activation(inner)
        output: Tensor = self.outer(self.dropout(active))
        if trace is not None:
            trace.record("inner", inner)
            trace.record("active", active)
            trace.record("output", output)
        return output


class AddNorm(nn.Module):
    """The residual connection around a sub-layer: its output is added to its input.

    post (the paper): norm(x + sublayer(x)). pre: x + sublayer(norm(x)).
    sandwich: x + norm(sublayer(norm(x))).

    `enter` returns the input of the sub-layer, `leave` adds its output to the residual stream.
    """

    def __init__(
        self, placement: NormPlacement, make: Callable[[], nn.Module], *, dropout: float
    ) -> None:
        super().__init__()
        self.norm_before = make() if placement in ("pre", "sandwich") else None
        self.norm_inside = make() if placement == "sandwich" else None
        self.norm_after = make() if placement == "post" else None
        self.dropout = Dropout(dropout)

    def enter(self, x: Tensor, *, trace: TensorTrace | None = None) -> Tensor:
        """Return the sub-layer's input from the residual stream `x (B, T, D)`."""
        if trace is not None:
            trace.record("residual_before", x)
        return normed(self.norm_before, x, inside(trace, "norm_before"))

    def leave(self, x: Tensor, output: Tensor, *, trace: TensorTrace | None = None) -> Tensor:
        """Return the residual stream after the sub-layer, from the stream before and its output."""
        added = self.dropout(normed(self.norm_inside, output, inside(trace, "norm_inside")))
        x = normed(self.norm_after, x + added, inside(trace, "norm_after"))
        if trace is not None:
            trace.record("residual_added", added)
            trace.record("residual_after", x)
        return x


class EncoderLayer(nn.Module):
    """Self-attention over the whole source, then feed-forward."""

    def __init__(
        self,
        attention: MultiHeadAttention,
        feed_forward: FeedForward,
        make_add_norm: Callable[[], AddNorm],
    ) -> None:
        super().__init__()
        self.attention = attention
        self.attention_add_norm = make_add_norm()
        self.feed_forward = feed_forward
        self.feed_forward_add_norm = make_add_norm()

    def forward(
        self, x: Tensor, mask: Tensor | None = None, *, trace: TensorTrace | None = None
    ) -> Tensor:
        """Map `x (B, S, D)` to `(B, S, D)`."""
        own, feed = inside(trace, "self"), inside(trace, "feed_forward")
        entered = self.attention_add_norm.enter(x, trace=own)
        output, _ = self.attention(entered, mask, trace=own)
        x = self.attention_add_norm.leave(x, output, trace=own)

        entered = self.feed_forward_add_norm.enter(x, trace=feed)
        output = self.feed_forward(entered, trace=feed)
        x = self.feed_forward_add_norm.leave(x, output, trace=feed)
        if trace is not None:
            trace.record("state", x)
        return x


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention over the source, then feed-forward.

    Without cross-attention it is the layer of a decoder-only model.
    """

    def __init__(
        self,
        attention: MultiHeadAttention,
        cross: MultiHeadAttention | None,
        feed_forward: FeedForward,
        make_add_norm: Callable[[], AddNorm],
    ) -> None:
        super().__init__()
        self.attention = attention
        self.attention_add_norm = make_add_norm()
        self.cross = cross
        self.cross_add_norm = None if cross is None else make_add_norm()
        self.feed_forward = feed_forward
        self.feed_forward_add_norm = make_add_norm()

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        memory: Tensor | KeyValues | None = None,
        memory_mask: Tensor | None = None,
        *,
        past: KeyValues | None = None,
        trace: TensorTrace | None = None,
    ) -> tuple[Tensor, KeyValues]:
        """Map `x (B · beams, T, D)` to the same shape; also return the self-attention KeyValues.

        memory: the encoder's output `(B, S, D)`, or this layer's keys and values of it.
        """
        own, feed = inside(trace, "self"), inside(trace, "feed_forward")
        entered = self.attention_add_norm.enter(x, trace=own)
        output, visible = self.attention(entered, mask, past=past, trace=own)
        x = self.attention_add_norm.leave(x, output, trace=own)

        if self.cross is not None and self.cross_add_norm is not None:
            if memory is None:
                raise ValueError("a decoder layer with cross-attention needs the encoder's output")
            source = inside(trace, "cross")
            over = self.cross.key_values(memory) if isinstance(memory, Tensor) else memory
            entered = self.cross_add_norm.enter(x, trace=source)
            output = self.cross.cross(entered, over, memory_mask, trace=source)
            x = self.cross_add_norm.leave(x, output, trace=source)

        entered = self.feed_forward_add_norm.enter(x, trace=feed)
        output = self.feed_forward(entered, trace=feed)
        x = self.feed_forward_add_norm.leave(x, output, trace=feed)
        if trace is not None:
            trace.record("state", x)
        return x, visible
