"""Marian in Hugging Face's format: its settings, and which of ours they are.

    config.json                             the shape
    model.safetensors or pytorch_model.bin  the weights
    source.spm, target.spm, vocab.json      the tokenizer (and target_vocab.json)
    tokenizer_config.json                   the languages

MarianMTModel is the base Transformer of the paper: norm after each sub-layer (post-norm),
sinusoidal position encodings with all sines before all cosines, and a bias for each token of the
vocabulary (final_logits_bias).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pellucid.config import Activation, ModelConfig
from pellucid.errors import ConfigError, InputError, PellucidError
from pellucid.exchange.foreign import (
    ForeignFileError,
    ForeignModel,
    read_bytes,
    read_table,
    read_tensors,
)
from pellucid.exchange.hugging_face_weights import from_hugging_face
from pellucid.tokenizers.marian import (
    SOURCE_SPM,
    SPECIAL,
    TARGET_SPM,
    TARGET_VOCAB,
    VOCAB,
    MarianTokenizer,
)

CONFIG = "config.json"
SAFETENSORS, BIN = "model.safetensors", "pytorch_model.bin"
TOKENIZER_CONFIG = "tokenizer_config.json"

ACTIVATIONS: dict[Activation, str] = {
    "silu": "swish",
    "relu": "relu",
    "gelu": "gelu",
    "gelu_tanh": "gelu_new",
    "relu2": "relu2",
}
_THEIRS: dict[str, Activation] = {theirs: ours for ours, theirs in ACTIVATIONS.items()}
_THEIRS |= {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
_MUST_BE_OFF = ("normalize_before", "normalize_embedding", "add_final_layer_norm")


def is_hugging_face(folder: Path) -> bool:
    """Whether a folder looks like a model in this format."""
    return (folder / CONFIG).is_file()


def read_hugging_face(folder: Path) -> ForeignModel:
    """Read the model in a folder."""
    settings = read_table(folder / CONFIG)
    tokenizer, languages = read_tokenizer(folder, settings)
    config = _model_config(settings, folder / CONFIG)
    path = next((folder / n for n in (SAFETENSORS, BIN) if (folder / n).is_file()), None)
    if path is None:
        raise InputError(
            f"there are no weights in {folder}: {SAFETENSORS} or {BIN} is needed, in one file"
        )
    weights = from_hugging_face(config, read_tensors(path), path)
    return ForeignModel(config, weights, tokenizer, *languages)


def _model_config(settings: Mapping[str, Any], path: Path) -> ModelConfig:
    """Translate their settings to our config; an `InputError` says what is not Marian's."""

    def need(name: str) -> Any:
        if name not in settings:
            raise ForeignFileError(f"{path} has no {name!r}: the file is incomplete")
        return settings[name]

    kind = settings.get("model_type")
    if kind != "marian":
        raise InputError(f"{path}: model_type is {kind!r}, and only 'marian' can be imported")
    for name in _MUST_BE_OFF:
        if settings.get(name):
            raise InputError(f"{path}: {name} is on, which MarianMTModel does not do: refused")
    for what in ("ffn_dim", "attention_heads"):
        pair = need(f"encoder_{what}"), need(f"decoder_{what}")
        if pair[0] != pair[1]:
            raise InputError(
                f"{path}: {what} is {pair[0]} in the encoder and {pair[1]} in the decoder, and "
                "Pellucid has one for both"
            )
    activation = need("activation_function")
    if activation not in _THEIRS:
        raise InputError(f"{path}: the activation {activation!r} is not supported")
    shared = settings.get("share_encoder_decoder_embeddings", True)
    tied = settings.get("tie_word_embeddings", True)
    if shared and not tied:
        raise InputError(f"{path}: embeddings are shared but not tied: refused as ambiguous")
    vocab_size = need("vocab_size")
    try:
        return ModelConfig(
            vocab_size=vocab_size if shared else need("decoder_vocab_size"),
            source_vocab_size=None if shared else vocab_size,
            pad_id=need("pad_token_id"),
            d_model=need("d_model"),
            d_ff=need("encoder_ffn_dim"),
            num_heads=need("encoder_attention_heads"),
            encoder_layers=need("encoder_layers"),
            decoder_layers=need("decoder_layers"),
            activation=_THEIRS[activation],
            position_layout="halves",
            max_length=settings.get("max_position_embeddings", 512),
            output_bias=True,
            tie_embeddings="all" if shared else "decoder" if tied else "none",
            scale_embedding=settings.get("scale_embedding", False),
            dropout=settings.get("dropout", 0.1),
            attention_dropout=settings.get("attention_dropout", 0.0),
            activation_dropout=settings.get("activation_dropout", 0.0),
        )
    except ConfigError as error:
        raise ForeignFileError(f"{path} cannot be used: {error}") from None


def read_tokenizer(
    folder: Path, settings: Mapping[str, Any]
) -> tuple[MarianTokenizer, tuple[str | None, str | None]]:
    """Read the tokenizer in a folder, and the languages that its settings name.

    settings: config.json, which has the special ids.
    """
    own: dict[str, Any] = {}
    if (folder / TOKENIZER_CONFIG).is_file():
        own = read_table(folder / TOKENIZER_CONFIG)
    files = {name: read_bytes(folder / name) for name in (SOURCE_SPM, TARGET_SPM, VOCAB)}
    if not settings.get("share_encoder_decoder_embeddings", True):
        files[TARGET_VOCAB] = read_bytes(folder / TARGET_VOCAB)
    unknown = own.get("unk_token", "<unk>")
    unknown = unknown.get("content") if isinstance(unknown, dict) else unknown
    vocabulary = read_table(folder / VOCAB)
    if unknown not in vocabulary:
        raise ForeignFileError(f"{folder / VOCAB} has no piece {unknown!r} for unknown words")
    special = {
        "pad": settings.get("pad_token_id"),
        "start": settings.get("decoder_start_token_id"),
        "end": settings.get("eos_token_id"),
        "unknown": vocabulary[unknown],
    }
    for name, token in special.items():
        if type(token) is not int:
            raise ForeignFileError(f"{folder / CONFIG} names no single id for {name}: {token!r}")
    files[SPECIAL] = (json.dumps(special) + "\n").encode()
    try:
        tokenizer = MarianTokenizer(files)
    except PellucidError as error:
        raise ForeignFileError(f"{folder}: {error}") from None
    named = (own.get("source_lang"), own.get("target_lang"))
    source, target = (name if isinstance(name, str) and name else None for name in named)
    return tokenizer, (source, target)


def obstacle(config: ModelConfig) -> str | None:
    """Return why Hugging Face's Marian cannot express a model of this shape; None if it can."""
    wanted: list[tuple[str, object]] = [
        ("norm", "post"),
        ("norm_type", "layer"),
        ("norm_epsilon", 1e-5),
        ("position_encoding", "sinusoidal"),
        ("position_base", 10000.0),
        ("qk_norm", "none"),
        ("embedding_norm", False),
    ]
    for name, value in wanted:
        if getattr(config, name) != value:
            return f"{name} is {getattr(config, name)!r}, and Marian's is {value!r}"
    if config.activation not in ACTIVATIONS:
        return f"activation is {config.activation!r}, and Marian's is one of {list(ACTIVATIONS)}"
    if config.num_kv_heads not in (None, config.num_heads):
        return "num_kv_heads is set, and Marian has as many as num_heads"
    return None


def settings_for(config: ModelConfig, special: Mapping[str, int]) -> dict[str, Any]:
    """Return their config.json for our config."""
    shared = config.tie_embeddings == "all"
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": config.source_vocab_size or config.vocab_size,
        "decoder_vocab_size": config.vocab_size,
        "share_encoder_decoder_embeddings": shared,
        "tie_word_embeddings": config.tie_embeddings != "none",
        "d_model": config.d_model,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "encoder_attention_heads": config.num_heads,
        "decoder_attention_heads": config.num_heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "activation_function": ACTIVATIONS[config.activation],
        "scale_embedding": config.scale_embedding,
        "static_position_embeddings": True,
        "max_position_embeddings": config.max_length,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "pad_token_id": special["pad"],
        "decoder_start_token_id": special["start"],
        "eos_token_id": special["end"],
        "bos_token_id": None,
        "forced_eos_token_id": special["end"],
        "torch_dtype": "float32",
    }
