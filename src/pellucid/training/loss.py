"""Cross-entropy with label smoothing, without holding the logits of a whole batch.

With smoothing ε over V tokens the target is q = (1 - ε) · onehot + ε / V, and the loss of a token
is -Σ q log p, which is KL(q ‖ p) plus the entropy of q, a constant. Losses are sums over tokens,
in nats; who adds up several batches or processes divides by the tokens of all of them.

`linear_loss` takes the decoder's states in place of logits. It makes the logits of some hundred
tokens at a time, and in the same place turns them into their gradient and multiplies it out, so
that at no time more than one such chunk is there; nothing of size (tokens, V) is kept for the
backward pass.

Where teachers were asked (`distillation.teachers`), `Taught` says how much of the right token's place
in the target goes to which tokens: onehot becomes (1 - Σ shares) · onehot + shares.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

CHUNK_NUMBERS = 1 << 22
"""Logits in a chunk: 16 MB in fp32. On a CPU twice as many no longer stay in its cache from one use
to the next, and with far fewer the products are too small."""

GPU_CHUNKS = 16
"""A chunk on a GPU is so many times larger, to keep it busy."""


class TokenLoss(NamedTuple):
    """Sums over the target tokens, in nats."""

    smoothed: Tensor
    """What is minimised: against the smoothed target."""

    plain: Tensor
    """-log p of the right tokens, of which the perplexity is made. It has no gradient."""


class Taught(NamedTuple):
    """What teachers hold probable where N targets stand."""

    tokens: Tensor
    """(N, K)"""

    shares: Tensor
    """(N, K) how much of the target each of them gets, at most 1 together; the right token keeps
    the rest."""


def smoothed_cross_entropy(
    logits: Tensor,
    targets: Tensor,
    smoothing: float = 0.0,
    taught: Taught | None = None,
) -> TokenLoss:
    """The plain formula, from logits `(N, V)` and token ids `(N,)`; `linear_loss` must equal it."""
    logs = logits.to(_sum_dtype(logits.dtype)).log_softmax(dim=-1)
    right = -logs.gather(-1, targets[:, None])
    wanted = right.sum()
    if taught is not None:
        kept = 1 - taught.shares.sum(dim=-1, keepdim=True)
        wanted = (kept * right).sum() - (taught.shares * logs.gather(-1, taught.tokens)).sum()
    smoothed = (1 - smoothing) * wanted - smoothing * logs.mean(dim=-1).sum()
    return TokenLoss(smoothed, right.sum().detach())


def linear_loss(
    states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float = 0.0,
    taught: Taught | None = None,
) -> TokenLoss:
    """The loss of `states (N, D)` through the output layer `weight (V, D)`, `bias (V,)`.

    Equal to `smoothed_cross_entropy` of `F.linear(states, weight, bias)` and the rest.
    """
    smoothed, plain = _LinearLoss.apply(  # type: ignore[no-untyped-call]
        states, weight, bias, targets, smoothing, taught
    )
    return TokenLoss(smoothed, plain)


def _sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """float32 for half precision, which cannot hold a sum over a vocabulary."""
    return torch.promote_types(dtype, torch.float32)


class _LinearLoss(torch.autograd.Function):
    """Computes the gradients on the way forward, chunk by chunk."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        taught: Taught | None,
    ) -> tuple[Tensor, Tensor]:
        if torch.is_autocast_enabled(states.device.type):
            kind = torch.get_autocast_dtype(states.device.type)
        else:
            kind = states.dtype
        wants = any(ctx.needs_input_grad[:3])
        rows, matrix = states.to(kind), weight.to(kind)
        N, V = len(states), len(weight)
        numbers = CHUNK_NUMBERS * (1 if states.device.type == "cpu" else GPU_CHUNKS)
        size = max(1, min(N, numbers // V))
        wide = _sum_dtype(kind)
        all_weights = matrix.sum(dim=0, dtype=wide)  # x · Σw is the sum of a token's logits
        all_biases = 0.0 if bias is None else bias.sum(dtype=wide)
        smoothed, plain = (states.new_zeros((), dtype=wide) for _ in range(2))
        d_states = torch.empty_like(rows) if wants else None
        d_weight = torch.zeros_like(weight) if wants else None
        d_bias = torch.zeros_like(bias) if wants and bias is not None else None
        room = rows.new_empty(size, V)
        for start in range(0, N, size):
            some, right = rows[start : start + size], targets[start : start + size, None]
            logits = _logits(some, matrix, bias, room[: len(some)]).to(wide)
            of_right, highest = logits.gather(-1, right), logits.amax(dim=-1, keepdim=True)
            told = None if taught is None else _part(taught, start, size, wide)
            of_taught = None if told is None else logits.gather(-1, told.tokens)
            p = torch.softmax(logits, dim=-1, out=logits)
            norm = highest - p.amax(dim=-1, keepdim=True).log()  # log Σ exp, (n, 1)
            wrong = norm - of_right  # -log p of the right tokens, (n, 1)
            plain += wrong.sum()
            kept = None
            if told is not None and of_taught is not None:
                kept = 1 - told.shares.sum(dim=-1, keepdim=True)
                wrong = kept * wrong + (told.shares * (norm - of_taught)).sum(dim=-1, keepdim=True)
            mean = ((some * all_weights).sum(dim=-1) + all_biases) / V  # in `wide`, as @ is not
            smoothed += (1 - smoothing) * wrong.sum() + smoothing * (norm.squeeze(-1) - mean).sum()
            if d_states is None or d_weight is None:
                continue
            # d loss / d logits = p - q, written over p; but for the ε / V in each q, for which
            # there are sums
            if told is None or kept is None:
                p.scatter_add_(-1, right, p.new_full(right.shape, smoothing - 1))
            else:
                p.scatter_add_(-1, right, (smoothing - 1) * kept)
                p.scatter_add_(-1, told.tokens, (smoothing - 1) * told.shares)
            if d_bias is not None:
                d_bias += p.sum(dim=0) - len(some) * smoothing / V
            gradient = p.to(kind)
            torch.mm(gradient, matrix, out=d_states[start : start + size])
            if d_weight.dtype == kind:
                d_weight.addmm_(gradient.t(), some)
            else:
                d_weight += gradient.t() @ some
        if d_states is not None and d_weight is not None and smoothing:
            d_states -= (smoothing / V * all_weights).to(kind)
            d_weight -= (smoothing / V * rows.sum(dim=0, dtype=wide)).to(d_weight.dtype)
        ctx.kind = states.dtype
        ctx.save_for_backward(*(t for t in (d_states, d_weight, d_bias) if t is not None))
        ctx.has_bias = bias is not None
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        outer = upstream[0]
        d_states, d_weight, *rest = ctx.saved_tensors
        d_bias = rest[0].mul_(outer) if ctx.has_bias else None
        # In place: this function is run once, and its results are its own.
        return d_states.mul_(outer).to(ctx.kind), d_weight.mul_(outer), d_bias, *[None] * 3


def _part(taught: Taught, start: int, size: int, kind: torch.dtype) -> Taught:
    """That of some rows."""
    tokens, shares = (part[start : start + size] for part in taught)
    return Taught(tokens, shares.to(kind))


def _logits(rows: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
    """The output layer, written into `out`: new memory for each chunk would cost as much again."""
    if bias is None:
        return torch.mm(rows, weight.t(), out=out)
    return torch.addmm(bias.to(rows.dtype), rows, weight.t(), out=out)
