"""The Transformer, and its encoder and decoder as models of their own."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor, nn

from pellucid.config import ModelConfig
from pellucid.model.attention import MultiHeadAttention
from pellucid.model.cache import Cache, LayerCache
from pellucid.model.layers import AddNorm, DecoderLayer, EncoderLayer, FeedForward, make_norm
from pellucid.model.masks import causal_mask, combine, padding_mask, target_padding_mask
from pellucid.model.positions import LearnedPositions, RotaryPositions, SinusoidalPositions
from pellucid.model.stacks import Decoder, Encoder, InputEmbedding
from pellucid.model.tensor_trace import TensorTrace, inside


class Memory(NamedTuple):
    """The encoder's output for B source sentences (the paper and PyTorch call it memory)."""

    states: Tensor
    """(B, S, D)"""
    mask: Tensor
    """(B, 1, 1, S), True where there is a source token."""


class Transformer(nn.Module):
    """Encoder and decoder: `model(source, target)` returns the logits of each next token."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        build = _Builder(config)
        target_tokens = nn.Embedding(config.vocab_size, config.d_model)
        if config.tie_embeddings == "all":
            source_tokens = target_tokens
        else:
            source_tokens = nn.Embedding(
                config.source_vocab_size or config.vocab_size, config.d_model
            )
        self.source_embedding = build.embedding(source_tokens)
        self.target_embedding = build.embedding(target_tokens)
        self.encoder = build.encoder()
        self.decoder = build.decoder(cross=True)
        self.output = build.output(target_tokens)
        initialise(self, config)

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        *,
        cross_mask: Tensor | None = None,
        trace: TensorTrace | None = None,
    ) -> Tensor:
        """Return the logits `(B, T, V)` of all target positions at once (teacher forcing).

        `source (B, S)` and `target (B, T)` are token ids, padded with `config.pad_id`; the
        logits at position t depend on the source and on target tokens up to t.
        cross_mask: boolean, broadcastable to `(B, H, T, S)`; False hides source tokens from the
        decoder.
        """
        logits = self.output(self.states(source, target, cross_mask=cross_mask, trace=trace))
        if trace is not None:
            trace.record("logits", logits)
        return logits  # type: ignore[no-any-return]

    def states(
        self,
        source: Tensor,
        target: Tensor,
        *,
        cross_mask: Tensor | None = None,
        trace: TensorTrace | None = None,
    ) -> Tensor:
        """Return the decoder's output `(B, T, D)`, before the output layer."""
        memory = self.encode(source, trace=trace)
        mask = combine(
            causal_mask(target.shape[1], device=target.device),
            target_padding_mask(target, self.config.pad_id),
        )
        x = self.target_embedding(target, trace=inside(trace, "target"))
        x, _ = self.decoder(
            x,
            mask,
            memory.states,
            combine(memory.mask, cross_mask),
            trace=inside(trace, "decoder"),
        )
        return x  # type: ignore[no-any-return]

    def encode(self, source: Tensor, *, trace: TensorTrace | None = None) -> Memory:
        """Run the encoder on `source (B, S)`."""
        mask = padding_mask(source, self.config.pad_id)
        x = self.source_embedding(source, trace=inside(trace, "source"))
        return Memory(self.encoder(x, mask, trace=inside(trace, "encoder")), mask)

    def start(self, memory: Memory) -> Cache:
        """Return an empty cache for decoding, with the cross-attention keys and values computed."""
        layers = tuple(LayerCache(None, kv) for kv in self.decoder.key_values(memory.states))
        return Cache(layers, memory.mask)

    def decode(
        self, target: Tensor, cache: Cache, *, trace: TensorTrace | None = None
    ) -> tuple[Tensor, Cache]:
        """Continue decoding with `target (B · beams, T)`, the tokens after those in the cache.

        Returns their logits `(B · beams, T, V)` and the cache with T more rows. No token is taken
        for padding; finished rows are removed with `cache.reorder`.
        """
        x, cache = self.decode_states(target, cache, trace=trace)
        logits = self.output(x)
        if trace is not None:
            trace.record("logits", logits)
        return logits, cache

    def decode_states(
        self, target: Tensor, cache: Cache, *, trace: TensorTrace | None = None
    ) -> tuple[Tensor, Cache]:
        """Like `decode`, but return the states `(B · beams, T, D)` before the output layer."""
        return _decoded(self.target_embedding, self.decoder, target, cache, trace)

    def num_parameters(self) -> int:
        """Return the number of parameters; tied ones count once."""
        return _num_parameters(self)


class EncoderOnly(nn.Module):
    """The encoder alone (as in BERT): each token's vector depends on all tokens."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        build = _Builder(config)
        self.embedding = build.embedding(nn.Embedding(config.vocab_size, config.d_model))
        self.encoder = build.encoder()
        initialise(self, config)

    def forward(self, ids: Tensor, *, trace: TensorTrace | None = None) -> Tensor:
        """Map `ids (B, S)` to `(B, S, D)`."""
        x = self.embedding(ids, trace=inside(trace, "source"))
        mask = padding_mask(ids, self.config.pad_id)
        return self.encoder(x, mask, trace=inside(trace, "encoder"))  # type: ignore[no-any-return]

    def num_parameters(self) -> int:
        """Return the number of parameters."""
        return _num_parameters(self)


class DecoderOnly(nn.Module):
    """The decoder alone (as in GPT): predicts the next token from those before it."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        build = _Builder(config)
        tokens = nn.Embedding(config.vocab_size, config.d_model)
        self.embedding = build.embedding(tokens)
        self.decoder = build.decoder(cross=False)
        self.output = build.output(tokens)
        initialise(self, config)

    def forward(self, ids: Tensor, *, trace: TensorTrace | None = None) -> Tensor:
        """Return the logits `(B, T, V)` of `ids (B, T)`."""
        mask = combine(
            causal_mask(ids.shape[1], device=ids.device),
            target_padding_mask(ids, self.config.pad_id),
        )
        x = self.embedding(ids, trace=inside(trace, "target"))
        x, _ = self.decoder(x, mask, trace=inside(trace, "decoder"))
        logits = self.output(x)
        if trace is not None:
            trace.record("logits", logits)
        return logits  # type: ignore[no-any-return]

    def start(self) -> Cache:
        """Return an empty cache."""
        return Cache(tuple(LayerCache(None, None) for _ in self.decoder.layers))

    def decode(
        self, ids: Tensor, cache: Cache, *, trace: TensorTrace | None = None
    ) -> tuple[Tensor, Cache]:
        """Continue with `ids (B, T)`; return their logits and the cache with T more rows."""
        x, cache = _decoded(self.embedding, self.decoder, ids, cache, trace)
        logits = self.output(x)
        if trace is not None:
            trace.record("logits", logits)
        return logits, cache

    def num_parameters(self) -> int:
        """Return the number of parameters; tied ones count once."""
        return _num_parameters(self)


def _num_parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())  # parameters() gives a tied one once


def _decoded(
    embedding: InputEmbedding,
    decoder: Decoder,
    ids: Tensor,
    cache: Cache,
    trace: TensorTrace | None,
) -> tuple[Tensor, Cache]:
    """Return the decoder's states of the next tokens, and the cache with them."""
    length = ids.shape[1]
    # A single new token attends to everything before it; only several need the causal mask.
    mask = None if length == 1 else causal_mask(length, past=cache.length, device=ids.device)
    x = embedding(ids, cache.length, trace=inside(trace, "target"))
    x, own = decoder(
        x,
        mask,
        [layer.cross for layer in cache.layers],
        cache.source_mask,
        past=[layer.own for layer in cache.layers],
        trace=inside(trace, "decoder"),
    )
    layers = tuple(LayerCache(new, old.cross) for new, old in zip(own, cache.layers, strict=True))
    return x, Cache(layers, cache.source_mask, cache.length + length)


class _Builder:
    """Builds the parts of a model, each with plain arguments from the config."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config

    def norm(self) -> nn.Module:
        return make_norm(self.config.norm_type, self.config.d_model, self.config.norm_epsilon)

    def final_norm(self) -> nn.Module | None:
        """Return the final norm; post-norm needs none, as its last layer ends with a norm."""
        return None if self.config.norm == "post" else self.norm()

    def embedding(self, tokens: nn.Embedding) -> InputEmbedding:
        config = self.config
        positions: SinusoidalPositions | LearnedPositions | None = None
        if config.position_encoding == "sinusoidal":
            positions = SinusoidalPositions(
                config.d_model, base=config.position_base, layout=config.position_layout
            )
        elif config.position_encoding == "learned":
            positions = LearnedPositions(config.max_length, config.d_model)
        return InputEmbedding(
            tokens,
            positions,
            scaled=config.scale_embedding,
            norm=self.norm() if config.embedding_norm else None,
            dropout=config.dropout,
        )

    def attention(self, *, cross: bool) -> MultiHeadAttention:
        """Build an attention; rotary positions are for self-attention, within one sequence."""
        config = self.config
        normed = config.qk_norm == "all" or (config.qk_norm == "self" and not cross)

        def head_norm() -> nn.Module | None:
            return make_norm("rms", config.head_dim, config.norm_epsilon) if normed else None

        return MultiHeadAttention(
            config.d_model,
            config.num_heads,
            config.num_kv_heads,
            bias=config.attention_bias,
            dropout=config.attention_dropout,
            query_norm=head_norm(),
            key_norm=head_norm(),
            rotary=RotaryPositions(
                config.head_dim, base=config.rope_theta, layout=config.position_layout
            )
            if config.position_encoding == "rotary" and not cross
            else None,
        )

    def feed_forward(self) -> FeedForward:
        config = self.config
        return FeedForward(
            config.d_model,
            config.d_ff,
            activation=config.activation,
            bias=config.feed_forward_bias,
            dropout=config.activation_dropout,
        )

    def add_norm(self) -> AddNorm:
        return AddNorm(self.config.norm, self.norm, dropout=self.config.dropout)

    def encoder(self) -> Encoder:
        layers = [
            EncoderLayer(self.attention(cross=False), self.feed_forward(), self.add_norm)
            for _ in range(self.config.encoder_layers)
        ]
        return Encoder(layers, self.final_norm())

    def decoder(self, *, cross: bool) -> Decoder:
        layers = [
            DecoderLayer(
                self.attention(cross=False),
                self.attention(cross=True) if cross else None,
                self.feed_forward(),
                self.add_norm,
            )
            for _ in range(self.config.decoder_layers)
        ]
        return Decoder(layers, self.final_norm())

    def output(self, tokens: nn.Embedding) -> nn.Linear:
        """Build the output layer; its weights are the target embedding where they are tied."""
        output = nn.Linear(
            self.config.d_model, self.config.vocab_size, bias=self.config.output_bias
        )
        if self.config.tie_embeddings != "none":
            output.weight = tokens.weight
        return output


def initialise(model: nn.Module, config: ModelConfig) -> None:
    """Initialise the weights so that training is stable, in deep stacks too.

    Matrices are Xavier-uniform, W_Q, W_K and W_V separately; embeddings have a standard deviation
    of 1 / √D, so that scaled by √D they are as large as the position vectors. With pre-norm and
    sandwich norm nothing bounds the residual sum, so the output of each of the n sub-layers starts
    smaller by √n.
    """
    tied = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    for module in model.modules():
        if isinstance(module, nn.Embedding | LearnedPositions):
            nn.init.normal_(module.weight, std=config.d_model**-0.5)
        elif isinstance(module, nn.Linear):
            if id(module.weight) not in tied:
                nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, MultiHeadAttention):
            for weight in module.projections():
                nn.init.xavier_uniform_(weight)
            if module.in_bias is not None:
                nn.init.zeros_(module.in_bias)
    if config.norm != "post":
        for stack in model.modules():
            if isinstance(stack, Encoder | Decoder):
                _scale_down_sublayers(stack)


def _scale_down_sublayers(stack: Encoder | Decoder) -> None:
    output_layers = [m.out for m in stack.modules() if isinstance(m, MultiHeadAttention)]
    output_layers += [m.outer for m in stack.modules() if isinstance(m, FeedForward)]
    for linear in output_layers:
        linear.weight.data.div_(math.sqrt(len(output_layers)))
