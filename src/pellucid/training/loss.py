"""Cross-entropy with label smoothing, without holding the logits of a whole batch.

With label smoothing ε over V tokens the target is q = (1 - ε) · onehot + ε / V, and the loss of a
token is -Σ q log p, which is KL(q ‖ p) plus the entropy of q, a constant. Losses are sums over
tokens, in nats; the caller divides by the number of tokens, of all batches of a step (gradient
accumulation) and of all processes.

`linear_loss` takes the decoder's states instead of logits. It computes the logits of some hundred
tokens at a time, turns them into their gradient in the same memory and multiplies it out, so that
only one chunk exists at a time and nothing of size (tokens, V) is kept for the backward pass.

With knowledge distillation, `SoftTargets` moves a part of the right token's probability to the
tokens that the teachers predict: onehot becomes (1 - Σ probabilities) · onehot + probabilities.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

CHUNK_NUMBERS = 1 << 22
"""Logits per chunk: 16 MB in fp32. On a CPU, twice as many no longer stay in the cache from one use
to the next, and with far fewer the matrix products are too small."""

GPU_CHUNKS = 16
"""How many times larger a chunk is on a GPU, to keep it busy."""


class TokenLoss(NamedTuple):
    """Sums over the target tokens, in nats."""

    smoothed: Tensor
    """Training loss: cross-entropy with the smoothed (and distilled) target."""

    plain: Tensor
    """-log p of the right tokens, which gives the perplexity. It has no gradient."""


class SoftTargets(NamedTuple):
    """Teacher probabilities at N target positions, for K tokens each."""

    tokens: Tensor
    """(N, K) token ids."""

    probabilities: Tensor
    """(N, K) their probabilities times the weight of distillation. They add up to at most 1; the
    right token keeps the rest."""


def smoothed_cross_entropy(
    logits: Tensor,
    targets: Tensor,
    smoothing: float = 0.0,
    soft_targets: SoftTargets | None = None,
) -> TokenLoss:
    """Compute the loss by the plain formula, from logits `(N, V)` and token ids `(N,)`.

    `linear_loss` must equal it; a test compares them.
    """
    logs = logits.to(_sum_dtype(logits.dtype)).log_softmax(dim=-1)
    right = -logs.gather(-1, targets[:, None])
    hard = right.sum()
    if soft_targets is not None:
        tokens, probabilities = soft_targets
        kept = 1 - probabilities.sum(dim=-1, keepdim=True)  # (N, 1): what the right token keeps
        hard = (kept * right).sum() - (probabilities * logs.gather(-1, tokens)).sum()
    smoothed = (1 - smoothing) * hard - smoothing * logs.mean(dim=-1).sum()
    return TokenLoss(smoothed, right.sum().detach())


def linear_loss(
    states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float = 0.0,
    soft_targets: SoftTargets | None = None,
) -> TokenLoss:
    """Compute the loss of `states (N, D)` through the output layer `weight (V, D)`, `bias (V,)`.

    Equals `smoothed_cross_entropy` of the logits `F.linear(states, weight, bias)`.
    """
    smoothed, plain = _LinearLoss.apply(  # type: ignore[no-untyped-call]
        states, weight, bias, targets, smoothing, soft_targets
    )
    return TokenLoss(smoothed, plain)


def _sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return float32 for half precision, which is too coarse for a sum over the vocabulary."""
    return torch.promote_types(dtype, torch.float32)


class _LinearLoss(torch.autograd.Function):
    """Compute the gradients during the forward pass, chunk by chunk."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        soft_targets: SoftTargets | None,
    ) -> tuple[Tensor, Tensor]:
        if torch.is_autocast_enabled(states.device.type):
            dtype = torch.get_autocast_dtype(states.device.type)
        else:
            dtype = states.dtype
        needs_grad = any(ctx.needs_input_grad[:3])
        rows, matrix = states.to(dtype), weight.to(dtype)
        N, V = len(states), len(weight)
        numbers = CHUNK_NUMBERS * (1 if states.device.type == "cpu" else GPU_CHUNKS)
        size = max(1, min(N, numbers // V))
        wide = _sum_dtype(dtype)
        all_weights = matrix.sum(dim=0, dtype=wide)  # x · Σw is the sum of a token's logits
        all_biases = 0.0 if bias is None else bias.sum(dtype=wide)
        smoothed, plain = (states.new_zeros((), dtype=wide) for _ in range(2))
        d_states = torch.empty_like(rows) if needs_grad else None
        d_weight = torch.zeros_like(weight) if needs_grad else None
        d_bias = torch.zeros_like(bias) if needs_grad and bias is not None else None
        buffer = rows.new_empty(size, V)
        for start in range(0, N, size):
            some, right = rows[start : start + size], targets[start : start + size, None]
            logits = _logits(some, matrix, bias, buffer[: len(some)]).to(wide)
            right_logit, max_logit = logits.gather(-1, right), logits.amax(dim=-1, keepdim=True)
            soft = None if soft_targets is None else _chunk(soft_targets, start, size, wide)
            soft_logits = None if soft is None else logits.gather(-1, soft.tokens)
            p = torch.softmax(logits, dim=-1, out=logits)
            log_z = max_logit - p.amax(dim=-1, keepdim=True).log()  # log Σ exp, (n, 1)
            nll = log_z - right_logit  # -log p of the right tokens, (n, 1)
            plain += nll.sum()
            kept = None
            if soft is not None and soft_logits is not None:
                kept = 1 - soft.probabilities.sum(dim=-1, keepdim=True)
                soft_nll = (soft.probabilities * (log_z - soft_logits)).sum(dim=-1, keepdim=True)
                nll = kept * nll + soft_nll
            mean = ((some * all_weights).sum(dim=-1) + all_biases) / V  # @ would not sum in `wide`
            smoothed += (1 - smoothing) * nll.sum() + smoothing * (log_z.squeeze(-1) - mean).sum()
            if d_states is None or d_weight is None:
                continue
            _subtract_targets(p, right, smoothing, soft, kept)
            if d_bias is not None:
                d_bias += p.sum(dim=0) - len(some) * smoothing / V
            gradient = p.to(dtype)
            torch.mm(gradient, matrix, out=d_states[start : start + size])
            if d_weight.dtype == dtype:
                d_weight.addmm_(gradient.t(), some)
            else:
                d_weight += gradient.t() @ some
        if d_states is not None and d_weight is not None and smoothing:
            d_states -= (smoothing / V * all_weights).to(dtype)
            d_weight -= (smoothing / V * rows.sum(dim=0, dtype=wide)).to(d_weight.dtype)
        ctx.dtype = states.dtype
        ctx.save_for_backward(*(t for t in (d_states, d_weight, d_bias) if t is not None))
        ctx.has_bias = bias is not None
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        outer = upstream[0]
        d_states, d_weight, *rest = ctx.saved_tensors
        d_bias = rest[0].mul_(outer) if ctx.has_bias else None
        # In place: backward runs once, and nobody else holds these tensors.
        return d_states.mul_(outer).to(ctx.dtype), d_weight.mul_(outer), d_bias, *[None] * 3


def _subtract_targets(
    p: Tensor, right: Tensor, smoothing: float, soft: SoftTargets | None, kept: Tensor | None
) -> None:
    """Turn probabilities `p (n, V)` into d loss / d logits = p - q, in place.

    The ε / V of each q is left out: it is subtracted at the end, through sums over the vocabulary
    and over the tokens.
    """
    if soft is None or kept is None:
        p.scatter_add_(-1, right, p.new_full(right.shape, smoothing - 1))
    else:
        p.scatter_add_(-1, right, (smoothing - 1) * kept)
        p.scatter_add_(-1, soft.tokens, (smoothing - 1) * soft.probabilities)


def _chunk(soft_targets: SoftTargets, start: int, size: int, dtype: torch.dtype) -> SoftTargets:
    """Return the soft targets of some rows."""
    tokens, probabilities = (part[start : start + size] for part in soft_targets)
    return SoftTargets(tokens, probabilities.to(dtype))


def _logits(rows: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
    """Compute the output layer into `out`: allocating each chunk anew would double the cost."""
    if bias is None:
        return torch.mm(rows, weight.t(), out=out)
    return torch.addmm(bias.to(rows.dtype), rows, weight.t(), out=out)
