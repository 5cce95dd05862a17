"""Initial embeddings from co-occurrence: tokens of the same sentence pairs start close together.

With random embeddings, most of the first epochs goes into learning which words belong together,
above all across the languages: that "dog" and "Hund" occur in the same pairs. That much can be
counted before training. Let X be the matrix of pairs and tokens: a row for each pair, a column for
each token, the inverse document frequency log(n / n_j) where token j occurs in the pair, and rows
normalised to length 1. Its truncated singular value decomposition X ≈ U Σ Vᵀ with rank D gives
each token a row of V √Σ. A token and its translation occur in nearly the same pairs, so they get
nearly the same vector, and attention, which compares vectors by dot products, finds it from the
first step on. (Latent semantic indexing across languages: Landauer and Littman, 1990.)
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.data.store import Split
from pellucid.model import Transformer

MAX_PAIRS = 200_000
"""Maximum number of pairs that are counted, evenly spread over all."""

STD = 0.02
"""Standard deviation of the embeddings: small, so that the first predictions are uniform and the
loss begins at ln V. With tied embeddings and 1/√D, the model would predict its input token."""

COUNTED = 0.9
"""Fraction of the variance that comes from co-occurrence; the rest is random, so that no two tokens
get the same vector."""


def init_embeddings(model: Transformer, split: Split, seed: int) -> None:
    """Set a model's embeddings from co-occurrence in its training pairs."""
    generator = torch.Generator().manual_seed(seed)
    tables: dict[int, Tensor] = {}
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            tables[id(module.weight)] = module.weight
    tables[id(model.output.weight)] = model.output.weight
    largest = max(len(table) for table in tables.values())
    found = cooccurrence_embeddings(split, largest, model.config.d_model, generator)
    for table in tables.values():
        rows = len(table)
        drawn = torch.randn(rows, model.config.d_model, generator=generator) * STD
        seen = found[:rows].abs().sum(dim=1, keepdim=True) > 0
        mixed = COUNTED**0.5 * STD * found[:rows] + (1 - COUNTED) ** 0.5 * drawn
        start = torch.where(seen, mixed, drawn)
        if hasattr(table, "full_tensor"):  # this process has a shard of it (FSDP)
            from pellucid.training.distributed.fsdp import shard_like

            start = shard_like(table, start)
        with torch.no_grad():
            table.copy_(start)


def cooccurrence_embeddings(
    split: Split, vocab_size: int, d_model: int, generator: torch.Generator
) -> Tensor:
    """Compute vectors `(V, D)` of length √D for the tokens in the pairs, and 0 for other tokens.

    Both sides of a pair count alike, so they must share one vocabulary.
    """
    table = CooccurrenceMatrix(split, vocab_size)
    size = min(d_model, vocab_size)
    # Randomised SVD: a random subspace, turned towards the largest singular vectors by a few power
    # iterations (Halko and others).
    basis = torch.randn(vocab_size, min(vocab_size, size + 20), generator=generator)
    for _ in range(4):
        basis, _ = torch.linalg.qr(table.transposed_times(table.times(basis)))
    rows = table.times(basis)
    squares, vectors = torch.linalg.eigh(rows.T @ rows)
    values = squares.flip(0)[:size].clamp(min=0).sqrt()
    found = (basis @ vectors.flip(1)[:, :size]) * values.sqrt()
    found = F.pad(found, (0, d_model - size))
    # The first dimensions have most of the weight: a random rotation spreads it over all heads.
    mixed = found @ torch.linalg.qr(torch.randn(d_model, d_model, generator=generator))[0]
    lengths = mixed.norm(dim=1, keepdim=True)
    counted = lengths > 1e-3  # of tokens that do not occur, only rounding errors are left
    return torch.where(counted, mixed / lengths.clamp(min=1e-3) * d_model**0.5, 0.0)


class CooccurrenceMatrix:
    """The sparse matrix X, stored by pairs, and once more by tokens for Xᵀ."""

    def __init__(self, split: Split, vocab_size: int) -> None:
        sampled = np.unique(np.linspace(0, len(split) - 1, min(len(split), MAX_PAIRS)).astype(int))
        found = [
            np.unique(np.concatenate([split.ids(pair, 0), split.ids(pair, 1)])).astype(np.int64)
            for pair in sampled.tolist()
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
        """Return X times `(V, k)`: for each pair, the weighted sum of its tokens' rows."""
        return _weighted_sums(matrix, *self._by_pairs)

    def transposed_times(self, matrix: Tensor) -> Tensor:
        """Return Xᵀ times `(n, k)`: for each token, the weighted sum of its pairs' rows."""
        return _weighted_sums(matrix, *self._by_tokens)


def _weighted_sums(matrix: Tensor, rows: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
    return F.embedding_bag(rows, matrix, starts, mode="sum", per_sample_weights=weights)
