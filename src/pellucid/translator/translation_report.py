"""Counts over many translations: sentences, tokens, and what was cut, split or rescued."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pellucid.text.passage import Passage
from pellucid.translator.pipeline import TranslatedUnit
from pellucid.translator.translation import Translation


@dataclass
class TranslationReport:
    """Counts of what a caller should know about a long translation."""

    lines: int = 0
    sentences: int = 0
    source_tokens: int = 0
    tokens: int = 0
    """Tokens of the outputs. On both sides the end tokens are counted."""
    split: int = 0
    """Sentences that were too long and were translated in parts."""
    rescued: int = 0
    """Sentences whose first translation lost an address or the like (see `Preserved`)."""
    cut: int = 0
    """Outputs that were cut at the maximum length."""

    def add_units(self, passage: Passage, units: Sequence[TranslatedUnit]) -> None:
        """Count one text by its units."""
        self.lines += 1
        self.split += passage.split
        for unit in units:
            self.sentences += 1
            self.rescued += unit.rescued
            for decoded in unit.decoded:
                self.source_tokens += len(decoded.ids)
                self.tokens += decoded.result.best.length
                self.cut += decoded.result.best.ended == "length"

    def add_translation(self, translation: Translation) -> None:
        """Count one text by its translation."""
        self.lines += 1
        self.sentences += len(translation.sentences)
        self.source_tokens += sum(len(s.source_tokens) + 1 for s in translation.sentences)
        self.tokens += translation.length
        self.split += translation.split
        self.rescued += translation.rescued
        self.cut += sum(sentence.best.ended == "length" for sentence in translation.sentences)

    def merge(self, other: TranslationReport) -> None:
        """Add the counts of another report."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
