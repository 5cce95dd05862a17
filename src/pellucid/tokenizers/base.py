"""The interface of tokenizers.

There are two: `Tokenizer`, with one vocabulary for all languages, and `MarianTokenizer`, that of
imported models, with a SentencePiece model for each side.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

Side = Literal["source", "target"]
"""The side of a translation; with a shared vocabulary it makes no difference."""


class Subwords(Protocol):
    """A subword tokenizer: text to token ids and back."""

    @property
    def pad_id(self) -> int:
        """Padding token."""
        ...

    @property
    def unk_id(self) -> int:
        """Unknown token: replaces what has no piece."""
        ...

    @property
    def bos_id(self) -> int:
        """Start token, the first input of the decoder."""
        ...

    @property
    def eos_id(self) -> int:
        """End token of a sequence, on both sides."""
        ...

    @property
    def vocab_size(self) -> int:
        """Number of ids on the target side, including special tokens."""
        ...

    @property
    def source_vocab_size(self) -> int:
        """Number of ids on the source side."""
        ...

    @property
    def lead(self) -> int:
        """Number of ids before the words in a source sequence: one if there is a tag, else none."""
        ...

    @property
    def sha256(self) -> str:
        """Hash of the tokenizer: with the same hash, the result is the same."""
        ...

    def files(self) -> Mapping[str, bytes]:
        """Return the files of the tokenizer, by name; `open_subwords` reads them."""
        ...

    def tag_ids(self, language: str) -> list[int]:
        """Return the tag that names the target language before the source: one id, or none."""
        ...

    def piece(self, token: int, side: Side = "target") -> str:
        """Return a piece as SentencePiece writes it; a space is U+2581."""
        ...

    def vocabulary(self, side: Side = "target") -> Sequence[str]:
        """Return all pieces of a side, in the order of their ids."""
        ...

    def encode(
        self, text: str, *, target_language: str | None = None, side: Side = "source"
    ) -> list[int]:
        """Return the ids of a text on one side, without special tokens.

        With `target_language`, return the whole source sequence, with the tag and the end token.
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
        """Encode many texts at once, in order."""
        ...

    def decode(self, ids: Sequence[int], side: Side = "target") -> str:
        """Return the text of some ids; special tokens are skipped."""
        ...

    def decode_batch(self, batch: Sequence[Sequence[int]], side: Side = "target") -> list[str]:
        """Decode many sequences at once, in order."""
        ...

    def sample(self, text: str, seed: int, strength: float) -> list[int]:
        """Return the ids of a random segmentation of a text, if the tokenizer can sample."""
        ...


def open_subwords(folder: Path, names: Collection[str]) -> Subwords:
    """Open the tokenizer among these files of a folder, of either kind."""
    from pellucid.tokenizers.marian import SPECIAL, MarianTokenizer
    from pellucid.tokenizers.sentencepiece import FILE, Tokenizer

    if SPECIAL in names:
        return MarianTokenizer.load(folder, names)
    return Tokenizer.load(folder / FILE)
