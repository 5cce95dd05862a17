"""Cleaning: filters for sentence pairs, and a report on what they drop.

The text of a pair is made one clean line (`clean_text`), and the pair gets one verdict, the first
of these that applies:

| verdict   | meaning                                                              | the pair is  |
|-----------|----------------------------------------------------------------------|--------------|
| malformed | not two sides: wrong columns, invalid JSON, a side missing           | dropped      |
| obsolete  | an entry of a catalogue that is no longer used                       | dropped      |
| fuzzy     | an entry of a catalogue that its translator has not confirmed        | dropped      |
| invalid   | bytes that are not UTF-8, or U+FFFD, left by an earlier conversion   | dropped      |
| empty     | one side or both have no text                                        | dropped      |
| too_long  | a side has more than `max_characters` or `max_words`                 | dropped      |
| ratio     | one side is more than `max_ratio` times as long as the other         | dropped      |
| copy      | both sides are identical                                             | configurable |
| duplicate | an earlier pair is identical                                         | configurable |
| excluded  | a side belongs to a test set that must stay unseen                   | dropped      |
| kept      | no problem                                                           | kept         |

Dropping a pair never renumbers the others: numbers are those of the file.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pellucid.config import CleaningConfig
from pellucid.data.corpus import Pair

if TYPE_CHECKING:
    from rich.table import Table

EXAMPLES = 3
"""Number of examples of each verdict that a report shows."""


class Verdict(StrEnum):
    """Result of cleaning a pair; each pair counts once, under the first verdict that applies."""

    kept = "kept"
    malformed = "malformed"
    obsolete = "obsolete"
    fuzzy = "fuzzy"
    invalid = "invalid"
    empty = "empty"
    too_long = "too_long"
    ratio = "ratio"
    copy = "copy"
    duplicate = "duplicate"
    excluded = "excluded"


MEANINGS = {
    Verdict.kept: "no problem",
    Verdict.malformed: "not two sides: wrong columns, invalid JSON, a language missing",
    Verdict.obsolete: "an entry that is no longer used",
    Verdict.fuzzy: "an entry that its translator has not confirmed",
    Verdict.invalid: "bytes that are not UTF-8",
    Verdict.empty: "a side without text",
    Verdict.too_long: "a side with too many characters or words",
    Verdict.ratio: "one side far longer than the other",
    Verdict.copy: "both sides identical",
    Verdict.duplicate: "identical to an earlier pair",
    Verdict.excluded: "a side belongs to a test set that stays unseen",
}

# Characters that some program takes for a line break (and the tab, which separates columns) become
# a space; other control characters, and byte order marks inside concatenated files, are removed.
_TO_SPACE = "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029"
_REMOVED = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0), 0xFEFF]))
_CHANGES = str.maketrans({**dict.fromkeys(_REMOVED, ""), **dict.fromkeys(_TO_SPACE, " ")})
_UNCLEAN = re.compile(f"[{re.escape(_REMOVED + _TO_SPACE)}]")
_SPACES = re.compile("  +")


def clean_text(text: str) -> str:
    """Return the text as one line, without control characters.

    Line, paragraph, column and page breaks of any kind become a space; other control characters
    (also NUL) and byte order marks are removed; runs of plain spaces become one; white space at the
    ends is stripped. No-break and narrow spaces, joiners and direction marks stay, because they
    belong to the text. Cleaning is idempotent.
    """
    # `isprintable` is False for all that is changed here (and for more, such as no-break spaces)
    if not text.isprintable() and _UNCLEAN.search(text):
        text = text.translate(_CHANGES)
    if "  " in text:
        text = _SPACES.sub(" ", text)
    return text.strip()


def judge(pair: Pair, config: CleaningConfig) -> tuple[Verdict, Pair]:
    """Return the verdict on a pair, and the pair with its text cleaned.

    It depends on the pair alone, so it can run in any process; the caller finds duplicates by
    `pair_hash`. A `copy` is reported whether or not the settings drop it: `is_dropped` says that.
    """
    first, second = clean_text(pair.first), clean_text(pair.second)
    clean = pair
    if first != pair.first or second != pair.second:
        clean = Pair(first, second, pair.number, pair.problem)
    if pair.problem:
        return Verdict(pair.problem), clean
    if "\ufffd" in first or "\ufffd" in second:
        return Verdict.invalid, clean
    if not first or not second:
        return Verdict.empty, clean
    shorter, longer = len(first), len(second)
    if shorter > longer:
        shorter, longer = longer, shorter
    if longer > config.max_characters:
        return Verdict.too_long, clean
    # n words need at least 2n - 1 characters, so most sentences need no counting
    if longer >= 2 * config.max_words and (
        max(len(first.split()), len(second.split())) > config.max_words
    ):
        return Verdict.too_long, clean
    if longer >= config.ratio_from and longer > config.max_ratio * shorter:
        return Verdict.ratio, clean
    if first == second:
        return Verdict.copy, clean
    return Verdict.kept, clean


def is_dropped(verdict: Verdict, config: CleaningConfig) -> bool:
    """Return whether the settings drop pairs with this verdict."""
    if verdict == Verdict.copy:
        return config.drop_copies
    if verdict == Verdict.duplicate:
        return config.drop_duplicates
    return verdict != Verdict.kept


def clean_pairs(pairs: Iterable[Pair], config: CleaningConfig) -> Iterator[Pair]:
    """Yield the pairs that are not dropped, cleaned; duplicates are not detected."""
    for raw in pairs:
        verdict, pair = judge(raw, config)
        if not is_dropped(verdict, config):
            yield pair


def pair_hash(pair: Pair) -> int:
    """Return a 64-bit hash of a cleaned pair, the same on every machine."""
    # clean text has no line feed, so it can separate the two sides
    text = f"{pair.first}\n{pair.second}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


@dataclass
class CleaningReport:
    """Number of pairs with each verdict, and the first few of each as examples."""

    config: CleaningConfig = field(default_factory=CleaningConfig)
    """Says whether copies and duplicates count as dropped."""

    counts: Counter[Verdict] = field(default_factory=Counter)
    examples: dict[Verdict, list[Pair]] = field(default_factory=dict)

    def add(self, verdict: Verdict, pair: Pair) -> None:
        """Count one pair."""
        self.counts[verdict] += 1
        if verdict != Verdict.kept and self.counts[verdict] <= EXAMPLES:
            self.examples.setdefault(verdict, []).append(_shortened(pair))

    def merge(self, other: CleaningReport) -> None:
        """Add the report on a later part of the data."""
        self.counts.update(other.counts)
        for verdict, pairs in other.examples.items():
            mine = self.examples.setdefault(verdict, [])
            mine.extend(pairs[: EXAMPLES - len(mine)])

    @property
    def total(self) -> int:
        """Number of pairs counted."""
        return self.counts.total()

    @property
    def kept(self) -> int:
        """Number of pairs that are not dropped."""
        return sum(n for verdict, n in self.counts.items() if not is_dropped(verdict, self.config))

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain numbers and strings, e.g. for a manifest."""
        return {
            "cleaning": self.config.model_dump(),
            "total": self.total,
            "kept": self.kept,
            "counts": {v.value: self.counts[v] for v in Verdict if self.counts[v]},
            "examples": {
                v.value: [[pair.number, pair.first, pair.second] for pair in self.examples[v]]
                for v in Verdict
                if v in self.examples
            },
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CleaningReport:
        """Read the report that `as_dict` returned."""
        return cls(
            CleaningConfig(**data["cleaning"]),
            Counter({Verdict(name): count for name, count in data["counts"].items()}),
            {
                Verdict(name): [Pair(first, second, number) for number, first, second in pairs]
                for name, pairs in data["examples"].items()
            },
        )

    def table(self, title: str = "Sentence pairs") -> Table:
        """Return the report as a table for a terminal, with examples of the pairs dropped."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title=title, title_justify="left", show_footer=True, expand=False)
        table.add_column("", footer="kept, total", no_wrap=True)
        table.add_column("pairs", footer=f"{self.kept:,}", justify="right", no_wrap=True)
        table.add_column("meaning, with the first examples", footer=f"of {self.total:,}")
        for verdict in Verdict:
            if not self.counts[verdict] and verdict != Verdict.kept:
                continue
            meaning = Text(MEANINGS[verdict])
            if verdict in (Verdict.copy, Verdict.duplicate):
                dropped = is_dropped(verdict, self.config)
                meaning.append(" (dropped)" if dropped else " (counted, and kept)")
            for pair in self.examples.get(verdict, []):
                meaning.append(f"\n{pair.number}: {pair.first} | {pair.second}", style="dim")
            table.add_row(verdict.value.replace("_", " "), f"{self.counts[verdict]:,}", meaning)
        return table


def _shortened(pair: Pair, width: int = 60) -> Pair:
    """Return a pair to show as an example: short, and without control characters."""
    first, second = (
        text if len(text) <= width else text[: width - 1] + "…"
        for text in (clean_text(pair.first[: 4 * width]), clean_text(pair.second[: 4 * width]))
    )
    return Pair(first, second, pair.number)
