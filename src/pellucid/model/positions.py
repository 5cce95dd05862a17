"""Position encodings: attention alone does not see the order of tokens; these make it visible.

Why not the plain index 0, 1, 2, ...? It grows without bound and drowns the embedding, and a
length never seen in training gives a number never seen in training. Sines of many wavelengths
stay between -1 and 1, and a shift by n tokens is the same rotation at every position.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pellucid.config import PositionLayout
from pellucid.errors import InputError

FIRST_LENGTH = 256  # tables start with this length and double for longer sequences


def wave_angles(length: int, dim: int, base: float) -> Tensor:
    """Return position / base^(2i / dim) for each position and each of the dim / 2 wavelengths.

    `(length, dim / 2)` in float64: the angles of far positions need the precision.
    """
    wavelengths = base ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    return torch.arange(length, dtype=torch.float64)[:, None] / wavelengths


def sinusoidal_table(
    length: int, d_model: int, *, base: float = 10000.0, layout: PositionLayout = "interleaved"
) -> Tensor:
    """Return the fixed positional encoding of the paper, `(length, D)`.

    interleaved: column 2i is a sine and 2i + 1 the cosine of the same wavelength (the paper).
    halves: all sines, then all cosines (tensor2tensor, Marian): the same columns, reordered.
    """
    angles = wave_angles(length, d_model, base)
    if layout == "halves":
        table = torch.cat([angles.sin(), angles.cos()], dim=-1)
    else:
        table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
    return table.float()


def _table_length(length: int) -> int:
    """Return the next table length that holds `length` positions."""
    return max(FIRST_LENGTH, 1 << (length - 1).bit_length())


class SinusoidalPositions(nn.Module):
    """Sinusoidal position vectors: computed once, reused for every sentence, of any length."""

    table: Tensor

    def __init__(self, d_model: int, *, base: float, layout: PositionLayout) -> None:
        super().__init__()
        self.d_model, self.base, self.layout = d_model, base, layout
        self.register_buffer("table", self._computed(FIRST_LENGTH), persistent=False)

    def _computed(self, length: int) -> Tensor:
        return sinusoidal_table(length, self.d_model, base=self.base, layout=self.layout)

    def forward(self, length: int, past: int = 0) -> Tensor:
        """Return the vectors of positions past .. past + length - 1, `(length, D)`."""
        if past + length > self.table.shape[0]:
            self.table = self._computed(_table_length(past + length)).to(self.table)
        return self.table[past : past + length]


class LearnedPositions(nn.Module):
    """One trained vector for each position, up to a fixed length."""

    def __init__(self, max_length: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_length, d_model))

    def forward(self, length: int, past: int = 0) -> Tensor:
        """Return the vectors of positions past .. past + length - 1, `(length, D)`."""
        if past + length > self.weight.shape[0]:
            raise InputError(
                f"a sequence of {past + length} tokens is longer than the {self.weight.shape[0]} "
                "learned positions: shorten it, raise max_length and train again, or use "
                "sinusoidal or rotary positions"
            )
        return self.weight[past : past + length]


class RotaryPositions(nn.Module):
    """Rotary positions (RoPE): rotate pairs of dimensions of queries and keys by their position.

    The product of a query at position m and a key at n then depends on m - n only. halves pairs
    dimension i with i + K/2 (Llama); interleaved pairs 2i with 2i + 1 (the RoFormer paper).
    """

    cosines: Tensor
    sines: Tensor

    def __init__(self, head_dim: int, *, base: float, layout: PositionLayout) -> None:
        super().__init__()
        self.head_dim, self.base, self.layout = head_dim, base, layout
        cosines, sines = self._computed(FIRST_LENGTH)
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)

    def _computed(self, length: int) -> tuple[Tensor, Tensor]:
        angles = wave_angles(length, self.head_dim, self.base)
        if self.layout == "halves":
            angles = torch.cat([angles, angles], dim=-1)
        else:
            angles = angles.repeat_interleave(2, dim=-1)
        return angles.cos().float(), angles.sin().float()

    def _quarter_turn(self, x: Tensor) -> Tensor:
        """Map each pair (a, b) to (-b, a)."""
        if self.layout == "halves":
            a, b = x.chunk(2, dim=-1)
            return torch.cat([-b, a], dim=-1)
        return torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).flatten(-2)

    def forward(self, x: Tensor, past: int = 0) -> Tensor:
        """Rotate `x (B, H, T, K)`, whose first row is at position `past`."""
        end = past + x.shape[-2]
        if end > self.cosines.shape[0]:
            cosines, sines = self._computed(_table_length(end))
            self.cosines, self.sines = cosines.to(self.cosines), sines.to(self.sines)
        return x * self.cosines[past:end] + self._quarter_turn(x) * self.sines[past:end]
