"""What is in the folder of a model, and what its config.toml holds."""

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
MANIFEST = "manifest.json"
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
"""The files of a tokenizer, of our own kind or of Marian's."""


class DamagedBundleError(PellucidError):
    """A bundle is half there, changed, or not what it says it is."""


class BundleConfig(Settings):
    """What config.toml holds."""

    format: int = FORMAT
    """Version of the layout."""

    pellucid: str = __version__
    """Version of Pellucid that wrote it."""

    directions: tuple[str, ...] = Field(min_length=1)
    """Which ways the model translates, e.g. ["fr-en", "en-fr"]."""

    default_direction: str
    """Which way it translates when nobody says."""

    alignment: tuple[int, int] | None = None
    """The decoder layer and head whose cross-attention says best which source token an output
    token comes from, where that was measured; head -1 is the mean of the layer's heads."""

    longest: int | None = Field(default=None, ge=1)
    """Tokens of the longest sentences that it learned from, where that is known: a translator
    cuts longer ones into parts, as models are poor at lengths that they have not seen."""

    model: ModelConfig
    """The shape of the model."""

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
            raise ValueError(f"alignment = [{layer}, {head}] is no layer and head of this model")
        return self

    @property
    def attention_place(self) -> tuple[int, int | None]:
        """`alignment` as a search is told it: a layer, and a head or None for their mean.

        Where nothing was measured, the mean of the last layer.
        """
        layer, head = self.alignment or (-1, -1)
        return layer, None if head == -1 else head

    @property
    def languages(self) -> tuple[str, ...]:
        """Every language of the directions, in order of appearance."""
        names = (name for direction in self.directions for name in split_direction(direction))
        return tuple(dict.fromkeys(names))


def tied_names(config: ModelConfig) -> dict[str, str]:
    """Weights that are another one under a second name: the second name to the first."""
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
    """What a config.toml holds."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        return BundleConfig(**values)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise DamagedBundleError(f"{path} cannot be used: {short(error)}") from None


def config_text(settings: BundleConfig) -> str:
    """config.toml."""
    intro = (
        "# A translation model of Pellucid. What stands here belongs to weights.safetensors.\n\n"
    )
    return intro + as_toml(settings)


def one_line(text: Any) -> str:
    """Text without its line breaks."""
    return " ".join(str(text).split())


def short(error: BaseException) -> str:
    """What an error says, in a line that fits into another."""
    return one_line(error)[:160] or type(error).__name__
