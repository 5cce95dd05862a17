"""Encoder and decoder as stacks: an embedding, layers of the same shape, and a final norm."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from torch import Tensor, nn

from pellucid.model.attention import KeyValues
from pellucid.model.dropout import Dropout
from pellucid.model.layers import DecoderLayer, EncoderLayer, normed
from pellucid.model.positions import LearnedPositions, SinusoidalPositions
from pellucid.model.tensor_trace import TensorTrace, inside


class InputEmbedding(nn.Module):
    """Input embedding: token embedding · √D plus the position vector."""

    def __init__(
        self,
        tokens: nn.Embedding,
        positions: SinusoidalPositions | LearnedPositions | None,
        *,
        scaled: bool,
        norm: nn.Module | None,
        dropout: float,
    ) -> None:
        super().__init__()
        self.tokens = tokens
        self.positions = positions
        self.scale = math.sqrt(tokens.embedding_dim) if scaled else 1.0
        self.norm = norm
        self.dropout = Dropout(dropout)

    def forward(self, ids: Tensor, past: int = 0, *, trace: TensorTrace | None = None) -> Tensor:
        """Map `ids (B, T)`, the first of them at position `past`, to `(B, T, D)`."""
        embedded = self.tokens(ids)
        scaled = embedded * self.scale if self.scale != 1.0 else embedded
        summed = scaled
        if self.positions is not None:
            position_vectors = self.positions(ids.shape[1], past)  # (T, D)
            summed = scaled + position_vectors
            if trace is not None:
                trace.record("positions", position_vectors)
        x: Tensor = self.dropout(normed(self.norm, summed, inside(trace, "norm")))
        if trace is not None:
            trace.record("ids", ids)
            trace.record("tokens", embedded)
            trace.record("scaled", scaled)
            trace.record("sum", summed)
            trace.record("state", x)
        return x


class Encoder(nn.Module):
    """Encoder layers of the same shape, each with its own weights, and the final norm."""

    def __init__(self, layers: Iterable[EncoderLayer], norm: nn.Module | None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm

    def forward(
        self, x: Tensor, mask: Tensor | None = None, *, trace: TensorTrace | None = None
    ) -> Tensor:
        """Map `x (B, S, D)` to `(B, S, D)`."""
        for number, layer in enumerate(self.layers):
            x = layer(x, mask, trace=inside(trace, str(number)))
        x = normed(self.norm, x, inside(trace, "norm"))
        if trace is not None:
            trace.record("output", x)
        return x


class Decoder(nn.Module):
    """Decoder layers of the same shape, each with its own weights, and the final norm."""

    def __init__(self, layers: Iterable[DecoderLayer], norm: nn.Module | None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        memory: Tensor | Sequence[KeyValues | None] | None = None,
        memory_mask: Tensor | None = None,
        *,
        past: Sequence[KeyValues | None] | None = None,
        trace: TensorTrace | None = None,
    ) -> tuple[Tensor, list[KeyValues]]:
        """Map `x (B · beams, T, D)` to the same shape; also return each layer's keys and values.

        memory: the encoder's output `(B, S, D)`, or each layer's keys and values of it.
        """
        key_values: list[KeyValues] = []
        for number, layer in enumerate(self.layers):
            x, own = layer(
                x,
                mask,
                memory if memory is None or isinstance(memory, Tensor) else memory[number],
                memory_mask,
                past=None if past is None else past[number],
                trace=inside(trace, str(number)),
            )
            key_values.append(own)
        x = normed(self.norm, x, inside(trace, "norm"))
        if trace is not None:
            trace.record("output", x)
        return x, key_values

    def key_values(self, memory: Tensor) -> list[KeyValues]:
        """Compute each layer's cross-attention keys and values of the encoder's output."""
        key_values: list[KeyValues] = []
        for layer in self.layers:
            assert isinstance(layer, DecoderLayer)
            assert layer.cross is not None
            key_values.append(layer.cross.key_values(memory))
        return key_values
