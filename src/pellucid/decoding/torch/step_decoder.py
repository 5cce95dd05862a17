"""The decoder for one new token of each row, with as few calls as possible.

The modules of `pellucid.model` do the same for any number of tokens, with traces and gradients; for
a single token the overhead of their calls takes most of the time. Here the same formula runs on the
same weights with a third of the calls, and the KV cache is written in place. Property tests bind
the two: a search with the cache (this) and one without (the modules) give the same answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from pellucid.decoding.torch.linear import Linear
from pellucid.decoding.torch.step_cache import StepCache, Workspace
from pellucid.model import Cache, MultiHeadAttention, Transformer
from pellucid.model.layers import AddNorm, DecoderLayer, FeedForward

Norm = Callable[[Tensor], Tensor]


class _Attention:
    """A MultiHeadAttention for one query a row; 1/√K is folded into the query weights."""

    def __init__(self, module: MultiHeadAttention, *, cross: bool) -> None:
        self.heads, self.groups, self.K = module.num_heads, module.num_kv_heads, module.head_dim
        self.width = self.heads * self.K
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
        """Return the rows of a projection that compute the queries."""
        return weight[: self.width] * scale

    def _by_group(self, weight: Tensor, scale: float) -> Tensor:
        """Return the rows of a projection ordered by group: its queries, its key, its value."""
        G, width = self.groups, weight.shape[1]
        q = self._queries(weight, scale).view(G, -1, width)
        k, v = weight[self.width :].view(2, G, self.K, width).unbind(0)
        return torch.cat([q, k, v], dim=1).view(-1, width)

    def attend_self(
        self,
        x: Tensor,
        workspace: Workspace,
        slot: Tensor,
        keys: Tensor,
        values: Tensor,
        position: int,
    ) -> Tensor:
        """Compute self-attention of `x (R, D)`; write its keys and values to the cache's `slot`."""
        self.project(x, workspace.projected)
        slot.copy_(workspace.new_kv)
        if self.key_norm is not None or self.rotary is not None:
            slot[0] = self._normed_and_rotated(workspace.new_kv[0], self.key_norm, position)
        q = self._normed_and_rotated(workspace.queries, self.query_norm, position)
        torch.bmm(torch.bmm(q, keys).softmax(-1), values, out=workspace.context)
        return self.out(workspace.heads_joined)

    def attend_source(
        self, x: Tensor, source: tuple[Tensor, Tensor], bias: Tensor | None, sentences: int
    ) -> Tensor:
        """Compute cross-attention of `x (R, D)`; the rows of a sentence share its keys and values.

        bias: added to the scores, -inf at padding.
        """
        R, G, K = x.shape[0], self.groups, self.K
        keys, values = source
        q = self.project(x)
        if self.query_norm is not None:
            q = self.query_norm(q.view(R, self.heads, K))
        beams = R // sentences
        if beams > 1:
            q = q.view(sentences, beams, G, -1).transpose(1, 2)
        q = q.reshape(sentences * G, -1, K)
        scores = torch.bmm(q, keys) if bias is None else torch.baddbmm(bias, q, keys)
        context = torch.bmm(scores.softmax(-1), values)
        if beams > 1:
            context = context.view(sentences, G, beams, -1).transpose(1, 2)
        return self.out(context.reshape(R, self.width))

    def absorb(self, keys: Tensor, values: Tensor) -> tuple[Linear, Linear] | None:
        """Fold one sentence's `keys (G, K, S)` and `values (G, S, K)` into W_Q and W_O.

        Keys times W_Q computes the scores straight from the state, W_O times values the output
        straight from the attention weights; for a short source these two matrices are smaller than
        W_Q and W_O. None where they are not.
        """
        H, S, K = self.heads, values.shape[1], self.K
        if self.query_norm is not None or self.width < H * S:
            return None
        keys, values = (t.repeat_interleave(H // self.groups, dim=0) for t in (keys, values))
        to_scores = torch.bmm(keys.transpose(1, 2), self.project.weight.view(H, K, -1))  # (H, S, D)
        bias = self.project.bias
        if bias is not None:
            bias = torch.bmm(bias.view(H, 1, K), keys).view(-1)
        to_output = torch.bmm(values, self.out.weight.t().view(H, K, -1))  # (H, S, D)
        return (
            Linear(to_scores.view(H * S, -1), bias),
            Linear(to_output.view(H * S, -1).t(), self.out.bias),
        )

    def attend_absorbed(self, x: Tensor, source: tuple[Linear, Linear]) -> Tensor:
        """As `attend_source`, with the two matrices of `absorb`."""
        to_scores, to_output = source
        scores = to_scores(x)  # (R, H · S)
        weights = scores.view(x.shape[0], self.heads, -1).softmax(-1)
        return to_output(weights.view(scores.shape))

    def _normed_and_rotated(self, x: Tensor, norm: Norm | None, position: int) -> Tensor:
        """Normalize and rotate queries or keys `(·, ·, K)` where the model does so."""
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
            activated, gate = inner.chunk(2, dim=-1)
            return self.outer(self.activation(activated) * gate)
        return self.outer(self.activation(inner))


def _norm(module: nn.Module | None, scale: float = 1.0) -> Norm | None:
    """Return the function of a norm, times `scale`, without the overhead of a module."""
    if module is None:
        return None
    assert isinstance(module, nn.LayerNorm | nn.RMSNorm)
    shape, epsilon = list(module.normalized_shape), module.eps
    weight = module.weight.detach() * scale
    if isinstance(module, nn.RMSNorm):
        return lambda x: torch.rms_norm(x, shape, weight, epsilon)
    assert epsilon is not None
    bias, eps = module.bias.detach() * scale, epsilon
    return lambda x: torch.layer_norm(x, shape, weight, bias, eps)


class _AddNorm:
    """An AddNorm for `x (R, D)`."""

    def __init__(self, module: AddNorm) -> None:
        self.norm_before, self.norm_inside = _norm(module.norm_before), _norm(module.norm_inside)
        self.norm_after = _norm(module.norm_after)

    def enter(self, x: Tensor) -> Tensor:
        """Return the input of the sub-layer."""
        return x if self.norm_before is None else self.norm_before(x)

    def leave(self, x: Tensor, output: Tensor) -> Tensor:
        """Add the sub-layer's output to the residual stream, in place; return the new stream."""
        if self.norm_inside is not None:
            output = self.norm_inside(output)
        output.add_(x)
        return output if self.norm_after is None else self.norm_after(output)


class StepDecoder:
    """A Transformer's decoder for one new token of each row; several threads may share it.

    It holds copies of the matrices in a layout that is fast to read, so make a new one after
    changing the weights.
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
        """Return a StepCache that continues from a model's cache."""
        started = StepCache(cache)
        if started.sentences == 1 and started.padding_bias is None:
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
        """Return the states `(R, D)` of the next tokens `(R,)`; the cache grows by one position."""
        position, absorbed = cache.length, cache.absorbed
        x = self._embedded(tokens, position)
        workspace = cache.workspace(tokens.shape[0], self.heads)
        slots, keys, values = cache.next_position(workspace.rows)
        for i, (self_attention, a, cross_attention, b, feed_forward, c) in enumerate(self.layers):
            y = self_attention.attend_self(
                a.enter(x), workspace, slots[i], keys[i], values[i], position
            )
            x = a.leave(x, y)
            entered = b.enter(x)
            if absorbed is not None:
                y = cross_attention.attend_absorbed(entered, absorbed[i])
            else:
                y = cross_attention.attend_source(
                    entered, cache.sources[i], cache.padding_bias, cache.sentences
                )
            x = b.leave(x, y)
            x = c.leave(x, feed_forward(c.enter(x)))
        return x if self.norm is None else self.norm(x)
