"""The masks of a batch: where padding is, and how it and later positions are masked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pellucid.decoding.engine import SpecialIds
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.torch.engine import run
from pellucid.decoding.torch.predictor import padded
from pellucid.errors import InputError
from pellucid.inspection.trace import Token
from pellucid.inspection.tracing import MAX_LENGTH, tokens_of
from pellucid.model import TensorTrace, Transformer
from pellucid.model.masks import causal_mask, padding_mask, target_padding_mask
from pellucid.tokenizers.base import Subwords

MAX_SENTENCES = 4


@dataclass(frozen=True)
class Masks:
    """A batch of B sentences and its masks, which are True where attention is allowed."""

    source: tuple[tuple[Token, ...], ...]
    """(B, S): what the encoder reads, shorter sentences padded."""
    target: tuple[tuple[Token, ...], ...]
    """(B, T): what the decoder reads."""
    source_padding: np.ndarray
    """(B, S): True at source tokens, False at padding."""
    target_padding: np.ndarray
    """(B, T): True at target tokens, False at padding."""
    causal: np.ndarray
    """(T, T): a token attends to itself and to those before it."""
    encoder: np.ndarray
    """(B, S, S), as the encoder's self-attention used it."""
    decoder: np.ndarray
    """(B, T, T), as the decoder's self-attention used it: causal and padding together."""
    cross: np.ndarray
    """(B, T, S), as the cross-attention used it."""
    difference: float
    """Largest difference of a logit between a sentence in the batch and the same sentence alone,
    without padding."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; masks as zeros and ones."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {
            name: value.astype(int).tolist() if isinstance(value, np.ndarray) else value
            for name, value in plain.items()
        }


def look_at_masks(
    model: Transformer,
    tokenizer: Subwords,
    special: SpecialIds,
    texts: Sequence[str],
    direction: str,
) -> Masks:
    """Translate sentences greedily, then run them as one teacher-forced batch, as in training."""
    if not 1 <= len(texts) <= MAX_SENTENCES:
        raise InputError(f"{len(texts)} sentences: a look at masks takes 1 to {MAX_SENTENCES}")
    language = direction.split("-")[1]
    sources = [tokenizer.encode(text, target_language=language) for text in texts]
    if max(map(len, sources)) > MAX_LENGTH:
        raise InputError(
            f"a sentence has {max(map(len, sources))} tokens, and a look inside holds at most "
            f"{MAX_LENGTH}: take shorter ones"
        )
    results = run(model, special, sources, DecodingOptions(beam_size=1, max_length=MAX_LENGTH))
    targets = [[special.start, *result.best.tokens] for result in results]
    cpu = torch.device("cpu")
    source, target = (padded(rows, special.pad, cpu) for rows in (sources, targets))
    recorded = TensorTrace(only=["*.0.*.mask", "logits"])
    with torch.inference_mode():
        model(source, target, trace=recorded)
        alone = [
            model(torch.tensor([s]), torch.tensor([t]))[0]
            for s, t in zip(sources, targets, strict=True)
        ]
    whole = recorded["logits"]
    (B, S), T = source.shape, target.shape[1]
    return Masks(
        source=tuple(tokens_of(tokenizer, row, "source") for row in source.tolist()),
        target=tuple(tokens_of(tokenizer, row) for row in target.tolist()),
        source_padding=padding_mask(source, special.pad)[:, 0, 0].numpy(),
        target_padding=target_padding_mask(target, special.pad)[:, 0, 0].numpy(),
        causal=causal_mask(T)[0, 0].numpy(),
        encoder=_spread(recorded["encoder.0.self.mask"], B, S, S),
        decoder=_spread(recorded["decoder.0.self.mask"], B, T, T),
        cross=_spread(recorded["decoder.0.cross.mask"], B, T, S),
        difference=max(
            float((whole[row, : len(one)] - one).abs().max()) for row, one in enumerate(alone)
        ),
    )


def _spread(mask: Tensor, batch: int, queries: int, keys: int) -> np.ndarray:
    """Return a mask of the model, (B or 1, 1, queries or 1, keys), expanded to every query."""
    spread: np.ndarray = mask[:, 0].expand(batch, queries, keys).numpy()
    return spread
