"""The ct2/ folder of a bundle: written once, so that translating needs no PyTorch."""

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
"""The special ids of bundles with a tokenizer of our own kind."""


def why_not_ct2(config: ModelConfig) -> str | None:
    """Why ct2/ cannot be written here for a model of this shape, or None if it can."""
    if importlib.util.find_spec("ctranslate2") is None:
        return "CTranslate2 is not installed (pip install ctranslate2)"
    from pellucid.decoding.ct2.specification import obstacle

    return obstacle(config)


def add_ct2(bundle: Bundle, quantization: str | None = "int8") -> Bundle:
    """The bundle with ct2/ in it, or as it is if that cannot be written (see `why_not_ct2`).

    quantization: int8 by default (a quarter of the size, and fast on a CPU); None for float32.
    """
    if why_not_ct2(bundle.config) is not None:
        return bundle
    return bundle.with_folder(CT2, lambda folder: write_ct2(bundle, folder, quantization))


def write_ct2(bundle: Bundle, folder: Path, quantization: str | None = "int8") -> None:
    """A bundle's model as a folder that CTranslate2 loads; InputError if it cannot be expressed."""
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
        alignment=bundle.settings.attention_place,
    )


def vocabularies(tokenizer: Subwords) -> tuple[Sequence[str], Sequence[str]]:
    """The pieces of the target and of the source side, in the order of their ids."""
    return tokenizer.vocabulary("target"), tokenizer.vocabulary("source")
