"""What became of the units of a text, and what a caller should know about many of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pellucid.decoding.steps import Result
from pellucid.text.segmentation import Passage
from pellucid.translator.translation import Translation


class TranslatedUnit(NamedTuple):
    """One unit of text with what the engine made of it."""

    text: str
    ids: list[int]
    result: Result


@dataclass
class Outcome:
    """A unit of a passage, translated: its text, and what went through the model for it."""

    texts: list[str]
    """The n best."""
    units: list[TranslatedUnit]
    rescued: bool = False


@dataclass
class TranslationReport:
    """What a caller should know about a long translation."""

    lines: int = 0
    sentences: int = 0
    source_tokens: int = 0
    tokens: int = 0
    """Of the outputs; the end symbols are counted on both sides."""
    split: int = 0
    """Sentences that were too long and were translated in parts."""
    rescued: int = 0
    """Sentences that lost an address or the like, and were translated around it."""
    cut: int = 0
    """Outputs that were cut at the longest allowed length."""

    def add(self, passage: Passage, outcomes: Sequence[Outcome]) -> None:
        """Count one text."""
        self.lines += 1
        self.split += passage.split
        for outcome in outcomes:
            self.sentences += 1
            self.rescued += outcome.rescued
            for unit in outcome.units:
                self.source_tokens += len(unit.ids)
                self.tokens += unit.result.best.length
                self.cut += unit.result.best.ended == "length"

    def count(self, made: Translation) -> None:
        """Count one translation."""
        self.lines += 1
        self.sentences += len(made.sentences)
        self.source_tokens += sum(len(s.source_tokens) + 1 for s in made.sentences)
        self.tokens += made.length
        self.split += made.split
        self.rescued += made.rescued
        self.cut += sum(sentence.best.ended == "length" for sentence in made.sentences)

    def include(self, other: TranslationReport) -> None:
        """Count what another has counted."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
