"""The interface of a translation engine: token ids in, token ids out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.steps import Result
from pellucid.tokenizers.base import Subwords

if TYPE_CHECKING:
    from pellucid.model import Transformer


class SpecialIds(NamedTuple):
    """Ids of the special tokens."""

    pad: int
    """Padding: fills up the shorter sentences of a batch."""
    start: int
    """First token that the decoder reads (Marian's models take the pad id)."""
    end: int
    """Last token that the decoder writes."""


def special_ids(tokenizer: Subwords) -> SpecialIds:
    """Return the special ids of a tokenizer."""
    return SpecialIds(tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id)


class Engine(Protocol):
    """Runs a model: token ids to token ids."""

    @property
    def name(self) -> str:
        """What computes a plain translation: "ct2" or "torch"."""
        ...

    @property
    def device(self) -> str:
        """Where it computes: "cpu" or "cuda"."""
        ...

    @property
    def threads(self) -> int:
        """How many batches it decodes at the same time."""
        ...

    @property
    def special(self) -> SpecialIds:
        """Ids of the special tokens."""
        ...

    @property
    def model(self) -> Transformer | None:
        """The model in PyTorch, for looking inside; None if this engine cannot give it."""
        ...

    def translate_ids(
        self,
        sources: Sequence[Sequence[int]],
        options: DecodingOptions,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[Result]:
        """Return one result for each source, in order.

        sources: token ids as the encoder reads them, the end token included if the model was
        trained with one. prefixes: tokens that each output must begin with (prefix-constrained
        decoding); they may differ in length, and an empty one forces nothing.
        """
        ...

    def next_tokens(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        count: int,
    ) -> list[list[tuple[int, float]]]:
        """Return the `count` most probable tokens after each prefix and their log-probabilities."""
        ...
