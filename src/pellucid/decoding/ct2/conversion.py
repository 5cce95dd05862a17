"""The ct2/ folder of a bundle: the converted model, so that translating needs no PyTorch."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from pellucid.bundle import CT2, Bundle
from pellucid.config import ModelConfig
from pellucid.decoding.engine import SpecialIds, special_ids
from pellucid.tokenizers.base import Subwords
from pellucid.tokenizers.sentencepiece import BOS_ID, EOS_ID, PAD_ID

SPECIAL = SpecialIds(pad=PAD_ID, start=BOS_ID, end=EOS_ID)
"""Special ids of bundles whose tokenizer was trained by Pellucid."""


def why_not_ct2(config: ModelConfig) -> str | None:
    """Return why ct2/ cannot be written here for a model of this shape, or None if it can."""
    if importlib.util.find_spec("ctranslate2") is None:
        return "CTranslate2 is not installed (pip install ctranslate2)"
    from pellucid.decoding.ct2.specification import obstacle

    return obstacle(config)


def add_ct2(bundle: Bundle, quantization: str | None = "int8") -> Bundle:
    """Return the bundle with ct2/ added, or unchanged if it cannot be written (see `why_not_ct2`).

    quantization: int8 by default (a quarter of the size, and fast on a CPU); None for float32.
    """
    if why_not_ct2(bundle.config) is not None:
        return bundle
    return bundle.with_folder(CT2, lambda folder: write_ct2(bundle, folder, quantization))


def write_ct2(bundle: Bundle, folder: Path, quantization: str | None = "int8") -> None:
    """Write a bundle's model for CTranslate2; InputError if it cannot express the model."""
    pieces, source_pieces = vocabularies(bundle.tokenizer)
    from pellucid.decoding.ct2.specification import export

    export(
        bundle.config,
        bundle.weights(),
        folder,
        pieces=pieces,
        source_pieces=source_pieces,
        special=special_ids(bundle.tokenizer),
        unknown=bundle.tokenizer.unk_id,
        quantization=quantization,
        alignment=bundle.settings.alignment_head,
    )


def vocabularies(tokenizer: Subwords) -> tuple[Sequence[str], Sequence[str]]:
    """Return the pieces of the target and the source vocabulary, in the order of their ids."""
    return tokenizer.vocabulary("target"), tokenizer.vocabulary("source")
