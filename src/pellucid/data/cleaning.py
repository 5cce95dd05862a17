"""Which pairs are fit to learn from, and an account of those that are not.

The text of a pair is made one clean line (`clean_text`), and the pair gets one verdict, the first
of these that applies:

| verdict   | what it means                                                        | the pair is  |
|-----------|----------------------------------------------------------------------|--------------|
| malformed | the two sides cannot be told: wrong columns, no JSON, a side missing | dropped      |
| obsolete  | a catalogue's entry that is no longer in use                         | dropped      |
| fuzzy     | a catalogue's entry that its translator has not confirmed            | dropped      |
| invalid   | bytes that are not UTF-8, or U+FFFD where someone lost some before   | dropped      |
| empty     | one side or both have no text                                        | dropped      |
| too_long  | a side has more than `max_characters` or `max_words`                 | dropped      |
| ratio     | one side is more than `max_ratio` times as long as the other         | dropped      |
| copy      | both sides are the same text                                         | as asked     |
| duplicate | the same pair stood before                                           | as asked     |
| excluded  | a side belongs to a test set that must stay unseen                   | dropped      |
| kept      | nothing is wrong with it                                             | kept         |

A dropped pair never moves the others: numbers are those of the file.
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
"""How many pairs of each kind a report shows."""


class Verdict(StrEnum):
    """What became of a pair; each pair counts once, under the first that applies."""

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
    Verdict.kept: "fit to learn from",
    Verdict.malformed: "not two sides: wrong columns, no JSON, a language missing",
    Verdict.obsolete: "an entry no longer in use",
    Verdict.fuzzy: "an entry its translator has not confirmed",
    Verdict.invalid: "bytes that are not UTF-8",
    Verdict.empty: "a side without text",
    Verdict.too_long: "a side with too many characters or words",
    Verdict.ratio: "one side far longer than the other",
    Verdict.copy: "both sides the same",
    Verdict.duplicate: "stood before",
    Verdict.excluded: "a side belongs to a test set that stays unseen",
}

# What splits lines somewhere (and the tab, which splits columns) becomes a space; other control
# characters, and byte order marks that joined files leave inside, say nothing and go.
_TO_SPACE = "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029"
_REMOVED = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0), 0xFEFF]))
_CHANGES = str.maketrans({**dict.fromkeys(_REMOVED, ""), **dict.fromkeys(_TO_SPACE, " ")})
_UNCLEAN = re.compile(f"[{re.escape(_REMOVED + _TO_SPACE)}]")
_SPACES = re.compile("  +")


def clean_text(text: str) -> str:
    """The text as one line, without control characters.

    Line, paragraph, column and page breaks of any kind become a space, other control characters
    (NUL among them) and byte order marks are removed, runs of plain spaces become one, white space
    at the ends goes. No-break and narrow spaces, joiners and marks of direction stay: they belong
    to the text. Cleaning twice changes nothing more.
    """
    # `isprintable` refuses all that is changed here (and more, such as no-break spaces), at once
    if not text.isprintable() and _UNCLEAN.search(text):
        text = text.translate(_CHANGES)
    if "  " in text:
        text = _SPACES.sub(" ", text)
    return text.strip()


def judge(pair: Pair, config: CleaningConfig) -> tuple[Verdict, Pair]:
    """The verdict on a pair, and the pair with its text cleaned.

    Looks at nothing but the pair, so it may run anywhere; whether the pair stood before is for the
    caller to find out by `pair_hash`. A `copy` is reported whether or not it is to be dropped:
    ask `is_dropped`.
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
    """Whether pairs with this verdict are left out (copies and duplicates only if asked)."""
    if verdict == Verdict.copy:
        return config.drop_copies
    if verdict == Verdict.duplicate:
        return config.drop_duplicates
    return verdict != Verdict.kept


def fit_pairs(pairs: Iterable[Pair], config: CleaningConfig) -> Iterator[Pair]:
    """Those that are not dropped, with their text cleaned; whether one stood before is not seen."""
    for raw in pairs:
        verdict, pair = judge(raw, config)
        if not is_dropped(verdict, config):
            yield pair


def pair_hash(pair: Pair) -> int:
    """A 64-bit hash of both texts of a cleaned pair, the same on every machine."""
    # clean text has no line feed, so it can stand between the two
    text = f"{pair.first}\n{pair.second}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


@dataclass
class CleaningReport:
    """How many pairs got each verdict, with the first few of each kind as examples."""

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
        """Add what another report counted in a later part of the data."""
        self.counts.update(other.counts)
        for verdict, pairs in other.examples.items():
            mine = self.examples.setdefault(verdict, [])
            mine.extend(pairs[: EXAMPLES - len(mine)])

    @property
    def total(self) -> int:
        """How many pairs were counted."""
        return self.counts.total()

    @property
    def kept(self) -> int:
        """How many of them are not dropped."""
        return sum(n for verdict, n in self.counts.items() if not is_dropped(verdict, self.config))

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, e.g. for a manifest."""
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
        """The report that `as_dict` gave."""
        return cls(
            CleaningConfig(**data["cleaning"]),
            Counter({Verdict(name): count for name, count in data["counts"].items()}),
            {
                Verdict(name): [Pair(first, second, number) for number, first, second in pairs]
                for name, pairs in data["examples"].items()
            },
        )

    def table(self, title: str = "Sentence pairs") -> Table:
        """The report for a terminal: where the pairs went, and examples of what was left out."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title=title, title_justify="left", show_footer=True, expand=False)
        table.add_column("", footer="kept in all", no_wrap=True)
        table.add_column("pairs", footer=f"{self.kept:,}", justify="right", no_wrap=True)
        table.add_column("what, with the first ones", footer=f"of {self.total:,}")
        for verdict in Verdict:
            if not self.counts[verdict] and verdict != Verdict.kept:
                continue
            what = Text(MEANINGS[verdict])
            if verdict in (Verdict.copy, Verdict.duplicate):
                dropped = is_dropped(verdict, self.config)
                what.append(" (dropped)" if dropped else " (counted, and kept)")
            for pair in self.examples.get(verdict, []):
                what.append(f"\n{pair.number}: {pair.first} | {pair.second}", style="dim")
            table.add_row(verdict.value.replace("_", " "), f"{self.counts[verdict]:,}", what)
        return table


def _shortened(pair: Pair, width: int = 60) -> Pair:
    """An example to show: harmless on a terminal, and short."""
    first, second = (
        text if len(text) <= width else text[: width - 1] + "…"
        for text in (clean_text(pair.first[: 4 * width]), clean_text(pair.second[: 4 * width]))
    )
    return Pair(first, second, pair.number)
