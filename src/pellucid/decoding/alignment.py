"""Word alignment from cross-attention: which layer and head gives the best alignment.

In a trained model one cross-attention head, or the mean of a layer's heads, attends to the source
words that a person would align with each output word. It is chosen on sentence pairs whose
alignment is known: made by hand, or found by the model itself, by leaving out one source token
after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pellucid.decoding.engine import SpecialIds
from pellucid.decoding.forced import force_decode, read_attention
from pellucid.errors import InputError
from pellucid.model import Transformer

MEAN = -1
"""In place of a head: the mean of a layer's heads."""

_BATCH = 32  # pairs in one forward pass
_MIN_LINKS = 50  # links needed to choose among heads
# A link: leaving the source token out costs so many nats, and so many times more than any other.
_MIN_LOSS, _MIN_RATIO = 0.1, 1.5


class AlignedPair(NamedTuple):
    """A sentence pair as token ids with its alignment."""

    source: Sequence[int]
    """As the encoder reads it, with the language tag and the end token."""
    target: Sequence[int]
    """Without the start and end tokens."""
    links: Sequence[tuple[int, int]] = ()
    """Sure links (position in target, position in source); tokens without one do not count."""
    words: slice = slice(1, -1)
    """Positions of the source's words: without the language tag and the end token."""


class BestHead(NamedTuple):
    """The layer and head whose attention gives the best alignment."""

    layer: int
    head: int
    """A head, or MEAN."""
    accuracy: float
    """Share of linked target tokens whose highest attention is on a linked source token."""
    tokens: int
    """Number of linked target tokens."""
    table: np.ndarray
    """(L, H + 1) accuracy of every head, and last of the mean of the layer's heads."""


def measure_alignment(
    model: Transformer, special: SpecialIds, examples: Sequence[AlignedPair]
) -> BestHead:
    """Find the decoder layer and head whose attention agrees best with known alignments.

    The outputs are forced, so a poor translation does not matter. The attention is that of the
    position that predicts a token, not of the next one, which reads it. Among equals a mean is
    preferred to a head, then the higher layer, then the lower head. `Bundle.write` records it.
    """
    hits = [hit for some in _batches(examples) for hit in _hits(model, special, some)]
    if not hits:
        raise InputError("no aligned pairs to measure the attention with: give at least one link")
    table = np.mean(hits, axis=0)
    L, columns = table.shape
    means = [(layer, columns - 1) for layer in reversed(range(L))]
    heads = [(layer, head) for layer in reversed(range(L)) for head in range(columns - 1)]
    layer, head = max([*means, *heads], key=lambda cell: table[cell])  # the first of equal ones
    name = MEAN if head == columns - 1 else head
    return BestHead(layer, name, float(table[layer, head]), len(hits), table)


def find_alignment(
    model: Transformer, special: SpecialIds, pairs: Sequence[AlignedPair]
) -> BestHead | None:
    """Align pairs by `linked_by_loss`, then measure; return None if there are too few links."""
    linked = [linked_by_loss(model, special, pair) for pair in pairs]
    if sum(len(pair.links) for pair in linked) < _MIN_LINKS:
        return None
    return measure_alignment(model, special, linked)


def linked_by_loss(model: Transformer, special: SpecialIds, pair: AlignedPair) -> AlignedPair:
    """Return the pair with links found by the model itself.

    Each source token is left out once. A target token that becomes much less probable without one
    source token, and hardly without any other, is linked to it.
    """
    positions = range(*pair.words.indices(len(pair.source)))
    if len(positions) < 2:
        return pair
    whole = list(pair.source)
    sources = [whole, *([*whole[:position], *whole[position + 1 :]] for position in positions)]
    read = force_decode(model, special, sources, [pair.target] * len(sources))
    logs = np.stack([forced.log_probabilities[:-1] for forced in read])  # (1 + S, T)
    losses = logs[0] - logs[1:]
    second, first = np.sort(losses, axis=0)[-2:]
    clear = (first > _MIN_LOSS) & (first > _MIN_RATIO * second)
    best = losses.argmax(axis=0)
    return pair._replace(links=[(int(t), positions[best[t]]) for t in np.flatnonzero(clear)])


def _batches(examples: Sequence[AlignedPair]) -> list[list[AlignedPair]]:
    """Return batches of pairs of similar length, without those that have no link."""
    order = sorted((pair for pair in examples if pair.links), key=lambda pair: len(pair.source))
    return [order[at : at + _BATCH] for at in range(0, len(order), _BATCH)]


def _hits(
    model: Transformer, special: SpecialIds, pairs: Sequence[AlignedPair]
) -> list[np.ndarray]:
    """Return for each linked target token which heads `(L, H + 1)` attend most to its links."""
    read = read_attention(model, special, [p.source for p in pairs], [p.target for p in pairs])
    found = []
    for pair, weights in zip(pairs, read, strict=True):  # (L, H, T + 1, S)
        with_mean = np.concatenate([weights, weights.mean(axis=1, keepdims=True)], axis=1)
        words = np.arange(len(pair.source))[pair.words]
        attended = words[with_mean[..., words].argmax(axis=-1)]  # (L, H + 1, T + 1)
        wanted: dict[int, set[int]] = {}
        for target, source in pair.links:
            wanted.setdefault(target, set()).add(source)
        found += [np.isin(attended[..., t], list(sources)) for t, sources in wanted.items()]
    return found
