"""The KV cache of the torch engine, for one new token at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from pellucid.decoding.torch.linear import Linear
from pellucid.model import Cache

CHUNK = 8
"""Positions by which a StepCache grows."""


class Workspace:
    """Buffers for the self-attention of R rows, viewed in the shapes that each call needs.

    Creating the views of a new tensor takes longer than computing with it; these are made once.
    """

    def __init__(self, rows: int, heads: int, groups: int, like: Tensor) -> None:
        K, each = like.shape[-1], heads // groups
        self.rows = rows
        self.projected = like.new_empty(rows, (heads + 2 * groups) * K)
        parts = self.projected.view(rows * groups, each + 2, K)
        self.queries = parts[:, :each]
        self.new_kv = parts[:, each:].view(rows, groups, 2, K).permute(2, 0, 1, 3)
        self.context = like.new_empty(rows * groups, each, K)
        self.heads_joined = self.context.view(rows, heads * K)


class StepCache:
    """The keys and values of R rows in all layers, which a StepDecoder need not compute again.

    The rows are in the order of their B sentences, the same number for each, and share the keys
    and values of their source. Written in place; made from a model's `Cache`.
    """

    def __init__(self, cache: Cache) -> None:
        self.length = cache.length
        self.absorbed: list[tuple[Linear, Linear]] | None = None
        """For a single sentence: its source as two matrices a layer; see `_Attention.absorb`."""
        self._workspace: Workspace | None = None
        self._spare: Tensor | None = None  # buffer for the next reordering
        pairs = [layer.cross for layer in cache.layers if layer.cross is not None]
        self._cross = torch.stack([torch.stack([*pair]) for pair in pairs])  # (L, 2, B, G, S, K)
        self._padding_bias: Tensor | None = None  # (B, 1, S), added to the scores
        if cache.source_mask is not None:
            visible = cache.source_mask[:, 0]
            self._padding_bias = (
                torch.zeros(visible.shape).to(self._cross).masked_fill_(~visible, -torch.inf)
            )
        self._update_views()
        self._own: Tensor | None = None  # (L, 2, R, G, room, K)
        owns = [layer.own for layer in cache.layers if layer.own is not None]
        if owns:
            self._set_own(torch.stack([torch.stack([*pair]) for pair in owns]))

    def _update_views(self) -> None:
        """View the keys, values and mask of the sources as `bmm` reads them."""
        L, _, B, G, S, K = self._cross.shape
        pairs = self._cross.view(L * 2, B * G, S, K).unbind(0)
        self.sources = [
            (k.transpose(1, 2), v) for k, v in zip(pairs[::2], pairs[1::2], strict=True)
        ]
        self.sentences = B
        self.padding_bias = self._padding_bias
        if self._padding_bias is not None:
            self.padding_bias = self._padding_bias.expand(B, G, S).reshape(B * G, 1, S)

    def _set_own(self, own: Tensor) -> None:
        """Set the rows' self-attention keys and values, viewed as `bmm` reads them."""
        L, _, R, G, room, K = own.shape
        keys, values = own.view(L, 2, R * G, room, K).unbind(1)
        self._own, self._keys, self._values = own, keys.transpose(2, 3), values

    @property
    def rows(self) -> int:
        """Number of rows; 0 before the first step."""
        return 0 if self._own is None else self._own.shape[2]

    def workspace(self, rows: int, heads: int) -> Workspace:
        """Return buffers for this number of rows; the same ones until the number changes."""
        if self._workspace is None or self._workspace.rows != rows:
            self._workspace = Workspace(rows, heads, self._cross.shape[3], self._cross)
        return self._workspace

    def next_position(
        self, rows: int
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Add one position; return the slots to fill, the keys and the values of each layer.

        Slots `(2, R, G, K)`; keys `(R · G, K, T)` and values `(R · G, T, K)`, the new ones last.
        """
        L, _, _, G, _, K = self._cross.shape
        if self._own is None:
            self._set_own(self._cross.new_empty(L, 2, rows, G, CHUNK, K))
        elif self.length == self._own.shape[4]:
            longer = self._cross.new_empty(L, 2, rows, G, self.length + CHUNK, K)
            longer[:, :, :, :, : self.length] = self._own
            self._set_own(longer)
        assert self._own is not None
        slots = self._own.select(4, self.length).unbind(0)
        self.length += 1
        keys = self._keys.narrow(3, 0, self.length).unbind(0)
        return slots, keys, self._values.narrow(2, 0, self.length).unbind(0)

    def reorder(self, rows: Tensor, sentences: Tensor | None, start: int = 0) -> None:
        """Continue with these rows, which may repeat, of these sentences (None: all of them).

        start: number of first tokens that each row shares with the row that replaces it; their
        keys and values are equal too and need not be moved.
        """
        own = self._own
        if own is not None and 2 * start >= self.length:
            moving = own[:, :, :, :, start : self.length]
            moving.copy_(moving.index_select(2, rows))
        elif own is not None:
            shape = (*own.shape[:2], len(rows), *own.shape[3:])
            fits = self._spare is not None and self._spare.shape == shape
            to = self._spare if fits else own.new_empty(shape)
            self._set_own(torch.index_select(own, 2, rows, out=to))
            self._spare = own
        if sentences is not None:
            self.absorbed = None
            self._cross = self._cross.index_select(2, sentences)
            if self._padding_bias is not None:
                self._padding_bias = self._padding_bias.index_select(0, sentences)
            self._update_views()
