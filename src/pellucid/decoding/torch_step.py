"""The decoder for one new token of each row, with nothing but what that takes.

The modules of `pellucid.model` do the same for any number of tokens, with traces and gradients; for
a single token most of their time goes by on the way from call to call. Here the same formula runs
on the same weights with a third of the calls, and the cache is written in place. Property tests
bind the two: a search with the cache (this) and one without (the modules) give the same answers.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pellucid.model import Cache, MultiHeadAttention, Transformer
from pellucid.model.layers import AddNorm, DecoderLayer, FeedForward, normed

CHUNK = 8  # positions by which a StepCache grows


class Linear:
    """x Wᵀ + b for a few rows at a time, up to three times faster than `nn.Linear` on a CPU.

    The way through memory decides the time: for one or two rows, or many, the transposed copy of a
    matrix that widens is read fastest; for a few rows, the product the other way round.
    """

    FEW = range(3, 9)

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight.detach(), None if bias is None else bias.detach()
        self.column = None if self.bias is None else self.bias[:, None]
        self.matrix = self.weight.t()  # (in, out)
        self.on_cpu = weight.device.type == "cpu"
        if self.on_cpu and weight.shape[0] >= weight.shape[1]:
            self.matrix = self.matrix.contiguous()

    def __call__(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """`x (R, in)` to `(R, out)`; out: where to write it, if there is a place."""
        if self.on_cpu and len(x) in self.FEW:
            if self.column is None:
                return torch.mm(self.weight, x.t()).t().contiguous()
            return torch.addmm(self.column, self.weight, x.t()).t().contiguous()
        if self.bias is None:
            return torch.mm(x, self.matrix, out=out)
        return torch.addmm(self.bias, x, self.matrix, out=out)


class StepCache:
    """What a StepDecoder need not compute again: the keys and values of R rows in all layers.

    The rows stand in the order of their B sentences, the same number for each, and share the keys
    and values of their source. Written in place; made from the `Cache` that a model began with.
    """

    def __init__(self, cache: Cache) -> None:
        self.length = cache.length
        self._own: Tensor | None = None  # (L, 2, R, G, room, K)
        self._spare: Tensor | None = None  # where the next reordering may write
        owns = [layer.own for layer in cache.layers if layer.own is not None]
        if owns:
            self._own = torch.stack([torch.stack([*pair]) for pair in owns])
        pairs = [layer.cross for layer in cache.layers if layer.cross is not None]
        self._cross = torch.stack([torch.stack([*pair]) for pair in pairs])  # (L, 2, B, G, S, K)
        self._hidden: Tensor | None = None  # (B, 1, S): what is added to the scores
        if cache.source_mask is not None:
            visible = cache.source_mask[:, 0]
            self._hidden = (
                torch.zeros(visible.shape).to(self._cross).masked_fill_(~visible, -torch.inf)
            )
        self._spread()

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

    @property
    def rows(self) -> int:
        """How many rows have been read; 0 before the first step."""
        return 0 if self._own is None else self._own.shape[2]

    def next_position(self, rows: int) -> tuple[list[Tensor], list[tuple[Tensor, Tensor]]]:
        """For each layer: where the new keys and values go, and all of them, the new ones last.

        `(2, R, G, K)`; keys `(R · G, K, T)` and values `(R · G, T, K)`.
        """
        L, _, _, G, _, K = self._cross.shape
        if self._own is None:
            self._own = self._cross.new_empty(L, 2, rows, G, CHUNK, K)
        elif self.length == self._own.shape[4]:
            longer = self._cross.new_empty(L, 2, rows, G, self.length + CHUNK, K)
            longer[:, :, :, :, : self.length] = self._own
            self._own = longer
        places = self._own.select(4, self.length)
        self.length += 1
        pairs = self._own.view(L * 2, rows * G, -1, K)[:, :, : self.length].unbind(0)
        seen = [(k.transpose(1, 2), v) for k, v in zip(pairs[::2], pairs[1::2], strict=True)]
        return list(places.unbind(0)), seen

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
            self._own, self._spare = torch.index_select(own, 2, rows, out=to), own
        if sentences is not None:
            self._cross = self._cross.index_select(2, sentences)
            if self._hidden is not None:
                self._hidden = self._hidden.index_select(0, sentences)
            self._spread()


class _Attention:
    """A MultiHeadAttention for one query a row."""

    def __init__(self, module: MultiHeadAttention, *, cross: bool) -> None:
        self.heads, self.groups, self.K = module.heads, module.key_value_heads, module.head_width
        self.wide = self.heads * self.K
        rows = slice(self.wide if cross else None)
        self.scale = 1 / math.sqrt(self.K)
        self.project = Linear(
            module.in_weight[rows], None if module.in_bias is None else module.in_bias[rows]
        )
        self.out = Linear(module.out.weight, module.out.bias)
        self.query_norm, self.key_norm = module.query_norm, module.key_norm
        self.rotary = module.rotary
        self.nothing = module.in_weight.new_zeros(1)

    def own(self, x: Tensor, place: Tensor, seen: tuple[Tensor, Tensor], position: int) -> Tensor:
        """Self-attention of `x (R, D)`, which writes its keys and values to `place`."""
        R, G, K = len(x), self.groups, self.K
        projected = self.project(x)
        fresh = projected[:, self.wide :].view(R, 2, G, K).transpose(0, 1)
        place.copy_(fresh)
        if self.key_norm is not None or self.rotary is not None:
            place[0] = self._placed(fresh[0], self.key_norm, position)
        q = self._placed(
            projected[:, : self.wide].view(R, self.heads, K), self.query_norm, position
        )
        mixed = self._attend(q.reshape(R * G, -1, K), *seen, None)
        return self.out(mixed.view(R, self.wide))

    def cross(
        self, x: Tensor, sources: tuple[Tensor, Tensor], hidden: Tensor | None, sentences: int
    ) -> Tensor:
        """Cross-attention of `x (R, D)`: the rows of a sentence are its queries, side by side."""
        R, G, K = len(x), self.groups, self.K
        q = self.project(x)
        if self.query_norm is not None:
            q = self.query_norm(q.view(R, self.heads, K))
        beams = R // sentences
        if beams > 1:
            q = q.view(sentences, beams, G, -1).transpose(1, 2)
        mixed = self._attend(q.reshape(sentences * G, -1, K), *sources, hidden)
        if beams > 1:
            mixed = mixed.view(sentences, G, beams, -1).transpose(1, 2)
        return self.out(mixed.reshape(R, self.wide))

    def _placed(self, x: Tensor, norm: torch.nn.Module | None, position: int) -> Tensor:
        """Queries or keys `(R, heads, K)`, normed and turned where the model does so."""
        if norm is not None:
            x = norm(x)
        return x if self.rotary is None else self.rotary(x[:, :, None], position)[:, :, 0]

    def _attend(self, q: Tensor, keys: Tensor, values: Tensor, hidden: Tensor | None) -> Tensor:
        if hidden is None:
            scores = torch.baddbmm(self.nothing, q, keys, beta=0, alpha=self.scale)
        else:
            scores = torch.baddbmm(hidden, q, keys, alpha=self.scale)
        return torch.bmm(scores.softmax(dim=-1), values)


class _FeedForward:
    """A FeedForward for `x (R, D)`."""

    def __init__(self, module: FeedForward) -> None:
        self.inner = Linear(module.inner.weight, module.inner.bias)
        self.outer = Linear(module.outer.weight, module.outer.bias)
        self.activation, self.gated = module.activation, module.gated

    def __call__(self, x: Tensor) -> Tensor:
        inner = self.inner(x)
        if self.gated:
            bent, gate = inner.chunk(2, dim=-1)
            return self.outer(self.activation(bent) * gate)
        return self.outer(self.activation(inner))


class StepDecoder:
    """A Transformer's decoder for one new token of each row; several threads may share it.

    On a CPU it holds a copy of the matrices that are read faster transposed, so make a new one
    after changing the weights.
    """

    @torch.inference_mode()
    def __init__(self, model: Transformer) -> None:
        self.embedding, self.norm = model.target_embedding, model.decoder.norm
        self.layers: list[
            tuple[_Attention, AddNorm, _Attention, AddNorm, _FeedForward, AddNorm]
        ] = []
        for layer in model.decoder.layers:
            assert isinstance(layer, DecoderLayer)
            assert layer.cross is not None
            assert layer.cross_add_norm is not None
            self.layers.append(
                (
                    _Attention(layer.attention, cross=False),
                    layer.attention_add_norm,
                    _Attention(layer.cross, cross=True),
                    layer.cross_add_norm,
                    _FeedForward(layer.feed_forward),
                    layer.feed_forward_add_norm,
                )
            )
        self.output = Linear(model.output.weight, model.output.bias)

    def __call__(self, tokens: Tensor, cache: StepCache) -> Tensor:
        """The states `(R, D)` of the next tokens `(R,)`; the cache has one position more."""
        position = cache.length
        x = self.embedding(tokens[:, None], position)[:, 0]
        places, seen = cache.next_position(len(tokens))
        for number, (own, a, cross, b, feed, c) in enumerate(self.layers):
            x = a.leave(x, own.own(a.enter(x), places[number], seen[number], position))
            looked = cross.cross(b.enter(x), cache.sources[number], cache.hidden, cache.sentences)
            x = b.leave(x, looked)
            x = c.leave(x, feed(c.enter(x)))
        return normed(self.norm, x)
