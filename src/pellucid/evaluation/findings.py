"""What is worth a look in a system's translations, found without a person reading them all."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from pellucid.evaluation.systems import System
from pellucid.evaluation.test_set import Material, nearest_in_length, words

MEANINGS = {
    "empty": "nothing was written",
    "copied": "the source, word for word",
    "cut": "stopped at the longest length that was allowed",
    "short": "less than half as long as the reference",
    "long": "more than twice as long as the reference",
    "loops": "words or letters over and over, more often than in source and reference",
    "repeats": "four words in a row that come again, more often than in source and reference",
    "numbers": "a number that source and reference have is missing",
}
"""Each kind of finding, by its name in JSON."""

LOOP_PERIOD = 8
"""The longest group of words whose immediate repetition is looked for."""
NGRAM = 4
FEW = 10
"""Characters; lengths that differ by fewer are no outliers, whatever their ratio."""

# Inside a word: up to two letters five times over, or up to eight three times.
_STUTTER = re.compile(r"(\S{1,2}?)\1{4,}|(\S{3,8}?)\2{2,}")
_NUMBER = re.compile(r"\d(?:[\d.,\u00a0\u202f']*\d)?")
_SEPARATOR = re.compile(r"\D")


def findings(material: Material, system: System) -> dict[str, list[int]]:
    """For each kind the places of its sentences, from 0, the worst first.

    `cut` is left out for translations that were made before: the file does not tell.
    """
    found: dict[str, list[tuple[float, int]]] = {kind: [] for kind in MEANINGS}
    if system.written is None:
        del found["cut"]
    for place, text in enumerate(system.texts):
        source, references = material.sources[place], material.of(place)
        for kind, weight in _judged(source, references, text).items():
            found[kind].append((-weight, place))
        if system.written is not None and system.written[place].cut:
            found["cut"].append((-len(text), place))
    return {kind: [place for _, place in sorted(places)] for kind, places in found.items()}


def _judged(source: str, references: list[str], text: str) -> dict[str, float]:
    """The kinds of finding that a sentence belongs to, and how bad each is."""
    if not text.strip():
        return {"empty": len(source)} if any(r.strip() for r in references) else {}
    found: dict[str, float] = {}
    if _copied(source, references, text):
        found["copied"] = len(text)
    length = len(nearest_in_length(text, references))
    if abs(len(text) - length) >= FEW:
        ratio = len(text) / max(length, 1)
        if ratio < 0.5:
            found["short"] = 1 / ratio
        elif ratio > 2:
            found["long"] = ratio
    cased = [words(line.casefold()) for line in (text, source, *references)]
    looped, *usual = (loop(line) for line in cased)
    stuttered, *ordinary = (stutter(line) for line in (text, source, *references))
    if looped >= 2 and looped > max(usual):
        found["loops"] = looped
    elif stuttered > max(ordinary):
        found["loops"] = stuttered / 8  # about as many words
    else:
        repeated, *usual = (repeats(line) for line in cased)
        if repeated > max(usual):
            found["repeats"] = repeated
    missing = _numbers(source) & _joined(references) - _numbers(text)
    if missing:
        found["numbers"] = sum(missing.values())
    return found


def loop(line: Sequence[str]) -> int:
    """How many words only repeat what stands directly before them, at most, in one place.

    "the the the" has 2, "a b a b a" has 3.
    """
    longest = 0
    for period in range(1, min(LOOP_PERIOD, len(line) // 2) + 1):
        run = 0
        for place in range(period, len(line)):
            run = run + 1 if line[place] == line[place - period] else 0
            if run >= period:
                longest = max(longest, run)
    return longest


def stutter(text: str) -> int:
    """The most characters in one place of a text that are a few letters over and over."""
    found = (match.group() for match in _STUTTER.finditer(text))
    return max((len(run) for run in found if any(c.isalpha() for c in run)), default=0)


def repeats(line: Sequence[str]) -> int:
    """How many groups of four words in a row stood in the line before."""
    groups = [tuple(line[start : start + NGRAM]) for start in range(len(line) - NGRAM + 1)]
    return len(groups) - len(set(groups))


def _copied(source: str, references: list[str], text: str) -> bool:
    plain = _plain(text)
    return (
        plain == _plain(source)
        and any(character.isalpha() for character in plain)
        and all(plain != _plain(reference) for reference in references)
    )


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _numbers(text: str) -> Counter[str]:
    """Digits of each number, without what separates thousands and decimals."""
    return Counter(_SEPARATOR.sub("", number) for number in _NUMBER.findall(text))


def _joined(references: list[str]) -> Counter[str]:
    """The numbers that every reference has."""
    common = _numbers(references[0])
    for reference in references[1:]:
        common &= _numbers(reference)
    return common
