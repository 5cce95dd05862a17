"""Which head of the cross-attention tells best where an output token comes from.

Every head looks somewhere; in a trained model one of them, mostly in the last layers but one,
looks where a person would draw the line from a word to its translation. It is found on a few
sentence pairs whose right lines are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pellucid.decoding.engine import SpecialIds
from pellucid.decoding.forced import force_decode
from pellucid.errors import InputError
from pellucid.model import Transformer


class AlignedPair(NamedTuple):
    """A sentence pair as token ids, and which of them belong together."""

    source: Sequence[int]
    """As the encoder reads it, tag and end symbol included."""
    target: Sequence[int]
    """Without the start and the end symbol."""
    links: Sequence[tuple[int, int]]
    """(position in target, position in source), as many as are sure; others do not count."""


class Measured(NamedTuple):
    """The best place to look for an alignment."""

    layer: int
    head: int
    accuracy: float
    """The share of linked target tokens that look most at a source token they are linked to."""
    table: np.ndarray
    """(L, H) the accuracy of every head."""


def measure_alignment(
    model: Transformer, special: SpecialIds, examples: Sequence[AlignedPair]
) -> Measured:
    """The decoder layer and head whose attention agrees best with hand-made alignments.

    The outputs are forced, so a poor translation is no hindrance. Of equal heads the one with the
    higher layer is taken, then the lower head. `Bundle.write` records the place.
    """
    if not examples or not any(pair.links for pair in examples):
        raise InputError("no aligned pairs to measure the attention with: give at least one link")
    config = model.config
    table = np.zeros((config.decoder_layers, config.heads))
    for layer in range(config.decoder_layers):
        for head in range(config.heads):
            read = force_decode(
                model,
                special,
                [pair.source for pair in examples],
                [pair.target for pair in examples],
                attention=True,
                layer=layer,
                head=head,
            )
            hits = [
                hit
                for pair, forced in zip(examples, read, strict=True)
                if forced.attention is not None
                for hit in _hits(forced.attention, pair.links)
            ]
            table[layer, head] = float(np.mean(hits))
    best = max(
        ((layer, head) for layer in range(len(table)) for head in range(config.heads)),
        key=lambda place: (table[place], place[0], -place[1]),
    )
    return Measured(*best, float(table[best]), table)


def _hits(attention: np.ndarray, links: Sequence[tuple[int, int]]) -> list[bool]:
    """For each linked target token, whether it looks most at one of its own source tokens."""
    wanted: dict[int, set[int]] = {}
    for target, source in links:
        wanted.setdefault(target, set()).add(source)
    return [int(attention[target].argmax()) in sources for target, sources in wanted.items()]
