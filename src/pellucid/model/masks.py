"""Attention masks: boolean, True where a query may attend to a key.

Every mask has the shape (B or 1, H or 1, queries or 1, keys), so that any of them combine by
broadcasting. There are three kinds: padding, causal (look-ahead) and encoder-decoder; the last
is a padding mask over the source, or any mask that hides chosen source tokens from the decoder.
"""

from __future__ import annotations

import torch
from torch import Tensor


def padding_mask(ids: Tensor, pad_id: int) -> Tensor:
    """Hide padding: map `ids (B, S)` to a mask `(B, 1, 1, S)`, the same for every query."""
    return (ids != pad_id)[:, None, None, :]


def target_padding_mask(ids: Tensor, pad_id: int) -> Tensor:
    """Hide padding in a target: map `ids (B, T)` to a mask `(B, 1, 1, T)`.

    The first token is the start symbol and never padding, even in models (Marian's) whose start
    symbol has the pad id.
    """
    mask = padding_mask(ids, pad_id)
    mask[..., 0] = True
    return mask


def causal_mask(length: int, *, past: int = 0, device: torch.device | None = None) -> Tensor:
    """Hide the future with a mask `(1, 1, length, past + length)`.

    Query i is at position past + i and attends to the keys up to and including its own position.
    """
    ones = torch.ones(length, past + length, dtype=torch.bool, device=device)
    return ones.tril(past)[None, None]


def combine(*masks: Tensor | None) -> Tensor | None:
    """Combine masks: a key is visible where every mask allows it; None allows everything."""
    combined: Tensor | None = None
    for mask in masks:
        if mask is not None:
            combined = mask if combined is None else combined & mask
    return combined
