"""Marian's weights: from Hugging Face's names to ours, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pellucid.config import ModelConfig, PositionLayout
from pellucid.exchange.foreign import ForeignFileError

if TYPE_CHECKING:
    from torch import Tensor

_POSITIONS = "embed_positions.weight"


def weight_names(config: ModelConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each weight of the layers: our name, and their names, which ours concatenates."""
    for side, count in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for number in range(count):
            ours, theirs = f"{side}.layers.{number}", f"model.{side}.layers.{number}"
            attentions = [("attention", "self_attn")]
            if side == "decoder":
                attentions.append(("cross", "encoder_attn"))
            single = [
                ("feed_forward.inner", "fc1"),
                ("feed_forward.outer", "fc2"),
                ("feed_forward_add_norm.norm_after", "final_layer_norm"),
            ]
            for mine, other in attentions:
                for kind in ("weight", "bias"):
                    parts = tuple(f"{theirs}.{other}.{p}_proj.{kind}" for p in "qkv")
                    yield f"{ours}.{mine}.in_{kind}", parts
                single.append((f"{mine}.out", f"{other}.out_proj"))
                single.append((f"{mine}_add_norm.norm_after", f"{other}_layer_norm"))
            for mine, other in single:
                for kind in ("weight", "bias"):
                    yield f"{ours}.{mine}.{kind}", (f"{theirs}.{other}.{kind}",)


def _embedding_names(config: ModelConfig) -> dict[str, tuple[str, ...]]:
    """Return our embedding and output matrices, and the names of each; tied ones have several."""
    source, target = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
    output, shared = "lm_head.weight", "model.shared.weight"
    first = "target_embedding.tokens.weight"
    if config.tie_embeddings == "all":
        return {first: (shared, source, target, output)}
    names = {"source_embedding.tokens.weight": (source,)}
    if config.tie_embeddings == "decoder":
        return {**names, first: (target, output)}
    return {**names, first: (target,), "output.weight": (output,)}


def from_hugging_face(
    config: ModelConfig, theirs: Mapping[str, Tensor], where: Path
) -> dict[str, Tensor]:
    """Convert their weights to ours; every one of theirs must be known."""
    import torch

    rest = dict(theirs)

    def take(name: str) -> Tensor:
        if name not in rest:
            raise ForeignFileError(f"{where} lacks {name!r}: it does not belong to its config")
        return rest.pop(name)

    def joined(parts: list[Tensor], names: tuple[str, ...]) -> Tensor:
        if any(part.shape != parts[0].shape for part in parts):
            raise ForeignFileError(f"{where}: {names[0]!r} and its like differ in shape")
        return parts[0].contiguous() if len(parts) == 1 else torch.cat(parts)

    weights = {}
    for ours, names in weight_names(config):
        weights[ours] = joined([take(name) for name in names], names)
    for ours, names in _embedding_names(config).items():
        have = [name for name in names if name in rest]
        matrices = [take(name) for name in (have or names[:1])]
        if not all(torch.equal(matrix, matrices[0]) for matrix in matrices):
            raise ForeignFileError(f"{where}: {', '.join(have)} are tied but differ: refused")
        weights[ours] = matrices[0].contiguous()
    bias = rest.pop("final_logits_bias", torch.zeros(1, config.vocab_size))
    weights["output.bias"] = bias.reshape(-1)
    for name in [name for name in rest if name.endswith(_POSITIONS)]:
        _check_positions(config, rest.pop(name), f"{where}: {name!r}")
    if rest:
        raise ForeignFileError(f"{where} has {min(rest)!r}, which is no part of Marian: refused")
    return weights


def _check_positions(config: ModelConfig, table: Tensor, what: str) -> None:
    """Check stored position encodings: they are computed here, and must be the same."""
    import torch

    from pellucid.model.positions import sinusoidal_table

    if table.ndim == 2 and table.shape[1] == config.d_model:
        computed = sinusoidal_table(len(table), config.d_model, layout="halves")
        if torch.allclose(table, computed, atol=1e-3):  # they may be stored as float16
            return
    raise ForeignFileError(f"{what} are not sinusoidal positions in halves: refused")


def to_hugging_face(config: ModelConfig, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert our weights to theirs, for a shape without `obstacle`; missing biases are 0."""
    import torch

    weights = _with_halves(weights, config.position_layout)
    theirs: dict[str, Tensor] = {}
    for ours, names in weight_names(config):
        if ours in weights:
            tensor = weights[ours]
        else:  # a bias that the model does not have
            size = weights[ours.replace("bias", "weight")].shape[0]
            tensor = torch.zeros(size)
        for name, part in zip(names, tensor.chunk(len(names)), strict=True):
            theirs[name] = part.clone()
    for ours, names in _embedding_names(config).items():
        theirs[names[0]] = weights[ours].clone()
    bias = weights.get("output.bias", torch.zeros(config.vocab_size))
    theirs["final_logits_bias"] = bias.reshape(1, -1).clone()
    return theirs


def _with_halves(weights: Mapping[str, Tensor], layout: PositionLayout) -> Mapping[str, Tensor]:
    """Reorder the model dimensions from interleaved sines and cosines to two halves.

    Both layouts have the same numbers. Whatever reads or writes the residual stream, D numbers for
    each token, has its columns or rows permuted alike, so the model computes the same.
    """
    import torch

    if layout == "halves":
        return weights
    d_model = weights["target_embedding.tokens.weight"].shape[1]
    order = torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])
    reads = ("tokens.weight", "in_weight", "inner.weight", "output.weight")
    writes = ("out.weight", "out.bias", "outer.weight", "outer.bias")
    permuted = {}
    for name, tensor in weights.items():
        if name.endswith(reads):
            permuted[name] = tensor[:, order]
        elif name.endswith(writes) or "_add_norm." in name:
            permuted[name] = tensor[order]
        else:
            permuted[name] = tensor
    return permuted
