"""Translations worth a look, found without anybody reading them all."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from pellucid.evaluation.systems import SystemOutput
from pellucid.evaluation.test_set import EvaluationSet, nearest_in_length, words

MEANINGS = {
    "empty": "nothing was written",
    "copied": "the source, word for word",
    "cut": "stopped at the maximum length",
    "short": "less than half as long as the reference",
    "long": "more than twice as long as the reference",
    "loops": "words or letters over and over, more often than in source and reference",
    "repeats": "four words in a row that come again, more often than in source and reference",
    "numbers": "a number that source and reference have is missing",
}
"""Each kind of finding by its name in JSON."""

LOOP_PERIOD = 8
"""Longest group of words whose immediate repetition is looked for."""
NGRAM = 4
MIN_LENGTH_DIFFERENCE = 10
"""Characters; lengths that differ by fewer are no outliers, whatever their ratio."""

# Inside a word: up to two letters five times over, or up to eight three times.
_STUTTER = re.compile(r"(\S{1,2}?)\1{4,}|(\S{3,8}?)\2{2,}")
_NUMBER = re.compile(r"\d(?:[\d.,\u00a0\u202f']*\d)?")
_SEPARATOR = re.compile(r"\D")


def findings(test_set: EvaluationSet, system: SystemOutput) -> dict[str, list[int]]:
    """Return the sentences of each kind, as indices from 0, the worst first.

    `cut` is left out for translations made before, where it is not known.
    """
    found: dict[str, list[tuple[float, int]]] = {kind: [] for kind in MEANINGS}
    if system.details is None:
        del found["cut"]
    for index, text in enumerate(system.texts):
        source, references = test_set.sources[index], test_set.references_of(index)
        for kind, weight in _kinds(source, references, text).items():
            found[kind].append((-weight, index))
        if system.details is not None and system.details[index].cut:
            found["cut"].append((-len(text), index))
    return {kind: [index for _, index in sorted(pairs)] for kind, pairs in found.items()}


def _kinds(source: str, references: list[str], text: str) -> dict[str, float]:
    """Return the kinds of finding that apply to a sentence, each with its severity."""
    if not text.strip():
        return {"empty": len(source)} if any(r.strip() for r in references) else {}
    found: dict[str, float] = {}
    if _copied(source, references, text):
        found["copied"] = len(text)
    length = len(nearest_in_length(text, references))
    if abs(len(text) - length) >= MIN_LENGTH_DIFFERENCE:
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
    missing = _numbers(source) & _shared_numbers(references) - _numbers(text)
    if missing:
        found["numbers"] = sum(missing.values())
    return found


def loop(line: Sequence[str]) -> int:
    """Return the length of the longest run of words that only repeat the words before them.

    "the the the" has 2, "a b a b a" has 3.
    """
    longest = 0
    for period in range(1, min(LOOP_PERIOD, len(line) // 2) + 1):
        run = 0
        for index in range(period, len(line)):
            run = run + 1 if line[index] == line[index - period] else 0
            if run >= period:
                longest = max(longest, run)
    return longest


def stutter(text: str) -> int:
    """Return the length of the longest run of a few letters over and over, in characters."""
    found = (match.group() for match in _STUTTER.finditer(text))
    return max((len(run) for run in found if any(c.isalpha() for c in run)), default=0)


def repeats(line: Sequence[str]) -> int:
    """Count the 4-grams of words that occurred earlier in the line."""
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
    """Count the numbers of a text, without separators of thousands and decimals."""
    return Counter(_SEPARATOR.sub("", number) for number in _NUMBER.findall(text))


def _shared_numbers(references: list[str]) -> Counter[str]:
    """Count the numbers that every reference has."""
    common = _numbers(references[0])
    for reference in references[1:]:
        common &= _numbers(reference)
    return common
