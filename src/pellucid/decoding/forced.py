"""Teacher forcing: the model's log-probabilities and attention for given outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pellucid.decoding.engine import SpecialIds
from pellucid.decoding.torch.predictor import cross_attention, padded
from pellucid.model import TensorTrace, Transformer

TRACE_BYTES = 2**31
"""Most memory for the recorded attention."""

_CROSS = "decoder.*.cross.weights"


class Forced(NamedTuple):
    """Log-probabilities and attention of one given output of T tokens."""

    log_probabilities: np.ndarray
    """(T + 1,) of each token and of the end token after them."""
    attention: np.ndarray | None
    """(T + 1, S) cross-attention of the same positions, if asked for."""


def force_decode(
    model: Transformer,
    special: SpecialIds,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    *,
    attention: bool = False,
    layer: int | None = -1,
    head: int | None = None,
) -> list[Forced]:
    """Return log-probabilities (and cross-attention) of given outputs, all positions at once.

    targets: tokens without the start and end tokens. No source may be empty.
    """
    if not sources:
        return []
    with torch.inference_mode():
        trace = TensorTrace(only=[_CROSS], max_bytes=TRACE_BYTES) if attention else None
        logits = _logits(model, special, sources, targets, trace)
        labels = padded([[*t, special.end] for t in targets], special.pad, logits.device)
        logs = logits.float().log_softmax(dim=-1).gather(-1, labels[:, :, None]).squeeze(-1)
        per_token = logs.double().cpu().numpy()
        weights = None
        if trace is not None:
            weights = cross_attention(trace, layer, head).float().cpu().numpy()
    found = []
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        T = len(target) + 1
        seen = None if weights is None else weights[row, :T, : len(source)].copy()
        found.append(Forced(per_token[row, :T].copy(), seen))
    return found


def read_attention(
    model: Transformer,
    special: SpecialIds,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
) -> list[np.ndarray]:
    """Return the cross-attention of every layer and head, `(L, H, T + 1, S)` for each output."""
    with torch.inference_mode():
        trace = TensorTrace(only=[_CROSS], max_bytes=TRACE_BYTES)
        _logits(model, special, sources, targets, trace)
        layers = [trace[name] for name in trace.names(_CROSS)]
        weights = torch.stack(layers, dim=1).float().cpu().numpy()  # (B, L, H, T + 1, S)
    return [
        weights[row, :, :, : len(target) + 1, : len(source)]
        for row, (source, target) in enumerate(zip(sources, targets, strict=True))
    ]


def _logits(
    model: Transformer,
    special: SpecialIds,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    trace: TensorTrace | None,
) -> Tensor:
    """Return the logits at each position, `(B, T + 1, V)`."""
    device = model.output.weight.device
    inputs = padded([[special.start, *t] for t in targets], special.pad, device)
    cache = model.start(model.encode(padded(sources, special.pad, device)))
    # Padding is at the end, where the causal mask hides it from all positions that count.
    logits, _ = model.decode(inputs, cache, trace=trace)
    return logits
