"""The shape of a model."""

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
    """The shape of a Transformer but for its vocabulary. The defaults are the paper's base."""

    d_model: int = Field(default=512, ge=1)
    """Length of the vector that stands for a token (d_model, D)."""

    d_ff: int = Field(default=2048, ge=1)
    """Width inside the feed-forward layers (d_ff, F)."""

    num_heads: int = Field(default=8, ge=1)
    """Attention heads (H); each works on width / heads numbers (d_k, K)."""

    num_kv_heads: int | None = Field(default=None, ge=1)
    """Heads of the keys and values: as many as heads (unset), one (multi-query) or some
    (grouped-query)."""

    encoder_layers: int = Field(default=6, ge=0)
    """Depth of the encoder."""

    decoder_layers: int = Field(default=6, ge=0)
    """Depth of the decoder."""

    norm: NormPlacement = "post"
    """Where normalisation stands: after the residual sum (the paper), before each sub-layer,
    or on both sides of it."""

    norm_type: NormType = "layer"
    """LayerNorm (mean and variance) or RMSNorm (root mean square only)."""

    norm_epsilon: float = Field(default=1e-5, gt=0)
    """Added to the variance so that nothing is divided by zero."""

    activation: Activation = "relu"
    """What bends the feed-forward layer; geglu and swiglu are gated, relu2 is ReLU squared."""

    position_encoding: PositionEncoding = "sinusoidal"
    """How the model learns the order of tokens."""

    position_layout: PositionLayout = "interleaved"
    """Sines and cosines in turn (the paper) or in two halves (tensor2tensor, Marian, Llama)."""

    position_base: float = Field(default=10000.0, gt=1)
    """The longest wavelength of sinusoidal and rotary positions, over 2 pi."""

    max_length: int = Field(default=1024, ge=1)
    """Learned positions end here. Sinusoidal and rotary ones grow by themselves."""

    attention_bias: bool = True
    """Whether the projections of queries, keys, values and the output add a bias."""

    feed_forward_bias: bool = True
    """Whether the feed-forward layers add a bias."""

    output_bias: bool = False
    """Whether each token of the vocabulary has a bias of its own in the logits."""

    qk_norm: QueryKeyNorm = "none"
    """RMS-normalise each head's queries and keys, which bounds the scores: nowhere, in
    self-attention, or in all attention (CTranslate2 cannot run the last)."""

    tie_embeddings: EmbeddingTying = "all"
    """Which embeddings are one matrix: source, target and output; target and output; none."""

    scale_embedding: bool = True
    """Multiply embeddings by sqrt(width), as in the paper."""

    embedding_norm: bool = False
    """Normalise embedding + position before the first layer, as BERT does."""

    dropout: float = Field(default=0.1, ge=0, lt=1)
    """Dropout on each sub-layer's output and on embedding + position."""

    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the attention weights."""

    activation_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout inside the feed-forward layers."""

    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": {
            "width": 128,
            "feed_forward_width": 256,
            "heads": 4,
            "encoder_layers": 4,
            "decoder_layers": 4,
        },
        "small": {
            "width": 256,
            "feed_forward_width": 1024,
            "heads": 4,
            "encoder_layers": 3,
            "decoder_layers": 3,
        },
        "base": {},
        "big": {"width": 1024, "feed_forward_width": 4096, "heads": 16, "dropout": 0.3},
    }

    @property
    def head_dim(self) -> int:
        """Width of one head (K)."""
        return self.d_model // self.num_heads

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.d_model % self.num_heads:
            fitting = [n for n in range(1, self.d_model + 1) if self.d_model % n == 0]
            close = min(fitting, key=lambda n: abs(n - self.num_heads))
            raise ValueError(
                f"heads = {self.num_heads} does not divide width = {self.d_model}: "
                f"set heads to {close}, or width to a multiple of {self.num_heads}"
            )
        if self.num_kv_heads is not None and self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"key_value_heads = {self.num_kv_heads} does not divide heads = {self.num_heads}: "
                "each head of the keys and values serves the same number of query heads"
            )
        if self.position_encoding == "rotary" and self.head_dim % 2:
            raise ValueError(
                f"positions = 'rotary' turns pairs of numbers, and width / heads = "
                f"{self.head_dim} is odd: make width / heads even, or choose other positions"
            )
        if self.position_encoding == "sinusoidal" and self.d_model % 2:
            raise ValueError(
                f"positions = 'sinusoidal' needs pairs of sine and cosine, and width = "
                f"{self.d_model} is odd: make width even, or choose other positions"
            )
        return self


class ModelConfig(ModelShape):
    """The shape of a Transformer. The defaults are the base model of the paper."""

    vocab_size: int = Field(ge=1)
    """Number of token ids on the target side (V), and on the source side too unless
    source_vocab_size says otherwise."""

    source_vocab_size: int | None = Field(default=None, ge=1)
    """Number of source token ids where the source has a vocabulary of its own."""

    pad_id: int = Field(default=0, ge=0)
    """The token id that means "nothing here"; it is never attended to."""

    @classmethod
    def preset(cls, name: str, **changes: Any) -> ModelConfig:
        """A named shape (tiny, small, base, big), with some settings changed.

        The vocabulary belongs to the data, so `vocab_size` is always given by the caller.
        """
        if name not in cls.presets:
            raise ConfigError(f"unknown preset {name!r}: {nearest(name, list(cls.presets))}")
        return cls(**{**cls.presets[name], **changes})

    @model_validator(mode="after")
    def _vocabulary_fits(self) -> Self:
        if self.pad_id >= min(self.vocab_size, self.source_vocab_size or self.vocab_size):
            raise ValueError(
                f"pad_id = {self.pad_id} is outside the vocabulary of {self.vocab_size}: "
                "pad_id must be below vocab_size and source_vocab_size"
            )
        if self.tie_embeddings == "all" and self.source_vocab_size not in (None, self.vocab_size):
            raise ValueError(
                "tie = 'all' needs one vocabulary for both sides: set tie to 'decoder' or 'none', "
                "or leave source_vocab_size out"
            )
        return self
