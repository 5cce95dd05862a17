"""Tensors of a trace that are derived from those that the model records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pellucid.model import Transformer
from pellucid.model.positions import wave_angles


def derived(model: Transformer, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return further tensors of a trace, by name.

    `encoder.growth` and `decoder.growth`, (sub-layers, T, 4): the L2 norms of a token's vector
    before a sub-layer, of what the sub-layer adds and of the vector after it, and the cosine
    similarity of the first two. `….output_bias` (D): the bias of W_O, if there is one.
    `rotary.angles` (T, K / 2): the angle by which each pair of dimensions is rotated at each
    position.
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
        angles = wave_angles(longest, config.head_dim, config.rope_theta)
        found["rotary.angles"] = angles.float().numpy()
    return found


def log_probabilities(logits: np.ndarray, answers: Sequence[int]) -> np.ndarray:
    """Return the log-probability of the predicted token at each position, (T)."""
    exact = logits.astype(np.float64)
    largest = exact.max(axis=-1, keepdims=True)
    total = largest[:, 0] + np.log(np.exp(exact - largest).sum(axis=-1))  # log-sum-exp
    found: np.ndarray = exact[np.arange(len(answers)), list(answers)] - total
    return found.astype(np.float32)


def sublayers(stack: str, layers: int) -> list[str]:
    """Return the names of a stack's sub-layers in the order of computation."""
    inside = ["self", "feed_forward"] if stack == "encoder" else ["self", "cross", "feed_forward"]
    return [f"{stack}.{number}.{part}" for number in range(layers) for part in inside]


def _growth(tensors: Mapping[str, np.ndarray], part: str) -> np.ndarray:
    before, added, after = (
        tensors[f"{part}.residual_{name}"].astype(np.float64)
        for name in ("before", "added", "after")
    )
    norms = [np.linalg.norm(x, axis=-1) for x in (before, added, after)]
    cosine = (before * added).sum(-1) / np.maximum(norms[0] * norms[1], 1e-30)
    return np.stack([*norms, cosine], axis=-1).astype(np.float32)


def _output_bias(model: Transformer, part: str) -> np.ndarray | None:
    stack, number, name = part.split(".")
    if name == "feed_forward":
        return None
    bias = attention_of(model, stack, int(number), cross=name == "cross").out.bias
    return None if bias is None else bias.detach().float().numpy().copy()


def attention_of(model: Transformer, stack: str, number: int, *, cross: bool) -> Any:
    """Return a layer's attention module: self-attention or, in the decoder, cross-attention."""
    layer: Any = getattr(model, stack).layers[number]
    return layer.cross if cross else layer.attention
