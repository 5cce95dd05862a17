"""Embeddings to start from: tokens that stand in the same sentence pairs lie close together.

Random embeddings know nothing, and most of the first epochs goes into finding out which words
belong together, above all across the languages: that "dog" and "Hund" stand in the same pairs. That
much can be counted before training begins. Write X for the table of pairs and tokens: a row for
each pair, a column for each token, the inverse document frequency log(n / n_j) where token j stands
in a pair, rows made equally long. Its singular value decomposition X ≈ U Σ Vᵀ, cut off at D, gives
each token a row of V √Σ. A token and its translation stand in nearly the same pairs, so they get
nearly the same vector, and attention, which goes by products of vectors, finds it from the first
step on. (Latent semantic indexing across languages: Landauer and Littman, 1990.)
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.data.store import Split
from pellucid.model import Transformer

MOST_PAIRS = 200_000
"""Pairs that are counted, evenly spread over all."""

STD = 0.02
"""Of the numbers: small, so that the first predictions are even and the loss begins at ln V. With
tied embeddings and 1/√D, the token that was just read would look by far the most probable one."""

COUNTED = 0.9
"""The share of the counted part in the variance; the rest is drawn at random, for every token, so
that no two are the same."""


def start_embeddings(model: Transformer, split: Split, seed: int) -> None:
    """Give a model embeddings from the pairs it will learn from."""
    generator = torch.Generator().manual_seed(seed)
    tables: dict[int, Tensor] = {}
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            tables[id(module.weight)] = module.weight
    tables[id(model.output.weight)] = model.output.weight
    largest = max(len(table) for table in tables.values())
    found = embeddings_from_pairs(split, largest, model.config.d_model, generator)
    for table in tables.values():
        rows = len(table)
        drawn = torch.randn(rows, model.config.d_model, generator=generator) * STD
        seen = found[:rows].abs().sum(dim=1, keepdim=True) > 0
        mixed = COUNTED**0.5 * STD * found[:rows] + (1 - COUNTED) ** 0.5 * drawn
        start = torch.where(seen, mixed, drawn)
        if hasattr(table, "full_tensor"):  # this process has a share of it (FSDP)
            from pellucid.training.distributed.fsdp import share_of

            start = share_of(table, start)
        with torch.no_grad():
            table.copy_(start)


def embeddings_from_pairs(
    split: Split, vocab_size: int, width: int, generator: torch.Generator
) -> Tensor:
    """A vector `(V, D)` for each token that comes up in the pairs, of length √D; zero for others.

    Both sides of a pair count alike, so they share one vocabulary.
    """
    table = PairTable(split, vocab_size)
    size = min(width, vocab_size)
    # A random subspace, turned a few times towards the largest singular vectors (Halko and others).
    basis = torch.randn(vocab_size, min(vocab_size, size + 20), generator=generator)
    for _ in range(4):
        basis, _ = torch.linalg.qr(table.turned(table.times(basis)))
    rows = table.times(basis)
    squares, vectors = torch.linalg.eigh(rows.T @ rows)
    values = squares.flip(0)[:size].clamp(min=0).sqrt()
    found = (basis @ vectors.flip(1)[:, :size]) * values.sqrt()
    found = F.pad(found, (0, width - size))
    # The first directions have most of the weight: mixed, all heads get their share of it.
    mixed = found @ torch.linalg.qr(torch.randn(width, width, generator=generator))[0]
    lengths = mixed.norm(dim=1, keepdim=True)
    told = lengths > 1e-3  # of the others, only rounding is left
    return torch.where(told, mixed / lengths.clamp(min=1e-3) * width**0.5, 0.0)


class PairTable:
    """X, of which only what is not zero is kept: by pairs, and once more by tokens for Xᵀ."""

    def __init__(self, split: Split, vocab_size: int) -> None:
        chosen = np.unique(np.linspace(0, len(split) - 1, min(len(split), MOST_PAIRS)).astype(int))
        found = [
            np.unique(np.concatenate([split.ids(pair, 0), split.ids(pair, 1)])).astype(np.int64)
            for pair in chosen.tolist()
        ]
        counts = torch.tensor([len(some) for some in found])
        tokens = torch.from_numpy(np.concatenate(found))
        pairs = torch.repeat_interleave(counts)
        single = torch.bincount(tokens, minlength=vocab_size)
        weights = (len(found) / single[tokens]).log()
        squares = torch.zeros(len(found)).index_add_(0, pairs, weights**2)
        weights /= squares.sqrt().clamp(min=1e-6)[pairs]
        by_token = torch.argsort(tokens, stable=True)
        self._by_pairs = tokens, counts.cumsum(0) - counts, weights
        self._by_tokens = pairs[by_token], single.cumsum(0) - single, weights[by_token]

    def times(self, matrix: Tensor) -> Tensor:
        """X times `(V, k)`: for each pair, the weighted sum of its tokens' rows."""
        return _sums(matrix, *self._by_pairs)

    def turned(self, matrix: Tensor) -> Tensor:
        """Xᵀ times `(n, k)`: for each token, the weighted sum of its pairs' rows."""
        return _sums(matrix, *self._by_tokens)


def _sums(matrix: Tensor, rows: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
    return F.embedding_bag(rows, matrix, starts, mode="sum", per_sample_weights=weights)
