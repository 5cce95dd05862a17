"""Which attention tells best where an output token comes from.

Every head of the cross-attention looks somewhere; in a trained model one of them, or the mean of a
layer's heads, looks where a person would draw the line from a word to its translation. It is found
on sentence pairs whose right lines are known: drawn by hand, or found by the model itself, by
leaving out one source token after the other.
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
"""Stands for the mean of a layer's heads where a head is named."""

_TOGETHER = 32  # pairs that are read at once
_FEWEST = 50  # links that a choice among heads needs
_LOSS, _CLEAR = 0.1, 1.5  # nats that a link costs at least, and how far above any other


class AlignedPair(NamedTuple):
    """A sentence pair as token ids, and which of them belong together."""

    source: Sequence[int]
    """As the encoder reads it, tag and end symbol included."""
    target: Sequence[int]
    """Without the start and the end symbol."""
    links: Sequence[tuple[int, int]] = ()
    """(position in target, position in source), as many as are sure; others do not count."""
    words: slice = slice(1, -1)
    """Where the words of the source stand: without the tag and the end symbol."""


class Measured(NamedTuple):
    """The best place to look for an alignment."""

    layer: int
    head: int
    """A head, or MEAN."""
    accuracy: float
    """The share of linked target tokens that look most at a source token they are linked to."""
    tokens: int
    """How many target tokens were linked."""
    table: np.ndarray
    """(L, H + 1) the accuracy of every head, and last of the mean of the layer's heads."""


def measure_alignment(
    model: Transformer, special: SpecialIds, examples: Sequence[AlignedPair]
) -> Measured:
    """The decoder layer and head whose attention agrees best with known alignments.

    The outputs are forced, so a poor translation is no hindrance. The attention is that of the
    position that writes a token, not of the next one, which reads it. Of equal places a mean is
    taken before a head, then the higher layer, then the lower head. `Bundle.write` records it.
    """
    hits = [hit for some in _batches(examples) for hit in _hits(model, special, some)]
    if not hits:
        raise InputError("no aligned pairs to measure the attention with: give at least one link")
    table = np.mean(hits, axis=0)
    L, places = table.shape
    means = [(layer, places - 1) for layer in reversed(range(L))]
    heads = [(layer, head) for layer in reversed(range(L)) for head in range(places - 1)]
    layer, head = max([*means, *heads], key=lambda place: table[place])  # the first of equal ones
    name = MEAN if head == places - 1 else head
    return Measured(layer, name, float(table[layer, head]), len(hits), table)


def find_alignment(
    model: Transformer, special: SpecialIds, pairs: Sequence[AlignedPair]
) -> Measured | None:
    """The same for pairs without links, which are found first; None if too few are found."""
    linked = [linked_by_loss(model, special, pair) for pair in pairs]
    if sum(len(pair.links) for pair in linked) < _FEWEST:
        return None
    return measure_alignment(model, special, linked)


def linked_by_loss(model: Transformer, special: SpecialIds, pair: AlignedPair) -> AlignedPair:
    """The pair with the links that the model itself shows.

    Each token of the source is left out once. A token of the target that becomes much less
    probable by one of these losses, and hardly by any other, is linked to what was left out.
    """
    places = range(*pair.words.indices(len(pair.source)))
    if len(places) < 2:
        return pair
    whole = list(pair.source)
    sources = [whole, *([*whole[:place], *whole[place + 1 :]] for place in places)]
    read = force_decode(model, special, sources, [pair.target] * len(sources))
    logs = np.stack([forced.log_probabilities[:-1] for forced in read])  # (1 + S, T)
    losses = logs[0] - logs[1:]
    second, first = np.sort(losses, axis=0)[-2:]
    clear = (first > _LOSS) & (first > _CLEAR * second)
    best = losses.argmax(axis=0)
    return pair._replace(links=[(int(t), places[best[t]]) for t in np.flatnonzero(clear)])


def _batches(examples: Sequence[AlignedPair]) -> list[list[AlignedPair]]:
    """Pairs of similar length together; those without a link would not count."""
    order = sorted((pair for pair in examples if pair.links), key=lambda pair: len(pair.source))
    return [order[at : at + _TOGETHER] for at in range(0, len(order), _TOGETHER)]


def _hits(
    model: Transformer, special: SpecialIds, pairs: Sequence[AlignedPair]
) -> list[np.ndarray]:
    """For each linked target token, `(L, H + 1)`: which heads look most at a token of its links."""
    read = read_attention(model, special, [p.source for p in pairs], [p.target for p in pairs])
    found = []
    for pair, weights in zip(pairs, read, strict=True):  # (L, H, T + 1, S)
        with_mean = np.concatenate([weights, weights.mean(axis=1, keepdims=True)], axis=1)
        places = np.arange(len(pair.source))[pair.words]
        looked = places[with_mean[..., places].argmax(axis=-1)]  # (L, H + 1, T + 1)
        wanted: dict[int, set[int]] = {}
        for target, source in pair.links:
            wanted.setdefault(target, set()).add(source)
        found += [np.isin(looked[..., t], list(sources)) for t, sources in wanted.items()]
    return found
