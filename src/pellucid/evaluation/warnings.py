"""Warnings about a test set or its translations: reasons not to trust a score."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pellucid.evaluation.systems import SystemOutput
from pellucid.evaluation.test_set import EvaluationSet

FEW_SENTENCES = 100
"""With fewer sentences, another handful of them would change the scores."""

_MIN_FRACTION = 0.2  # of the lines must look tokenized
_MIN_LINES = 10  # from fewer, nothing is concluded
_TOKENIZED = re.compile(r"\w [.,](?:\s|$)|@-@|@@ |&(?:apos|quot|amp|#\d+);")


def find_warnings(test_set: EvaluationSet, systems: Sequence[SystemOutput]) -> list[str]:
    """Return a sentence for each suspicion; none if nothing is suspicious."""
    return [*_about_test_set(test_set), *_about_texts(test_set, systems)]


def _about_test_set(test_set: EvaluationSet) -> list[str]:
    found = []
    count = len(test_set)
    if count < FEW_SENTENCES:
        found.append(
            f"there are only {count:,} sentences: a score of so few says little (take "
            f"{FEW_SENTENCES} or more)"
        )
    for name, lines in (
        (test_set.source_name, test_set.sources),
        *zip(test_set.reference_names, test_set.references, strict=True),
    ):
        side = "sources" if lines is test_set.sources else "references"
        empty = sum(not line.strip() for line in lines)
        if empty:
            found.append(
                f"{empty:,} of the {side} in {name} are empty, and are counted all the same"
            )
        broken = sum("\ufffd" in line for line in lines)
        if broken:
            found.append(f"{broken:,} lines of {name} had bytes that are not UTF-8 (now U+FFFD)")
    repeated = count - len(set(test_set.sources))
    if repeated > count * 0.05:
        found.append(f"{repeated:,} of the {count:,} sources are duplicates")
    if test_set.left_out:
        found.append(f"{test_set.left_out:,} fuzzy or obsolete entries were left out")
    for name, reference in zip(test_set.reference_names, test_set.references, strict=True):
        same = sum(a == b for a, b in zip(test_set.sources, reference, strict=True))
        if same > count / 2:
            found.append(
                f"{same:,} of the {count:,} references in {name} are the source itself: is it the "
                "right file?"
            )
    for number, reference in enumerate(test_set.references[1:], start=1):
        if reference in test_set.references[:number]:
            found.append(
                f"{test_set.reference_names[number]} is the same as a reference before it, and "
                "adds nothing"
            )
    return found


def _about_texts(test_set: EvaluationSet, systems: Sequence[SystemOutput]) -> list[str]:
    found = []
    sides = list(zip(test_set.reference_names, test_set.references, strict=True))
    for name, lines in sides:
        if tokenized(lines):
            found.append(
                f"the references in {name} look tokenized (spaces before full stops and commas): "
                "scores cannot be compared with those on plain text; take the original references"
            )
        if lower_cased(lines):
            found.append(
                f"the references in {name} are lower-cased: scores cannot be compared with those "
                "on plain text; --lowercase lowercases the translations too"
            )
    for system in systems:
        if any(system.texts == lines for _, lines in sides):
            found.append(f"the translations of {system.name} are a reference, line for line")
        if system.details is None:
            if tokenized(system.texts) and not any(tokenized(lines) for _, lines in sides):
                found.append(
                    f"the translations of {system.name} look tokenized and the references do not: "
                    "join the words again before scoring"
                )
            if lower_cased(system.texts) and not any(lower_cased(lines) for _, lines in sides):
                found.append(
                    f"the translations of {system.name} are lower-cased and the references are not"
                )
    return found


def tokenized(lines: Sequence[str]) -> bool:
    """Whether punctuation is separated from words, as toolkits write it."""
    hits = sum(_TOKENIZED.search(line) is not None for line in lines)
    return len(lines) >= _MIN_LINES and hits > _MIN_FRACTION * len(lines)


def lower_cased(lines: Sequence[str]) -> bool:
    """Whether there are hardly any capitals, in a script that has them."""
    cased = [line for line in lines if any(c.islower() for c in line)]
    capital = sum(any(c.isupper() for c in line) for line in cased)
    return len(cased) >= _MIN_LINES and capital <= 0.01 * len(cased)
