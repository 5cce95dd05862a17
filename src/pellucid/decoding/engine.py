"""What a translation engine can do, whatever it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.steps import Result
from pellucid.tokenizers.base import Subwords


class SpecialIds(NamedTuple):
    """The token ids with a meaning of their own."""

    pad: int
    """Fills up shorter sentences."""
    start: int
    """What the decoder reads first (Marian's models take the pad id)."""
    end: int
    """What the decoder writes last."""


def special_ids(tokenizer: Subwords) -> SpecialIds:
    """The special ids of a tokenizer."""
    return SpecialIds(tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id)


class Engine(Protocol):
    """Token ids to token ids."""

    @property
    def special(self) -> SpecialIds:
        """The ids with a meaning of their own."""
        ...

    def translate_ids(
        self,
        sources: Sequence[Sequence[int]],
        options: DecodingOptions,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[Result]:
        """One result for each source, in order.

        sources: token ids as the encoder reads them, an end symbol included where the model was
        trained with one. prefixes: tokens that each output must begin with; they may differ in
        length, and an empty one forces nothing.
        """
        ...

    def next_tokens(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        count: int,
    ) -> list[list[tuple[int, float]]]:
        """The `count` most probable tokens after each prefix, with their log-probabilities."""
        ...
