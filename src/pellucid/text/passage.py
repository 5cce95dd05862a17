"""A text in its parts: strings that stay, and units to translate."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pellucid.text.sentences import LINE_BREAKS

_BREAKS = re.compile(f"[{LINE_BREAKS}]+")
_CAPITALIZED_NOUNS = {"de", "lb", "nds"}  # a capital letter there may well be right
_I = re.compile(r"I\b")
_FULL_STOP = re.compile(r"[^.]\.$")


@dataclass(frozen=True, slots=True)
class Unit:
    """What the model translates at once: a sentence, or a part of one."""

    text: str
    sentence: int
    """Number of its sentence in the text."""
    part: bool = False
    """Whether it is only a part of that sentence."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A text in its parts: strings that stay, and units to translate."""

    parts: tuple[str | Unit, ...]
    split: int = 0
    """Number of sentences that were too long and are translated in parts."""

    @property
    def units(self) -> list[Unit]:
        """The units to translate, in order."""
        return [part for part in self.parts if isinstance(part, Unit)]

    def joined(self, translations: Sequence[str], language: str | None = None) -> str:
        """Return the text with each unit replaced by its translation, on one line each.

        language: that of the translations; it decides where capital letters are right.
        """
        rest = iter(translations)
        return "".join(
            part if isinstance(part, str) else _fitted(part, one_line(next(rest)), language)
            for part in self.parts
        )


def _fitted(unit: Unit, translation: str, language: str | None) -> str:
    """Return a translation that fits into its sentence.

    That of a part of a sentence loses a full stop that its source does not have, and begins with a
    small letter if its source does, as in the middle of a sentence.
    """
    if not unit.part:
        return translation
    small = language is not None and language not in _CAPITALIZED_NOUNS
    if small and unit.text[0].islower() and not _I.match(translation):
        translation = translation[:1].lower() + translation[1:]
    if not _FULL_STOP.search(translation) or unit.text.endswith("."):
        return translation
    end = unit.text[-1] if unit.text[-1] in ",;:" else ""
    return translation[:-1].rstrip() + end


def one_line(text: str) -> str:
    """Return the text with line breaks of any kind replaced by spaces."""
    return _BREAKS.sub(" ", text)
