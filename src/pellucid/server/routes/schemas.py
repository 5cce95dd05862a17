"""Request and response bodies of the API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

MAX_INSPECTED_CHARACTERS = 1_000
"""Maximum characters of a sentence to look inside."""

Code = Annotated[str, Field(min_length=2, max_length=24)]
TokenIds = Annotated[list[Annotated[int, Field(ge=0, le=10_000_000)]], Field(max_length=256)]


class StrictRequest(BaseModel):
    """A request body that refuses unknown fields."""

    model_config = ConfigDict(extra="forbid")


class LenientRequest(BaseModel):
    """A request body of LibreTranslate's clients: unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)

    api_key: Annotated[str, Field(max_length=200)] = ""
    """API key, if the server requires one; a header can carry it as well."""


class DetectRequest(LenientRequest):
    """A text whose language is to be detected."""

    q: str | list[str]


class TranslateRequest(LenientRequest):
    """Texts to translate. The first five fields are LibreTranslate's, the others our own."""

    q: str | list[str]
    """Text to translate, or a list of texts."""
    source: Code = "auto"
    """Source language; "auto" detects it."""
    target: Code
    """Target language."""
    format: Literal["text", "html"] = "text"
    """With html, tags stay as they are and the text between them is translated."""
    alternatives: Annotated[int, Field(ge=0)] = 0
    """Number of alternative translations."""
    beam_size: Annotated[int, Field(ge=1)] = 4
    """Beam size of the search; 1 is greedy."""
    prefix: Annotated[str, Field(max_length=500)] | None = None
    """Text that the translation has to begin with."""
    model: Annotated[str, Field(max_length=100)] | None = None
    """Name of the model, where several serve one direction."""
    details: bool = False
    """Return the tokens, probabilities and alignment of each sentence."""


class ResponseBody(BaseModel):
    """A response body."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Detection(ResponseBody):
    """A detected language, with its confidence in percent."""

    language: str
    confidence: Annotated[float, Field(ge=0, le=100)]


class TranslateResponse(ResponseBody):
    """Translations: one if `q` was a text, a list if it was a list."""

    translatedText: str | list[str]  # noqa: N815  as clients of LibreTranslate read it
    detectedLanguage: Detection | list[Detection] | None = None  # noqa: N815
    """Only if the source was "auto"."""
    alternatives: list[str] | list[list[str]] | None = None
    """Only if they were asked for."""
    score: float | list[float] | None = None
    """Mean log-probability per token; only with details."""
    sentences: list[Any] | None = None
    """Only with details: tokens, probabilities, alignment and attention of each sentence."""
    pivot: str | None = None
    """The language it was translated through, if no model translates directly."""


class TranslateFileResponse(ResponseBody):
    """Where the translation of a file can be downloaded, for 15 minutes."""

    translatedFileUrl: str  # noqa: N815


class LanguageResponse(ResponseBody):
    """A language, and those that it can be translated into."""

    code: str
    name: str
    targets: list[str]


class ErrorResponse(ResponseBody):
    """An error, in one line."""

    error: str


class SentenceRequest(StrictRequest):
    """One sentence, and the beam size to search with."""

    q: Annotated[str, Field(max_length=MAX_INSPECTED_CHARACTERS)]
    source: Code
    target: Code
    beam_size: Annotated[int, Field(ge=1, le=16)] = 4


class AlternativesRequest(SentenceRequest):
    """Alternatives to one token of the translation of a sentence."""

    position: Annotated[int, Field(ge=0, le=1000)]
    begin: TokenIds = []
    """Token ids that the translation begins with, as an earlier alternative returned them."""
    count: Annotated[int, Field(ge=1, le=20)] = 6


class HeadRequest(StrictRequest):
    """An attention head to switch off."""

    kind: Literal["encoder", "decoder", "cross"]
    layer: Annotated[int, Field(ge=0, le=1000)]
    head: Annotated[int, Field(ge=0, le=1000)]


class TraceRequest(SentenceRequest):
    """A sentence to trace through the model."""

    sample: bool = False
    temperature: Annotated[float, Field(gt=0, le=10)] = 1.0
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    prefix: TokenIds = []
    """Token ids that the output has to begin with."""
    without: TokenIds = []
    """Positions of source tokens to remove."""
    off: Annotated[list[HeadRequest], Field(max_length=256)] = []


class MasksRequest(StrictRequest):
    """Sentences to read as one batch, for their masks."""

    q: Annotated[
        list[Annotated[str, Field(max_length=MAX_INSPECTED_CHARACTERS)]],
        Field(min_length=1, max_length=4),
    ]
    source: Code
    target: Code
