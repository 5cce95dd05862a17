"""What may be asked of the server, with its limits."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

LONGEST_TEXT = 20_000
"""Characters of a text to translate."""

LONGEST_LOOK = 1_000
"""Characters of a sentence to look inside of."""

Code = Annotated[str, Field(min_length=2, max_length=24)]
TokenIds = Annotated[list[int], Field(max_length=256)]


class Asked(BaseModel):
    """A body that refuses what it does not know."""

    model_config = ConfigDict(extra="forbid")


class TranslateAsked(Asked):
    """A text to translate."""

    q: Annotated[str, Field(max_length=LONGEST_TEXT)]
    source: Code
    target: Code
    beam: Annotated[int, Field(ge=1, le=16)] = 4
    details: bool = False
    """Whether to tell of each sentence its tokens, probabilities and alignment."""


class SentenceAsked(Asked):
    """One sentence, and how wide to search."""

    q: Annotated[str, Field(max_length=LONGEST_LOOK)]
    source: Code
    target: Code
    beam: Annotated[int, Field(ge=1, le=16)] = 4


class AlternativesAsked(SentenceAsked):
    """What else could stand at a token of the translation of one sentence."""

    position: Annotated[int, Field(ge=0, le=1000)]
    begin: TokenIds = []
    """Token ids that the translation begins with, as an alternative that was taken gave them."""
    count: Annotated[int, Field(ge=1, le=20)] = 6


class HeadOffAsked(Asked):
    """A head to switch off."""

    kind: Literal["encoder", "decoder", "cross"]
    layer: Annotated[int, Field(ge=0, le=1000)]
    head: Annotated[int, Field(ge=0, le=1000)]


class TraceAsked(SentenceAsked):
    """A sentence to look inside of."""

    sample: bool = False
    temperature: Annotated[float, Field(gt=0, le=10)] = 1.0
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    prefix: TokenIds = []
    """Token ids that the output has to begin with."""
    without: TokenIds = []
    """Positions of source tokens to take out."""
    off: Annotated[list[HeadOffAsked], Field(max_length=256)] = []


class MasksAsked(Asked):
    """Sentences to read as one batch."""

    q: Annotated[
        list[Annotated[str, Field(max_length=LONGEST_LOOK)]], Field(min_length=1, max_length=4)
    ]
    source: Code
    target: Code
