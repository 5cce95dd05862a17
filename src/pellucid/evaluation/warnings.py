"""What a careful person would notice before believing a score."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pellucid.evaluation.systems import System
from pellucid.evaluation.test_set import Material

FEW_SENTENCES = 100
"""Fewer make scores that another handful of sentences would change."""

_SHARE = 0.2  # of the lines must look so
_ENOUGH = 10  # lines; of fewer nothing is concluded
_TOKENIZED = re.compile(r"\w [.,](?:\s|$)|@-@|@@ |&(?:apos|quot|amp|#\d+);")


def cautions(material: Material, systems: Sequence[System]) -> list[str]:
    """Sentences for a person; none where nothing is odd."""
    return [*_about_material(material), *_about_references(material, systems)]


def _about_material(material: Material) -> list[str]:
    said = []
    count = len(material)
    if count < FEW_SENTENCES:
        said.append(
            f"there are only {count:,} sentences: a score of so few says little (take "
            f"{FEW_SENTENCES} or more)"
        )
    for name, lines in (
        (material.source_name, material.sources),
        *zip(material.reference_names, material.references, strict=True),
    ):
        side = "sources" if lines is material.sources else "references"
        empty = sum(not line.strip() for line in lines)
        if empty:
            said.append(f"{empty:,} of the {side} in {name} are empty, and count all the same")
        broken = sum("\ufffd" in line for line in lines)
        if broken:
            said.append(f"{broken:,} lines of {name} had bytes that are not UTF-8 (now U+FFFD)")
    twice = count - len(set(material.sources))
    if twice > count * 0.05:
        said.append(f"{twice:,} of the {count:,} sources stand more than once")
    if material.left_out:
        said.append(f"{material.left_out:,} fuzzy or obsolete entries were left out")
    for name, reference in zip(material.reference_names, material.references, strict=True):
        same = sum(a == b for a, b in zip(material.sources, reference, strict=True))
        if same > count / 2:
            said.append(
                f"{same:,} of the {count:,} references in {name} are the source itself: is it the "
                "right file?"
            )
    for place, reference in enumerate(material.references[1:], start=1):
        if reference in material.references[:place]:
            said.append(
                f"{material.reference_names[place]} is the same as a reference before it, and adds "
                "nothing"
            )
    return said


def _about_references(material: Material, systems: Sequence[System]) -> list[str]:
    said = []
    sides = list(zip(material.reference_names, material.references, strict=True))
    for name, lines in sides:
        if tokenized(lines):
            said.append(
                f"the references in {name} look tokenized (spaces before full stops and commas): "
                "scores cannot be compared with those on plain text; take the original references"
            )
        if lower_cased(lines):
            said.append(
                f"the references in {name} are lower-cased: scores cannot be compared with those "
                "on plain text; --lowercase makes the translations so too"
            )
    for system in systems:
        if any(system.texts == lines for _, lines in sides):
            said.append(f"the translations of {system.name} are a reference, line for line")
        if system.written is None:
            if tokenized(system.texts) and not any(tokenized(lines) for _, lines in sides):
                said.append(
                    f"the translations of {system.name} look tokenized and the references do not: "
                    "join the words again before scoring"
                )
            if lower_cased(system.texts) and not any(lower_cased(lines) for _, lines in sides):
                said.append(
                    f"the translations of {system.name} are lower-cased and the references are not"
                )
    return said


def tokenized(lines: Sequence[str]) -> bool:
    """Whether punctuation stands apart from words, as toolkits write it."""
    hits = sum(_TOKENIZED.search(line) is not None for line in lines)
    return len(lines) >= _ENOUGH and hits > _SHARE * len(lines)


def lower_cased(lines: Sequence[str]) -> bool:
    """Whether there is hardly a capital, in a script that has them."""
    cased = [line for line in lines if any(c.islower() for c in line)]
    capital = sum(any(c.isupper() for c in line) for line in cased)
    return len(cased) >= _ENOUGH and capital <= 0.01 * len(cased)
