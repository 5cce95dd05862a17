"""The ct2/ folder of a bundle: written once, so that translating needs no PyTorch."""

from __future__ import annotations

from pathlib import Path

from pellucid.bundle import CT2, Bundle
from pellucid.decoding.ct2_export import export, obstacle
from pellucid.decoding.engine import SpecialIds
from pellucid.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID

SPECIAL = SpecialIds(pad=PAD_ID, start=BOS_ID, end=EOS_ID)
"""The special ids of every bundle."""


def add_ct2(bundle: Bundle, quantization: str | None = "int8") -> Bundle:
    """The bundle with ct2/ in it, or as it is if CTranslate2 cannot run a model of this shape.

    quantization: int8 by default (a quarter of the size, and fast on a CPU); None for float32.
    """
    if obstacle(bundle.config) is not None:
        return bundle
    pieces = [piece.piece for piece in bundle.tokenizer.pieces]

    def write(folder: Path) -> None:
        export(
            bundle.config,
            bundle.weights(),
            folder,
            pieces=pieces,
            special=SPECIAL,
            unknown=UNK_ID,
            quantization=quantization,
            alignment=bundle.settings.alignment,
        )

    return bundle.with_folder(CT2, write)
