"""What the panels need beside the tensors that the model itself records: all of it small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pellucid.model import Transformer
from pellucid.model.positions import wave_angles


def derived(model: Transformer, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Further tensors of a trace, by name.

    `encoder.growth` and `decoder.growth`, (sub-layers, T, 4): the length of a token's vector before
    a sub-layer, of what the sub-layer adds and of the vector after it, and the cosine of the first
    two. `….output_bias` (D): the bias of W_O, where there is one. `rotary.angles` (T, K / 2): by
    how much each pair of numbers is turned at each position.
    """
    config = model.config
    found: dict[str, np.ndarray] = {}
    for stack in ("encoder", "decoder"):
        parts = sublayers(stack, getattr(config, f"{stack}_layers"))
        if parts:
            found[f"{stack}.growth"] = np.stack([_growth(tensors, part) for part in parts])
        for part in parts:
            bias = _output_bias(model, part)
            if bias is not None:
                found[f"{part}.output_bias"] = bias
    if config.position_encoding == "rotary":
        longest = max(len(tensors["source.ids"]), len(tensors["target.ids"]))
        angles = wave_angles(longest, config.head_dim, config.position_base)
        found["rotary.angles"] = angles.float().numpy()
    return found


def log_probabilities(logits: np.ndarray, answers: Sequence[int]) -> np.ndarray:
    """The log-probability of the answer at each place, (T); of logits (T, V)."""
    exact = logits.astype(np.float64)
    highest = exact.max(axis=-1, keepdims=True)
    total = highest[:, 0] + np.log(np.exp(exact - highest).sum(axis=-1))
    found: np.ndarray = exact[np.arange(len(answers)), list(answers)] - total
    return found.astype(np.float32)


def sublayers(stack: str, layers: int) -> list[str]:
    """The names of a stack's sub-layers in the order in which they work."""
    inside = ["self", "feed_forward"] if stack == "encoder" else ["self", "cross", "feed_forward"]
    return [f"{stack}.{number}.{part}" for number in range(layers) for part in inside]


def _growth(tensors: Mapping[str, np.ndarray], part: str) -> np.ndarray:
    before, added, after = (
        tensors[f"{part}.residual_{name}"].astype(np.float64)
        for name in ("before", "added", "after")
    )
    lengths = [np.linalg.norm(x, axis=-1) for x in (before, added, after)]
    cosine = (before * added).sum(-1) / np.maximum(lengths[0] * lengths[1], 1e-30)
    return np.stack([*lengths, cosine], axis=-1).astype(np.float32)


def _output_bias(model: Transformer, part: str) -> np.ndarray | None:
    stack, number, name = part.split(".")
    if name == "feed_forward":
        return None
    bias = attention_of(model, stack, int(number), cross=name == "cross").out.bias
    return None if bias is None else bias.detach().float().numpy().copy()


def attention_of(model: Transformer, stack: str, number: int, *, cross: bool) -> Any:
    """The attention of a layer: its self-attention or, in the decoder, its cross-attention."""
    layer: Any = getattr(model, stack).layers[number]
    return layer.cross if cross else layer.attention
