"""Where a token stands. Attention alone does not see order; these make it visible.

Why not the plain index 0, 1, 2, ...? It grows without bound and drowns the embedding, and a
length never seen in training gives a number never seen in training. Sines of many wavelengths
stay between -1 and 1, and a shift by n tokens is the same rotation wherever it happens.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pellucid.config import PositionLayout
from pellucid.errors import InputError

FIRST_LENGTH = 256  # tables start this long and double when a longer sequence comes


def wave_angles(length: int, width: int, base: float) -> Tensor:
    """position / base^(2i / width) for each position and each of the width / 2 wavelengths.

    `(length, width / 2)` in float64: the angles of far positions need the digits.
    """
    wavelengths = base ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.arange(length, dtype=torch.float64)[:, None] / wavelengths


def sinusoidal_table(
    length: int, width: int, *, base: float = 10000.0, layout: PositionLayout = "interleaved"
) -> Tensor:
    """The fixed positional encoding of the paper, `(length, width)`.

    interleaved: column 2i is a sine and 2i + 1 the cosine of the same wavelength (the paper).
    halves: all sines, then all cosines (tensor2tensor, Marian): the same numbers, columns moved.
    """
    angles = wave_angles(length, width, base)
    if layout == "halves":
        table = torch.cat([angles.sin(), angles.cos()], dim=-1)
    else:
        table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
    return table.float()


def _room_for(length: int) -> int:
    """The next table length that holds `length` positions."""
    return max(FIRST_LENGTH, 1 << (length - 1).bit_length())


class SinusoidalPositions(nn.Module):
    """Position vectors computed once, reused for every sentence, for sequences of any length."""

    table: Tensor

    def __init__(self, d_model: int, *, base: float, layout: PositionLayout) -> None:
        super().__init__()
        self.d_model, self.base, self.layout = d_model, base, layout
        self.register_buffer("table", self._computed(FIRST_LENGTH), persistent=False)

    def _computed(self, length: int) -> Tensor:
        return sinusoidal_table(length, self.d_model, base=self.base, layout=self.layout)

    def forward(self, length: int, past: int = 0) -> Tensor:
        """The vectors of positions past .. past + length - 1, `(length, D)`."""
        if past + length > self.table.shape[0]:
            self.table = self._computed(_room_for(past + length)).to(self.table)
        return self.table[past : past + length]


class LearnedPositions(nn.Module):
    """One trained vector for each position, up to a fixed length."""

    def __init__(self, max_length: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_length, d_model))

    def forward(self, length: int, past: int = 0) -> Tensor:
        """The vectors of positions past .. past + length - 1, `(length, D)`."""
        if past + length > self.weight.shape[0]:
            raise InputError(
                f"a sequence of {past + length} tokens is longer than the {self.weight.shape[0]} "
                "learned positions: shorten it, raise max_length and train again, or use "
                "sinusoidal or rotary positions"
            )
        return self.weight[past : past + length]


class RotaryPositions(nn.Module):
    """Turn pairs of numbers in queries and keys by an angle that grows with the position.

    The product of a query at m and a key at n then depends on m - n only. Halves pairs number i
    with number i + K/2 (Llama); interleaved pairs 2i with 2i + 1 (the RoFormer paper).
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
        """Each pair (a, b) to (-b, a)."""
        if self.layout == "halves":
            a, b = x.chunk(2, dim=-1)
            return torch.cat([-b, a], dim=-1)
        return torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).flatten(-2)

    def forward(self, x: Tensor, past: int = 0) -> Tensor:
        """`x (B, H, T, K)`, whose first row stands at position `past`, turned."""
        end = past + x.shape[-2]
        if end > self.cosines.shape[0]:
            cosines, sines = self._computed(_room_for(end))
            self.cosines, self.sines = cosines.to(self.cosines), sines.to(self.sines)
        return x * self.cosines[past:end] + self._quarter_turn(x) * self.sines[past:end]
