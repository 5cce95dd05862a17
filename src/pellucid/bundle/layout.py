"""File names in a bundle, and the contents of its config.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from pellucid import __version__
from pellucid.config import ModelConfig, Settings, as_toml, split_direction
from pellucid.errors import PellucidError
from pellucid.tokenizers import marian
from pellucid.tokenizers import sentencepiece as tokenizer

FORMAT = 1
CONFIG = "config.toml"
WEIGHTS = "weights.safetensors"
ABOUT = "MODEL.md"
CT2 = "ct2"
TOKENIZER = tokenizer.FILE
NEEDED = (CONFIG, WEIGHTS)
TOKENIZERS = (
    (TOKENIZER,),
    (marian.SPECIAL, marian.SOURCE_SPM, marian.TARGET_SPM, marian.VOCAB),
)
"""The files of a tokenizer: Pellucid's own or Marian's."""


class DamagedBundleError(PellucidError):
    """A bundle is incomplete, damaged, or inconsistent."""


class BundleConfig(Settings):
    """The contents of config.toml."""

    format: int = FORMAT
    """Version of the file layout."""

    pellucid: str = __version__
    """Version of Pellucid that wrote it."""

    directions: tuple[str, ...] = Field(min_length=1)
    """The directions the model translates, e.g. ["fr-en", "en-fr"]."""

    default_direction: str
    """The direction used when the caller names none."""

    alignment: tuple[int, int] | None = None
    """The decoder layer and head whose cross-attention best aligns output tokens with source
    tokens, if that was measured; head -1 is the mean of the layer's heads."""

    longest: int | None = Field(default=None, ge=1)
    """Number of tokens of the longest training sentences, if known. A translator splits longer
    sentences, since models translate lengths they have not seen poorly."""

    model: ModelConfig
    """The model's configuration."""

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        for direction in self.directions:
            split_direction(direction)
        if self.default_direction not in self.directions:
            raise ValueError(
                f"default_direction = {self.default_direction!r} is not one of the directions"
            )
        layer, head = self.alignment or (0, 0)
        if self.alignment and not (
            0 <= layer < self.model.decoder_layers and -1 <= head < self.model.num_heads
        ):
            raise ValueError(f"alignment = [{layer}, {head}] names no layer and head of this model")
        return self

    @property
    def alignment_head(self) -> tuple[int, int | None]:
        """`alignment` as the search takes it: a layer, and a head or None for the mean of all.

        If nothing was measured, it is the mean of the last layer's heads.
        """
        layer, head = self.alignment or (-1, -1)
        return layer, None if head == -1 else head

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of all directions, in order of appearance."""
        names = (name for direction in self.directions for name in split_direction(direction))
        return tuple(dict.fromkeys(names))


def tied_names(config: ModelConfig) -> dict[str, str]:
    """Map the second name of each tied weight to its first."""
    first = "target_embedding.tokens.weight"
    if config.tie_embeddings == "none":
        return {}
    tied = {"output.weight": first}
    return (
        {"source_embedding.tokens.weight": first, **tied}
        if config.tie_embeddings == "all"
        else tied
    )


def read_config(path: Path) -> BundleConfig:
    """Read a config.toml."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        return BundleConfig(**values)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise DamagedBundleError(f"{path} cannot be used: {short(error)}") from None


def config_text(settings: BundleConfig) -> str:
    """Return the text of config.toml."""
    intro = (
        "# A translation model of Pellucid. What stands here belongs to weights.safetensors.\n\n"
    )
    return intro + as_toml(settings)


def one_line(text: Any) -> str:
    """Return a text with line breaks and runs of spaces as one space."""
    return " ".join(str(text).split())


def short(error: BaseException) -> str:
    """Return an error's message, short enough to go into another one-line message."""
    return one_line(error)[:160] or type(error).__name__
