"""What may be asked of the server, with its limits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

LONGEST_LOOK = 1_000
"""Characters of a sentence to look inside of."""

Code = Annotated[str, Field(min_length=2, max_length=24)]
TokenIds = Annotated[list[Annotated[int, Field(ge=0, le=10_000_000)]], Field(max_length=256)]


class Asked(BaseModel):
    """A body that refuses what it does not know."""

    model_config = ConfigDict(extra="forbid")


class Keyed(BaseModel):
    """A body as LibreTranslate's clients send it: what it does not know is passed over."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)

    api_key: Annotated[str, Field(max_length=200)] = ""
    """The key, if the server wants one; a header can carry it as well."""


class DetectAsked(Keyed):
    """A text whose language is asked for."""

    q: str | list[str]


class TranslateAsked(Keyed):
    """Texts to translate. The first five fields are LibreTranslate's, the others our own."""

    q: str | list[str]
    """A text, or several."""
    source: Code = "auto"
    """The language it is in; "auto" finds out."""
    target: Code
    """The language it is wanted in."""
    format: Literal["text", "html"] = "text"
    """With html, tags stay as they are and what stands between them is translated."""
    alternatives: Annotated[int, Field(ge=0)] = 0
    """How many other translations to give."""
    beam_size: Annotated[int, Field(ge=1)] = 4
    """How wide to search."""
    prefix: Annotated[str, Field(max_length=500)] | None = None
    """What the translation has to begin with."""
    model: Annotated[str, Field(max_length=100)] | None = None
    """Which model, where several serve one direction."""
    details: bool = False
    """Whether to tell of each sentence its tokens, probabilities and alignment."""


class Answer(BaseModel):
    """What is answered."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Detection(Answer):
    """A language, and how sure it is."""

    language: str
    confidence: Annotated[float, Field(ge=0, le=100)]


class Translated(Answer):
    """Translations: one where `q` was a text, a list where it was a list."""

    translatedText: str | list[str]  # noqa: N815  as clients of LibreTranslate read it
    detectedLanguage: Detection | list[Detection] | None = None  # noqa: N815
    """Only where the source was "auto"."""
    alternatives: list[str] | list[list[str]] | None = None
    """Only where they were asked for."""
    score: float | list[float] | None = None
    """The mean log-probability of a token; only with details."""
    sentences: list[Any] | None = None
    """Only with details: for each sentence its tokens, probabilities, alignment and attention."""
    pivot: str | None = None
    """The language it went through, where no model goes straight."""


class TranslatedFile(Answer):
    """Where the translation of a file is, for a quarter of an hour."""

    translatedFileUrl: str  # noqa: N815


class LanguageServed(Answer):
    """A language, and where one gets from it."""

    code: str
    name: str
    targets: list[str]


class Refusal(Answer):
    """Why not, in one line."""

    error: str


class SentenceAsked(Asked):
    """One sentence, and how wide to search."""

    q: Annotated[str, Field(max_length=LONGEST_LOOK)]
    source: Code
    target: Code
    beam_size: Annotated[int, Field(ge=1, le=16)] = 4


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
