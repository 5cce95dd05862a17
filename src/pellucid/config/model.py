"""Settings of the model: its shape, and the presets."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from pellucid.config.settings import Settings
from pellucid.errors import ConfigError, nearest

Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "relu2", "geglu", "geglu_tanh", "swiglu"]
NormPlacement = Literal["post", "pre", "sandwich"]
NormType = Literal["layer", "rms"]
PositionEncoding = Literal["sinusoidal", "learned", "rotary", "none"]
PositionLayout = Literal["interleaved", "halves"]
EmbeddingTying = Literal["all", "decoder", "none"]
QueryKeyNorm = Literal["none", "self", "all"]


class ModelShape(Settings):
    """The shape of a Transformer without its vocabulary; by default the paper's base model."""

    section: ClassVar[str] = "model"

    d_model: int = Field(default=512, ge=1)
    """Model width: length of a token's vector (D)."""

    d_ff: int = Field(default=2048, ge=1)
    """Width of the hidden layer in a feed-forward layer (F)."""

    num_heads: int = Field(default=8, ge=1)
    """Number of attention heads (H); each has d_model / num_heads dimensions (K)."""

    num_kv_heads: int | None = Field(default=None, ge=1)
    """Number of heads for keys and values (G): as many as num_heads (unset), fewer (grouped-query
    attention) or one (multi-query attention). Fewer heads make the KV cache smaller."""

    encoder_layers: int = Field(default=6, ge=0)
    """Number of encoder layers."""

    decoder_layers: int = Field(default=6, ge=0)
    """Number of decoder layers."""

    norm: NormPlacement = "post"
    """Placement of the normalization: after the residual sum (post-norm, the paper), before each
    sub-layer (pre-norm), or on both sides of it (sandwich)."""

    norm_type: NormType = "layer"
    """LayerNorm (mean and variance) or RMSNorm (root mean square only)."""

    norm_epsilon: float = Field(default=1e-5, gt=0)
    """Added to the variance, which prevents a division by zero."""

    activation: Activation = "relu"
    """Activation function of the feed-forward layers. geglu and swiglu are gated; relu2 is ReLU
    squared."""

    position_encoding: PositionEncoding = "sinusoidal"
    """Position encoding: added to the embeddings (sinusoidal or learned), applied to queries and
    keys in self-attention (rotary, RoPE), or none."""

    position_layout: PositionLayout = "interleaved"
    """Order of sines and cosines in sinusoidal and rotary positions: alternating (the paper) or in
    two halves (tensor2tensor, Marian, Llama)."""

    position_base: float = Field(default=10000.0, gt=1)
    """With sinusoidal positions: the longest wavelength, divided by 2 pi (the paper's value)."""

    rope_theta: float = Field(default=10000.0, gt=1)
    """With rotary positions: the base of the rotation frequencies (RoPE's theta)."""

    max_length: int = Field(default=1024, ge=1)
    """With learned positions: the longest sequence. Sinusoidal and rotary positions have no
    limit."""

    attention_bias: bool = True
    """Add a bias in the query, key, value and output projections of attention."""

    feed_forward_bias: bool = True
    """Add a bias in the feed-forward layers."""

    output_bias: bool = False
    """Add a bias to the logits, one number for each token of the vocabulary."""

    qk_norm: QueryKeyNorm = "none"
    """QK-norm: RMS-normalize the queries and keys of each head, which bounds the attention scores.
    Nowhere, in self-attention, or in all attention (which CTranslate2 cannot run)."""

    tie_embeddings: EmbeddingTying = "all"
    """Weight tying: one matrix for source embedding, target embedding and output projection (all),
    for the last two (decoder), or none."""

    scale_embedding: bool = True
    """Multiply embeddings by sqrt(d_model), as in the paper."""

    embedding_norm: bool = False
    """Normalize embedding + position before the first layer, as BERT does."""

    dropout: float = Field(default=0.1, ge=0, lt=1)
    """Dropout on each sub-layer's output and on embedding + position."""

    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the attention weights."""

    activation_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout after the activation in the feed-forward layers."""

    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": {
            "d_model": 128,
            "d_ff": 256,
            "num_heads": 4,
            "encoder_layers": 4,
            "decoder_layers": 4,
        },
        "small": {
            "d_model": 256,
            "d_ff": 1024,
            "num_heads": 4,
            "encoder_layers": 3,
            "decoder_layers": 3,
        },
        "base": {},
        "big": {"d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout": 0.3},
    }

    @property
    def head_dim(self) -> int:
        """Dimensions of one head (K)."""
        return self.d_model // self.num_heads

    @model_validator(mode="after")
    def _check_shape(self) -> Self:
        if self.d_model % self.num_heads:
            divisors = [n for n in range(1, self.d_model + 1) if self.d_model % n == 0]
            closest = min(divisors, key=lambda n: abs(n - self.num_heads))
            raise ValueError(
                f"num_heads = {self.num_heads} does not divide d_model = {self.d_model}: "
                f"set num_heads to {closest}, or d_model to a multiple of {self.num_heads}"
            )
        if self.num_kv_heads is not None and self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_kv_heads = {self.num_kv_heads} does not divide num_heads = "
                f"{self.num_heads}: each key and value head serves the same number of query heads"
            )
        if self.position_encoding == "rotary" and self.head_dim % 2:
            raise ValueError(
                "position_encoding = 'rotary' rotates pairs of dimensions, and d_model / num_heads "
                f"= {self.head_dim} is odd: make it even, or choose another position_encoding"
            )
        if self.position_encoding == "sinusoidal" and self.d_model % 2:
            raise ValueError(
                f"position_encoding = 'sinusoidal' needs pairs of sine and cosine, and d_model = "
                f"{self.d_model} is odd: make it even, or choose another position_encoding"
            )
        return self


class ModelConfig(ModelShape):
    """The shape of a Transformer with its vocabulary; by default the paper's base model."""

    vocab_size: int = Field(ge=1)
    """Number of token ids on the target side (V), and on the source side unless
    source_vocab_size says otherwise."""

    source_vocab_size: int | None = Field(default=None, ge=1)
    """Number of token ids on the source side, if it has a vocabulary of its own."""

    pad_id: int = Field(default=0, ge=0)
    """Token id of padding, which attention never sees."""

    @classmethod
    def preset(cls, name: str, **changes: Any) -> ModelConfig:
        """Return a preset (tiny, small, base or big), with some settings changed.

        The vocabulary belongs to the data, so the caller always gives `vocab_size`.
        """
        if name not in cls.presets:
            raise ConfigError(f"unknown preset {name!r}: {nearest(name, list(cls.presets))}")
        return cls(**{**cls.presets[name], **changes})

    @model_validator(mode="after")
    def _check_vocabulary(self) -> Self:
        if self.pad_id >= min(self.vocab_size, self.source_vocab_size or self.vocab_size):
            raise ValueError(
                f"pad_id = {self.pad_id} is outside the vocabulary of {self.vocab_size}: "
                "pad_id must be below vocab_size and source_vocab_size"
            )
        if self.tie_embeddings == "all" and self.source_vocab_size not in (None, self.vocab_size):
            raise ValueError(
                "tie_embeddings = 'all' needs one vocabulary for both sides: set tie_embeddings to "
                "'decoder' or 'none', or leave source_vocab_size out"
            )
        return self
