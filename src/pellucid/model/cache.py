"""What a decoder need not compute again.

A step of decoding adds one row to the self-attention keys and values of each layer; those of the
cross-attention are computed once for a sentence. The cache is passed in and a new one comes
back; nothing is hidden in the model, and an older cache stays valid.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from pellucid.model.attention import KeyValues


@dataclass(frozen=True)
class LayerCache:
    """One decoder layer's part: `own` grows by a row a step, `cross` never changes.

    own: `(B · beams, G, T, K)`, None before the first step. cross: `(B, G, S, K)`, None in a
    decoder without an encoder.
    """

    own: KeyValues | None
    cross: KeyValues | None


@dataclass(frozen=True)
class Cache:
    """The decoder's memory of B sentences with some beams each.

    Row i of `own` belongs to sentence i // beams; the beams of one sentence share `cross`.
    """

    layers: tuple[LayerCache, ...]
    source_mask: Tensor | None = None
    """(B, 1, 1, S), True where there is a source token."""

    length: int = 0
    """How many target tokens have been decoded."""

    def reorder(self, rows: Tensor, sentences: Tensor | None = None) -> Cache:
        """The cache of the rows that go on, in their new order.

        rows: indices into the rows of `own`. A row may come several times, so this also spreads
        one row over several beams. sentences: indices of the sentences that go on, where some
        have ended; each keeps the same number of rows.
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
        """Memory of the self-attention keys and values: grows with each step."""
        return sum(_bytes(layer.own) for layer in self.layers)

    @property
    def cross_bytes(self) -> int:
        """Memory of the cross-attention keys and values: the same at each step."""
        return sum(_bytes(layer.cross) for layer in self.layers)


def _bytes(pair: KeyValues | None) -> int:
    return 0 if pair is None else sum(t.numel() * t.element_size() for t in pair)
