"""The decoder for one new token of each row, with nothing but what that takes.

The modules of `pellucid.model` do the same for any number of tokens, with traces and gradients; for
a single token most of their time goes by on the way from call to call. Here the same formula runs
on the same weights with a third of the calls, and the cache is written in place. Property tests
bind the two: a search with the cache (this) and one without (the modules) give the same answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from pellucid.decoding.torch.linear import Linear
from pellucid.decoding.torch.step_cache import Desk, StepCache
from pellucid.model import Cache, MultiHeadAttention, Transformer
from pellucid.model.layers import AddNorm, DecoderLayer, FeedForward

Norm = Callable[[Tensor], Tensor]


class _Attention:
    """A MultiHeadAttention for one query a row; what scales the scores is part of the queries."""

    def __init__(self, module: MultiHeadAttention, *, cross: bool) -> None:
        self.heads, self.groups, self.K = module.num_heads, module.num_kv_heads, module.head_dim
        self.wide = self.heads * self.K
        scale = 1 / math.sqrt(self.K)
        self.query_norm = _norm(module.query_norm, scale)
        self.key_norm, self.rotary = _norm(module.key_norm), module.rotary
        cut = self._queries if cross else self._by_group
        if self.query_norm is not None:
            scale = 1.0
        bias = None if module.in_bias is None else cut(module.in_bias[:, None], scale)[:, 0]
        self.project = Linear(cut(module.in_weight, scale), bias)
        self.out = Linear(module.out.weight, module.out.bias)

    def _queries(self, weight: Tensor, scale: float) -> Tensor:
        """The rows of a projection that make queries."""
        return weight[: self.wide] * scale

    def _by_group(self, weight: Tensor, scale: float) -> Tensor:
        """The rows of a projection, group by group: its queries, its key, its value."""
        G, width = self.groups, weight.shape[1]
        q = self._queries(weight, scale).view(G, -1, width)
        k, v = weight[self.wide :].view(2, G, self.K, width).unbind(0)
        return torch.cat([q, k, v], dim=1).view(-1, width)

    def own(
        self, x: Tensor, desk: Desk, place: Tensor, keys: Tensor, values: Tensor, position: int
    ) -> Tensor:
        """Self-attention of `x (R, D)`, which writes its keys and values to `place`."""
        self.project(x, desk.projected)
        place.copy_(desk.fresh)
        if self.key_norm is not None or self.rotary is not None:
            place[0] = self._placed(desk.fresh[0], self.key_norm, position)
        q = self._placed(desk.queries, self.query_norm, position)
        torch.bmm(torch.bmm(q, keys).softmax(-1), values, out=desk.mixed)
        return self.out(desk.joined)

    def cross(
        self, x: Tensor, sources: tuple[Tensor, Tensor], hidden: Tensor | None, sentences: int
    ) -> Tensor:
        """Cross-attention of `x (R, D)`: the rows of a sentence are its queries, side by side."""
        R, G, K = x.shape[0], self.groups, self.K
        keys, values = sources
        q = self.project(x)
        if self.query_norm is not None:
            q = self.query_norm(q.view(R, self.heads, K))
        beams = R // sentences
        if beams > 1:
            q = q.view(sentences, beams, G, -1).transpose(1, 2)
        q = q.reshape(sentences * G, -1, K)
        scores = torch.bmm(q, keys) if hidden is None else torch.baddbmm(hidden, q, keys)
        mixed = torch.bmm(scores.softmax(-1), values)
        if beams > 1:
            mixed = mixed.view(sentences, G, beams, -1).transpose(1, 2)
        return self.out(mixed.reshape(R, self.wide))

    def absorb(self, keys: Tensor, values: Tensor) -> tuple[Linear, Linear] | None:
        """One sentence's `keys (G, K, S)` and `values (G, S, K)` as two matrices; None: no gain.

        Keys times W_Q gives the scores straight from the state, W_O times values the output
        straight from the weights; for a short source they are smaller than W_Q and W_O.
        """
        H, S, K = self.heads, values.shape[1], self.K
        if self.query_norm is not None or self.wide < H * S:
            return None
        keys, values = (t.repeat_interleave(H // self.groups, dim=0) for t in (keys, values))
        ask = torch.bmm(keys.transpose(1, 2), self.project.weight.view(H, K, -1))  # (H, S, D)
        bias = self.project.bias
        if bias is not None:
            bias = torch.bmm(bias.view(H, 1, K), keys).view(-1)
        tell = torch.bmm(values, self.out.weight.t().view(H, K, -1))  # (H, S, D)
        return (
            Linear(ask.view(H * S, -1), bias),
            Linear(tell.view(H * S, -1).t(), self.out.bias),
        )

    def cross_absorbed(self, x: Tensor, source: tuple[Linear, Linear]) -> Tensor:
        """As `cross`, for the rows of one sentence that `absorb` has read."""
        ask, tell = source
        scores = ask(x)  # (R, H · S)
        weights = scores.view(x.shape[0], self.heads, -1).softmax(-1)
        return tell(weights.view(scores.shape))

    def _placed(self, x: Tensor, norm: Norm | None, position: int) -> Tensor:
        """Queries or keys `(·, ·, K)`, normed and turned where the model does so."""
        if norm is not None:
            x = norm(x)
        return x if self.rotary is None else self.rotary(x[:, :, None], position)[:, :, 0]


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


def _norm(module: nn.Module | None, scale: float = 1.0) -> Norm | None:
    """What a norm computes, times `scale`, without the way through a module."""
    if module is None:
        return None
    assert isinstance(module, nn.LayerNorm | nn.RMSNorm)
    shape, epsilon = list(module.normalized_shape), module.eps
    weight = module.weight.detach() * scale
    if isinstance(module, nn.RMSNorm):
        return lambda x: torch.rms_norm(x, shape, weight, epsilon)
    assert epsilon is not None
    bias, small = module.bias.detach() * scale, epsilon
    return lambda x: torch.layer_norm(x, shape, weight, bias, small)


class _AddNorm:
    """An AddNorm for `x (R, D)`."""

    def __init__(self, module: AddNorm) -> None:
        self.before, self.inside = _norm(module.norm_before), _norm(module.norm_inside)
        self.after = _norm(module.norm_after)

    def enter(self, x: Tensor) -> Tensor:
        """What the sub-layer reads of the stream."""
        return x if self.before is None else self.before(x)

    def leave(self, x: Tensor, output: Tensor) -> Tensor:
        """The stream after the sub-layer; written over its output."""
        if self.inside is not None:
            output = self.inside(output)
        output.add_(x)
        return output if self.after is None else self.after(output)


class StepDecoder:
    """A Transformer's decoder for one new token of each row; several threads may share it.

    It holds copies of the matrices, laid out to be read fast, so make a new one after changing the
    weights.
    """

    @torch.inference_mode()
    def __init__(self, model: Transformer) -> None:
        self.embedding = model.target_embedding
        self.embedding_norm = _norm(self.embedding.norm)
        self.norm = _norm(model.decoder.norm)
        self.heads = model.config.num_heads
        self.layers: list[
            tuple[_Attention, _AddNorm, _Attention, _AddNorm, _FeedForward, _AddNorm]
        ] = []
        for layer in model.decoder.layers:
            assert isinstance(layer, DecoderLayer)
            assert layer.cross is not None
            assert layer.cross_add_norm is not None
            self.layers.append(
                (
                    _Attention(layer.attention, cross=False),
                    _AddNorm(layer.attention_add_norm),
                    _Attention(layer.cross, cross=True),
                    _AddNorm(layer.cross_add_norm),
                    _FeedForward(layer.feed_forward),
                    _AddNorm(layer.feed_forward_add_norm),
                )
            )
        self.output = Linear(model.output.weight, model.output.bias)

    def start(self, cache: Cache) -> StepCache:
        """A cache of single steps that goes on from what a model has read."""
        started = StepCache(cache)
        if started.sentences == 1 and started.hidden is None:
            pairs = [
                layer[2].absorb(*source)
                for layer, source in zip(self.layers, started.sources, strict=True)
            ]
            started.absorbed = [pair for pair in pairs if pair is not None] or None
        return started

    def _embedded(self, tokens: Tensor, position: int) -> Tensor:
        """As InputEmbedding, for one token of each row."""
        embedding = self.embedding
        x = embedding.tokens.weight.index_select(0, tokens)
        if embedding.positions is not None:
            x = torch.add(embedding.positions(1, position), x, alpha=embedding.scale)
        elif embedding.scale != 1.0:
            x.mul_(embedding.scale)
        return x if self.embedding_norm is None else self.embedding_norm(x)

    def __call__(self, tokens: Tensor, cache: StepCache) -> Tensor:
        """The states `(R, D)` of the next tokens `(R,)`; the cache has one position more."""
        position, absorbed = cache.length, cache.absorbed
        x = self._embedded(tokens, position)
        desk = cache.desk(tokens.shape[0], self.heads)
        places, keys, values = cache.next_position(desk.rows)
        for i, (own, a, cross, b, feed, c) in enumerate(self.layers):
            looked = own.own(a.enter(x), desk, places[i], keys[i], values[i], position)
            x = a.leave(x, looked)
            entered = b.enter(x)
            if absorbed is not None:
                looked = cross.cross_absorbed(entered, absorbed[i])
            else:
                looked = cross.cross(entered, cache.sources[i], cache.hidden, cache.sentences)
            x = b.leave(x, looked)
            x = c.leave(x, feed(c.enter(x)))
        return x if self.norm is None else self.norm(x)
