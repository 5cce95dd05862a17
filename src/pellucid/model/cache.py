"""The KV cache: keys and values that a decoder need not compute again.

Each decoding step adds one row to the self-attention keys and values of each layer; those of
cross-attention are computed once per sentence. The cache is passed in and a new one is returned;
the model has no hidden state, and an older cache stays valid.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from pellucid.model.attention import KeyValues


@dataclass(frozen=True)
class LayerCache:
    """The cache of one decoder layer: `own` grows by a row per step, `cross` never changes.

    own: `(B · beams, G, T, K)`, None before the first step. cross: `(B, G, S, K)`, None in a
    decoder without an encoder.
    """

    own: KeyValues | None
    cross: KeyValues | None


@dataclass(frozen=True)
class Cache:
    """The cache of B sentences with several beams each.

    Row i of `own` belongs to sentence i // beams; the beams of one sentence share `cross`.
    """

    layers: tuple[LayerCache, ...]
    source_mask: Tensor | None = None
    """(B, 1, 1, S), True where there is a source token."""

    length: int = 0
    """Number of target tokens decoded so far."""

    def reorder(self, rows: Tensor, sentences: Tensor | None = None) -> Cache:
        """Return the cache of the rows that continue, in their new order.

        rows: indices into the rows of `own`. A row may be repeated, which copies it to several
        beams. sentences: indices of the sentences that continue, where some have finished; each
        keeps the same number of rows.
        """

        def own(pair: KeyValues | None) -> KeyValues | None:
            return pair and KeyValues(*(t.index_select(0, rows) for t in pair))

        def shared(pair: KeyValues | None) -> KeyValues | None:
            if pair is None or sentences is None:
                return pair
            return KeyValues(*(t.index_select(0, sentences) for t in pair))

        mask = self.source_mask
        if mask is not None and sentences is not None:
            mask = mask.index_select(0, sentences)
        layers = tuple(LayerCache(own(c.own), shared(c.cross)) for c in self.layers)
        return Cache(layers, mask, self.length)

    @property
    def own_bytes(self) -> int:
        """Memory of the self-attention keys and values, which grows with each step."""
        return sum(_bytes(layer.own) for layer in self.layers)

    @property
    def cross_bytes(self) -> int:
        """Memory of the cross-attention keys and values, which stays the same."""
        return sum(_bytes(layer.cross) for layer in self.layers)


def _bytes(pair: KeyValues | None) -> int:
    return 0 if pair is None else sum(t.numel() * t.element_size() for t in pair)
