"""What a tokenizer can do for a model, whoever made it.

There are two: `Tokenizer`, our own, with one vocabulary for all languages; and `MarianTokenizer`,
that of imported models, with a SentencePiece model for each side.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

Side = Literal["source", "target"]
"""Which side of a translation a text or an id is on; with one vocabulary it is all the same."""


class Subwords(Protocol):
    """Text to token ids and back."""

    @property
    def pad_id(self) -> int:
        """Fills up shorter sentences."""
        ...

    @property
    def unk_id(self) -> int:
        """Stands for what has no piece."""
        ...

    @property
    def bos_id(self) -> int:
        """What the decoder reads first."""
        ...

    @property
    def eos_id(self) -> int:
        """What ends a sequence, on both sides."""
        ...

    @property
    def vocab_size(self) -> int:
        """Number of ids on the target side, special ones included."""
        ...

    @property
    def source_vocab_size(self) -> int:
        """The same for the source side."""
        ...

    @property
    def lead(self) -> int:
        """How many ids stand before the words in a source sequence: one for the tag, or none."""
        ...

    @property
    def sha256(self) -> str:
        """Two tokenizers with the same hash do the same."""
        ...

    def files(self) -> Mapping[str, bytes]:
        """The files it is made of, by name; `open_subwords` reads them back."""
        ...

    def tag_ids(self, language: str) -> list[int]:
        """What stands first in a source sequence to name the target language: an id, or nothing."""
        ...

    def piece(self, token: int, side: Side = "target") -> str:
        """One piece as SentencePiece writes it; a space is U+2581."""
        ...

    def vocabulary(self, side: Side = "target") -> Sequence[str]:
        """All pieces of a side, in the order of their ids."""
        ...

    def encode(
        self, text: str, *, target_language: str | None = None, side: Side = "source"
    ) -> list[int]:
        """The ids of a text on one side: its pieces alone.

        With `target_language`, the whole source sequence as a model reads it, tag and end included.
        """
        ...

    def encode_batch(
        self,
        texts: Sequence[str],
        *,
        target_language: str | None = None,
        side: Side = "source",
        threads: int = 1,
    ) -> list[list[int]]:
        """`encode` for many texts at once, in order."""
        ...

    def decode(self, ids: Sequence[int], side: Side = "target") -> str:
        """The text of some ids; special ids are left out."""
        ...

    def decode_batch(self, batch: Sequence[Sequence[int]], side: Side = "target") -> list[str]:
        """`decode` for many sequences at once, in order."""
        ...

    def sample(self, text: str, seed: int, strength: float) -> list[int]:
        """Ids of one random segmentation of a text, where the tokenizer can do that."""
        ...


def open_subwords(folder: Path, names: Collection[str]) -> Subwords:
    """The tokenizer among these files of a folder, of whichever kind it is."""
    from pellucid.tokenizers.marian import SPECIAL, MarianTokenizer
    from pellucid.tokenizers.sentencepiece import FILE, Tokenizer

    if SPECIAL in names:
        return MarianTokenizer.load(folder, names)
    return Tokenizer.load(folder / FILE)
