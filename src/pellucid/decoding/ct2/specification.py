"""Conversion of a model to CTranslate2: its model specification, filled with our weights.

Plain numpy, so that a model can be exported where PyTorch is not installed. CTranslate2 is built
for the same family of models; `obstacle` names what it cannot express.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.config import ModelConfig
from pellucid.decoding.ct2.engine import LONGEST
from pellucid.decoding.engine import SpecialIds
from pellucid.errors import InputError
from pellucid.storage.folder import atomic_folder

Weights = Mapping[str, np.ndarray]

_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH"}
_ACTIVATIONS |= {"geglu": "GELU", "geglu_tanh": "GELUTanh", "swiglu": "SWISH"}


def obstacle(config: ModelConfig) -> str | None:
    """Return why CTranslate2 cannot run a model of this shape, or None if it can."""
    if config.activation not in _ACTIVATIONS:
        return f"CTranslate2 has no activation = {config.activation!r}"
    if config.qk_norm == "all":
        return "CTranslate2 normalises cross-attention queries over all heads at once (qk_norm)"
    if not config.encoder_layers or not config.decoder_layers:
        return "CTranslate2 needs at least one layer on each side"
    return None


def export(
    config: ModelConfig,
    weights: Weights,
    folder: Path,
    *,
    pieces: Sequence[str],
    special: SpecialIds,
    unknown: int,
    source_pieces: Sequence[str] | None = None,
    quantization: str | None = "int8",
    alignment: tuple[int, int | None] = (-1, None),
) -> None:
    """Write a folder that `ctranslate2.Translator` loads; whole or not at all.

    weights: a model's state dict as numpy arrays. pieces: the vocabulary in the order of its ids.
    quantization: storage type of the matrices, None for float32. alignment: decoder layer and head
    whose cross-attention CTranslate2 can return; head None is the mean of the layer's heads.
    """
    reason = obstacle(config)
    if reason is not None:
        raise InputError(f"{reason}: run this model with the torch engine")
    spec = _spec(config, alignment)
    weights = _with_head_first(config, weights, *alignment)
    _fill_encoder(spec.encoder, config, weights)
    _fill_decoder(spec.decoder, config, weights)
    spec.register_source_vocabulary(list(source_pieces or pieces))
    spec.register_target_vocabulary(list(pieces))
    spec.config.bos_token = spec.config.decoder_start_token = pieces[special.start]
    spec.config.eos_token = pieces[special.end]
    spec.config.unk_token = pieces[unknown]
    spec.config.add_source_bos = spec.config.add_source_eos = False
    spec.config.layer_norm_epsilon = config.norm_epsilon
    spec.validate()
    spec.optimize(quantization=quantization)
    with atomic_folder(folder) as draft:
        spec.save(str(draft.path))


def _spec(config: ModelConfig, alignment: tuple[int, int | None]) -> Any:
    from ctranslate2.specs import common_spec, transformer_spec  # type: ignore[import-untyped]

    gated = config.activation in ("geglu", "geglu_tanh", "swiglu")
    rotary = config.position_encoding == "rotary"
    shape: dict[str, Any] = {
        "num_heads": config.num_heads,
        "pre_norm": config.norm != "post",
        "pre_post_layer_norm": config.norm == "sandwich",
        "activation": common_spec.Activation[_ACTIVATIONS[config.activation]],
        "layernorm_embedding": config.embedding_norm,
        "ffn_glu": gated,
        "rms_norm": config.norm_type == "rms",
        "num_heads_kv": config.num_kv_heads or config.num_heads,
        "rotary_dim": 0 if rotary else None,
        "rotary_interleave": config.position_layout == "interleaved",
        "rotary_base": config.rope_theta,
        "qk_norm": config.qk_norm == "self",
    }
    encoder = transformer_spec.TransformerEncoderSpec(config.encoder_layers, **shape)
    decoder = transformer_spec.TransformerDecoderSpec(
        config.decoder_layers,
        alignment_layer=alignment[0],
        alignment_heads=config.num_heads if alignment[1] is None else 1,
        external_pre_post_encoder_layers=config.norm == "sandwich",
        **shape,
    )
    encoder.scale_embeddings = decoder.scale_embeddings = config.scale_embedding
    return transformer_spec.TransformerSpec(encoder, decoder)


def _with_head_first(
    config: ModelConfig, weights: Weights, layer: int, head: int | None
) -> Weights:
    """Return the weights with one head of a layer's cross-attention first, as CTranslate2 expects.

    The order of heads makes no difference to the output, as long as a group of query heads stays
    with its keys and values (grouped-query attention).
    """
    if head is None:
        return weights
    K, H, G = config.head_dim, config.num_heads, config.num_kv_heads or config.num_heads
    queries = np.arange(H).reshape(G, H // G)
    group = head // (H // G)
    groups = np.array([group, *(g for g in range(G) if g != group)])
    queries[group] = [head, *(q for q in queries[group] if q != head)]

    def rows(order: np.ndarray, start: int) -> np.ndarray:
        return (start + order.reshape(-1, 1) * K + np.arange(K)).reshape(-1)

    out = rows(queries[groups], 0)
    order = np.concatenate([out, rows(groups, H * K), rows(groups, (H + G) * K)])
    name = f"decoder.layers.{layer % config.decoder_layers}.cross"
    changed = dict(weights)
    changed[f"{name}.in_weight"] = weights[f"{name}.in_weight"][order]
    if f"{name}.in_bias" in weights:
        changed[f"{name}.in_bias"] = weights[f"{name}.in_bias"][order]
    changed[f"{name}.out.weight"] = weights[f"{name}.out.weight"][:, out]
    return changed


def _fill_encoder(spec: Any, config: ModelConfig, weights: Weights) -> None:
    _fill_embedding(spec, spec.embeddings[0], config, weights, "source_embedding")
    for number, layer in enumerate(spec.layer):
        _fill_layer(layer, config, weights, f"encoder.layers.{number}")
    if config.norm != "post":
        _fill_norm(spec.layer_norm, weights, "encoder.norm")


def _fill_decoder(spec: Any, config: ModelConfig, weights: Weights) -> None:
    _fill_embedding(spec, spec.embeddings, config, weights, "target_embedding")
    for number, layer in enumerate(spec.layer):
        _fill_layer(layer, config, weights, f"decoder.layers.{number}")
    if config.norm != "post":
        _fill_norm(spec.layer_norm, weights, "decoder.norm")
    _fill_linear(spec.projection, weights, "output")


def _fill_embedding(
    spec: Any, tokens: Any, config: ModelConfig, weights: Weights, name: str
) -> None:
    tokens.weight = _float(weights[f"{name}.tokens.weight"])
    if config.embedding_norm:
        _fill_norm(spec.layernorm_embedding, weights, f"{name}.norm")
    if config.position_encoding == "rotary":
        if hasattr(spec, "position_encodings"):  # the encoder's specification always has them
            delattr(spec, "position_encodings")
    elif config.position_encoding == "learned":
        spec.position_encodings.encodings = _float(weights[f"{name}.positions.weight"])
    elif config.position_encoding == "none":
        spec.position_encodings.encodings = np.zeros((LONGEST, config.d_model), np.float32)
    else:
        spec.position_encodings.encodings = _sinusoidal(config)


def _sinusoidal(config: ModelConfig) -> np.ndarray:
    """Return `model.positions.sinusoidal_table` without PyTorch; a test compares them."""
    waves = config.position_base ** (
        np.arange(0, config.d_model, 2, dtype=np.float64) / config.d_model
    )
    angles = np.arange(LONGEST, dtype=np.float64)[:, None] / waves
    if config.position_layout == "halves":
        table = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
    else:
        table = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(LONGEST, -1)
    return table.astype(np.float32)


def _fill_layer(spec: Any, config: ModelConfig, weights: Weights, name: str) -> None:
    _fill_attention(spec.self_attention, config, weights, f"{name}.attention", cross=False)
    cross = f"{name}.cross.in_weight" in weights
    if cross:
        _fill_attention(spec.attention, config, weights, f"{name}.cross", cross=True)
    _fill_feed_forward(spec.ffn, weights, f"{name}.feed_forward")
    if config.norm == "sandwich":
        own, feed = f"{name}.attention_add_norm", f"{name}.feed_forward_add_norm"
        _fill_norm(spec.input_layer_norm, weights, f"{own}.norm_before")
        _fill_norm(spec.post_attention_layer_norm, weights, f"{own}.norm_inside")
        _fill_norm(spec.pre_feedforward_layer_norm, weights, f"{feed}.norm_before")
        _fill_norm(spec.post_feedforward_layer_norm, weights, f"{feed}.norm_inside")
        if cross:
            source = f"{name}.cross_add_norm"
            before, after = (
                spec.external_pre_encoder_attention_layer_norm,
                spec.external_post_encoder_attention_layer_norm,
            )
            _fill_norm(before, weights, f"{source}.norm_before")
            _fill_norm(after, weights, f"{source}.norm_inside")
        return
    norm = "norm_after" if config.norm == "post" else "norm_before"
    _fill_norm(spec.self_attention.layer_norm, weights, f"{name}.attention_add_norm.{norm}")
    _fill_norm(spec.ffn.layer_norm, weights, f"{name}.feed_forward_add_norm.{norm}")
    if cross:
        _fill_norm(spec.attention.layer_norm, weights, f"{name}.cross_add_norm.{norm}")


def _fill_attention(
    spec: Any, config: ModelConfig, weights: Weights, name: str, *, cross: bool
) -> None:
    matrix = _float(weights[f"{name}.in_weight"])
    bias = weights.get(f"{name}.in_bias")
    if cross:  # queries from the decoder, keys and values from the encoder: two matrices
        parts: list[slice] = [slice(config.d_model), slice(config.d_model, None)]
    else:
        parts = [slice(None)]
    for linear, rows in zip(spec.linear, parts, strict=False):
        linear.weight = np.ascontiguousarray(matrix[rows])
        if bias is not None:
            linear.bias = _float(bias)[rows].copy()
    _fill_linear(spec.linear[-1], weights, f"{name}.out")
    if cross and hasattr(spec, "q_norm"):
        del spec.q_norm, spec.k_norm
    elif config.qk_norm == "self":
        _fill_norm(spec.q_norm, weights, f"{name}.query_norm")
        _fill_norm(spec.k_norm, weights, f"{name}.key_norm")


def _fill_feed_forward(spec: Any, weights: Weights, name: str) -> None:
    matrix, bias = _float(weights[f"{name}.inner.weight"]), weights.get(f"{name}.inner.bias")
    inner = [spec.linear_0]
    if hasattr(spec, "linear_0_noact"):  # gated: the activated half, then the gate
        inner.append(spec.linear_0_noact)
    for linear, rows in zip(inner, np.split(matrix, len(inner)), strict=True):
        linear.weight = np.ascontiguousarray(rows)
    if bias is not None:
        for linear, part in zip(inner, np.split(_float(bias), len(inner)), strict=True):
            linear.bias = part.copy()
    _fill_linear(spec.linear_1, weights, f"{name}.outer")


def _fill_linear(spec: Any, weights: Weights, name: str) -> None:
    spec.weight = _float(weights[f"{name}.weight"])
    if f"{name}.bias" in weights:
        spec.bias = _float(weights[f"{name}.bias"])


def _fill_norm(spec: Any, weights: Weights, name: str) -> None:
    spec.gamma = _float(weights[f"{name}.weight"])
    if hasattr(spec, "beta"):
        spec.beta = _float(weights[f"{name}.bias"])


def _float(array: np.ndarray) -> np.ndarray:
    """Return a float32 copy: CTranslate2 quantizes in place, and the caller's weights must stay."""
    return np.array(array, dtype=np.float32, order="C")
