"""What the torch engine keeps between two steps of a search."""

from __future__ import annotations

import torch
from torch import Tensor

from pellucid.decoding.torch.linear import Linear
from pellucid.model import Cache

CHUNK = 8  # positions by which a StepCache grows


class Desk:
    """Where the self-attention of R rows is worked out, seen in the shapes that each call needs.

    To cut a fresh tensor into views takes longer than the sums in it; these are cut once.
    """

    def __init__(self, rows: int, heads: int, groups: int, like: Tensor) -> None:
        K, each = like.shape[-1], heads // groups
        self.rows = rows
        self.projected = like.new_empty(rows, (heads + 2 * groups) * K)
        parts = self.projected.view(rows * groups, each + 2, K)
        self.queries = parts[:, :each]
        self.fresh = parts[:, each:].view(rows, groups, 2, K).permute(2, 0, 1, 3)
        self.mixed = like.new_empty(rows * groups, each, K)
        self.joined = self.mixed.view(rows, heads * K)


class StepCache:
    """What a StepDecoder need not compute again: the keys and values of R rows in all layers.

    The rows stand in the order of their B sentences, the same number for each, and share the keys
    and values of their source. Written in place; made from the `Cache` that a model began with.
    """

    def __init__(self, cache: Cache) -> None:
        self.length = cache.length
        self.absorbed: list[tuple[Linear, Linear]] | None = None
        """For one sentence: what stands for its source in each layer; see `_Attention.absorb`."""
        self._desk: Desk | None = None
        self._spare: Tensor | None = None  # where the next reordering may write
        pairs = [layer.cross for layer in cache.layers if layer.cross is not None]
        self._cross = torch.stack([torch.stack([*pair]) for pair in pairs])  # (L, 2, B, G, S, K)
        self._hidden: Tensor | None = None  # (B, 1, S): what is added to the scores
        if cache.source_mask is not None:
            visible = cache.source_mask[:, 0]
            self._hidden = (
                torch.zeros(visible.shape).to(self._cross).masked_fill_(~visible, -torch.inf)
            )
        self._spread()
        self._own: Tensor | None = None  # (L, 2, R, G, room, K)
        owns = [layer.own for layer in cache.layers if layer.own is not None]
        if owns:
            self._keep(torch.stack([torch.stack([*pair]) for pair in owns]))

    def _spread(self) -> None:
        """Lay out what concerns the sources as `bmm` reads it."""
        L, _, B, G, S, K = self._cross.shape
        pairs = self._cross.view(L * 2, B * G, S, K).unbind(0)
        self.sources = [
            (k.transpose(1, 2), v) for k, v in zip(pairs[::2], pairs[1::2], strict=True)
        ]
        self.sentences = B
        self.hidden = self._hidden
        if self._hidden is not None:
            self.hidden = self._hidden.expand(B, G, S).reshape(B * G, 1, S)

    def _keep(self, own: Tensor) -> None:
        """Take these as the rows' own keys and values, laid out as `bmm` reads them."""
        L, _, R, G, room, K = own.shape
        keys, values = own.view(L, 2, R * G, room, K).unbind(1)
        self._own, self._keys, self._values = own, keys.transpose(2, 3), values

    @property
    def rows(self) -> int:
        """How many rows have been read; 0 before the first step."""
        return 0 if self._own is None else self._own.shape[2]

    def desk(self, rows: int, heads: int) -> Desk:
        """Where to work on this number of rows; the same as long as the number is."""
        if self._desk is None or self._desk.rows != rows:
            self._desk = Desk(rows, heads, self._cross.shape[3], self._cross)
        return self._desk

    def next_position(
        self, rows: int
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], tuple[Tensor, ...]]:
        """For each layer: where the new keys and values go, and all of them, the new ones last.

        `(2, R, G, K)`; keys `(R · G, K, T)`; values `(R · G, T, K)`.
        """
        L, _, _, G, _, K = self._cross.shape
        if self._own is None:
            self._keep(self._cross.new_empty(L, 2, rows, G, CHUNK, K))
        elif self.length == self._own.shape[4]:
            longer = self._cross.new_empty(L, 2, rows, G, self.length + CHUNK, K)
            longer[:, :, :, :, : self.length] = self._own
            self._keep(longer)
        assert self._own is not None
        places = self._own.select(4, self.length).unbind(0)
        self.length += 1
        keys = self._keys.narrow(3, 0, self.length).unbind(0)
        return places, keys, self._values.narrow(2, 0, self.length).unbind(0)

    def reorder(self, rows: Tensor, sentences: Tensor | None, start: int = 0) -> None:
        """Go on with these rows, which may repeat, of these sentences (None: all of them).

        start: as many first tokens are the same in each row and the one that takes its place, and
        so are their keys and values; there is nothing to move.
        """
        own = self._own
        if own is not None and 2 * start >= self.length:
            moving = own[:, :, :, :, start : self.length]
            moving.copy_(moving.index_select(2, rows))
        elif own is not None:
            shape = (*own.shape[:2], len(rows), *own.shape[3:])
            fits = self._spare is not None and self._spare.shape == shape
            to = self._spare if fits else own.new_empty(shape)
            self._keep(torch.index_select(own, 2, rows, out=to))
            self._spare = own
        if sentences is not None:
            self.absorbed = None
            self._cross = self._cross.index_select(2, sentences)
            if self._hidden is not None:
                self._hidden = self._hidden.index_select(0, sentences)
            self._spread()
