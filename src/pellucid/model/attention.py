"""Attention: a token's query is compared with every key, and the values are mixed accordingly.

`attend` is the formula of the paper, step by step, and has no parameters. `attend_fused` computes
the same with PyTorch's fused kernel; a parity test binds the two.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.model.dropout import dropout
from pellucid.model.positions import RotaryPositions
from pellucid.model.tensor_trace import TensorTrace


class KeyValues(NamedTuple):
    """Keys and values, `(B, G, S, K)` each."""

    keys: Tensor
    values: Tensor


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    dropout_rate: float = 0.0,
    trace: TensorTrace | None = None,
) -> Tensor:
    """Compute softmax(q kᵀ / √K) v.

    `q (B, H, T, K)`, `k` and `v (B, G, S, K)` where G divides H; `mask` is boolean, True where a
    query may attend. A masked weight is exactly 0; a row that is masked everywhere gives zeros.
    """
    if k.shape[1] != q.shape[1]:  # each head of keys and values serves H / G heads of queries
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)

    scores = q @ k.transpose(-2, -1)  # (B, H, T, S)
    scaled = scores / math.sqrt(q.shape[-1])
    if mask is None:
        weights = scaled.softmax(dim=-1)
    else:
        # The lowest finite number, not -inf: exp gives 0 all the same, and a row that is masked
        # everywhere stays finite, forward and backward, until the second fill sets it to 0.
        hidden = ~mask
        lowest = torch.finfo(scaled.dtype).min
        weights = scaled.masked_fill(hidden, lowest).softmax(dim=-1).masked_fill(hidden, 0.0)
    mixed = dropout(weights, dropout_rate) @ v  # (B, H, T, K)

    if trace is not None:
        for name, tensor in [("q", q), ("k", k), ("v", v), ("scores", scores)]:
            trace.record(name, tensor)
        if mask is not None:
            trace.record("mask", mask)
        trace.record("scaled", scaled)
        trace.record("weights", weights)
        trace.record("mixed", mixed)
    return mixed


def attend_fused(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, dropout_rate: float = 0.0
) -> Tensor:
    """Compute the same as `attend` with PyTorch's kernel, which never holds all (T, S) weights."""
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout_rate, enable_gqa=k.shape[1] != q.shape[1]
    )


def fused_pays(q: Tensor, k: Tensor, dropout_rate: float) -> bool:
    """Return whether the fused kernel is faster for these shapes on this device.

    On a GPU it always is. On a CPU (measured with `python -m benchmarks attention`) it is slower
    with dropout, and on sentences of fewer than about 32 tokens, unless there are so few rows that
    the number of calls dominates.
    """
    if q.device.type != "cpu":
        return True
    if dropout_rate > 0.0:
        return False
    rows = q.shape[0] * q.shape[1] * q.shape[2]
    return k.shape[-2] >= 32 or rows <= 256


class MultiHeadAttention(nn.Module):
    """Multi-head attention: several heads of width K attend in parallel, and W_O joins them.

    W_Q, W_K and W_V are one matrix, so that one product computes all three. Self-attention takes
    queries, keys and values from the same tokens. Cross-attention takes the queries from the
    decoder, and the keys and values from the encoder's output.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        *,
        bias: bool = True,
        dropout: float = 0.0,
        query_norm: nn.Module | None = None,
        key_norm: nn.Module | None = None,
        rotary: RotaryPositions | None = None,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads or num_heads
        self.head_dim = d_model // num_heads
        self.dropout_rate = dropout
        rows = (num_heads + 2 * self.num_kv_heads) * self.head_dim
        self.in_weight = nn.Parameter(torch.empty(rows, d_model))
        self.in_bias = nn.Parameter(torch.empty(rows)) if bias else None
        self.out = nn.Linear(num_heads * self.head_dim, d_model, bias=bias)
        self.query_norm = query_norm
        self.key_norm = key_norm
        self.rotary = rotary

    def projections(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return W_Q `(H·K, D)`, W_K and W_V `(G·K, D)` as views of the one matrix."""
        narrow = self.num_kv_heads * self.head_dim
        wide = self.num_heads * self.head_dim
        w_q, w_k, w_v = torch.split(self.in_weight, [wide, narrow, narrow])
        return w_q, w_k, w_v

    def _split_heads(self, x: Tensor) -> Tensor:
        """Reshape `(B, T, heads · K)` to `(B, heads, T, K)`."""
        B, T, _ = x.shape
        return x.view(B, T, -1, self.head_dim).transpose(1, 2)

    def _query(self, q: Tensor, past: int) -> Tensor:
        q = self._split_heads(q)  # (B, H, T, K)
        if self.query_norm is not None:
            q = self.query_norm(q)
        return q if self.rotary is None else self.rotary(q, past)

    def _key_values(self, k: Tensor, v: Tensor, past: int) -> KeyValues:
        k, v = self._split_heads(k), self._split_heads(v)  # (B, G, S, K)
        if self.key_norm is not None:
            k = self.key_norm(k)
        return KeyValues(k if self.rotary is None else self.rotary(k, past), v)

    def key_values(self, memory: Tensor) -> KeyValues:
        """Compute the cross-attention keys and values of the encoder's output `(B, S, D)`."""
        wide = self.num_heads * self.head_dim
        bias = None if self.in_bias is None else self.in_bias[wide:]
        k, v = F.linear(memory, self.in_weight[wide:], bias).chunk(2, dim=-1)
        return self._key_values(k, v, 0)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        past: KeyValues | None = None,
        trace: TensorTrace | None = None,
    ) -> tuple[Tensor, KeyValues]:
        """Compute self-attention of `x (B, T, D)`, with the `past` keys and values of a cache.

        Returns the output `(B, T, D)` and all keys and values, past ones included.
        """
        narrow = self.num_kv_heads * self.head_dim
        wide = self.num_heads * self.head_dim
        projected = F.linear(x, self.in_weight, self.in_bias)
        q, k, v = torch.split(projected, [wide, narrow, narrow], dim=-1)
        offset = 0 if past is None else past.keys.shape[-2]
        visible = self._key_values(k, v, offset)
        if past is not None:
            visible = KeyValues(
                torch.cat([past.keys, visible.keys], dim=-2),
                torch.cat([past.values, visible.values], dim=-2),
            )
        return self._mix(self._query(q, offset), visible, mask, trace), visible

    def cross(
        self,
        x: Tensor,
        over: KeyValues,
        mask: Tensor | None = None,
        *,
        trace: TensorTrace | None = None,
    ) -> Tensor:
        """Compute cross-attention of `x (B · beams, T, D)` over the keys and values of B sentences.

        The beams of a sentence share its keys and values: these are not copied; instead the
        queries of the beams are put side by side.
        """
        wide = self.num_heads * self.head_dim
        bias = None if self.in_bias is None else self.in_bias[:wide]
        q = self._query(F.linear(x, self.in_weight[:wide], bias), 0)  # (B · beams, H, T, K)
        beams = q.shape[0] // over.keys.shape[0]
        if beams == 1:
            return self._mix(q, over, mask, trace)
        if trace is not None:  # a trace records each beam separately
            copies = KeyValues(*(t.repeat_interleave(beams, dim=0) for t in over))
            mask = None if mask is None else mask.repeat_interleave(beams, dim=0)
            return self._mix(q, copies, mask, trace)
        if mask is not None and mask.shape[-2] != 1:
            mask = mask.repeat(1, 1, beams, 1)
        H, T, K = q.shape[1:]
        # (B · beams, H, T, K) to (B, H, beams · T, K)
        side_by_side = q.view(-1, beams, H, T, K).transpose(1, 2).reshape(-1, H, beams * T, K)
        mixed = self._attend(side_by_side, over, mask)  # (B, H, beams · T, K)
        mixed = mixed.view(-1, H, beams, T, K).transpose(1, 2).reshape(-1, H, T, K)
        return self._joined(mixed)

    def _attend(self, q: Tensor, over: KeyValues, mask: Tensor | None) -> Tensor:
        rate = self.dropout_rate if self.training else 0.0
        if fused_pays(q, over.keys, rate):
            return attend_fused(q, over.keys, over.values, mask, dropout_rate=rate)
        return attend(q, over.keys, over.values, mask, dropout_rate=rate)

    def _joined(self, mixed: Tensor) -> Tensor:
        """Concatenate the heads, `(B, H, T, K)` to `(B, T, H · K)`, and apply W_O."""
        return self.out(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _mix(
        self, q: Tensor, over: KeyValues, mask: Tensor | None, trace: TensorTrace | None
    ) -> Tensor:
        if trace is None:
            return self._joined(self._attend(q, over, mask))
        rate = self.dropout_rate if self.training else 0.0
        mixed = attend(q, over.keys, over.values, mask, dropout_rate=rate, trace=trace)
        output = self._joined(mixed)
        trace.record("joined", lambda: mixed.transpose(1, 2).flatten(2))  # (B, T, H · K)
        trace.record("head_outputs", lambda: self.head_outputs(mixed))
        trace.record("output", output)
        return output

    def head_outputs(self, mixed: Tensor) -> Tensor:
        """Return each head's part of the output `(B, H, T, D)`; W_O's bias comes on top."""
        w_o = self.out.weight.view(-1, self.num_heads, self.head_dim)  # (D, H, K)
        return torch.einsum("bhtk,dhk->bhtd", mixed, w_o)
