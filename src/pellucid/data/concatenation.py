"""Concatenation of short sentence pairs, for corpora of single short sentences.

A model that was never trained on more than ten words at a time drops some of forty. Two pairs, one
after the other on both sides, are a correct longer pair; and clauses that begin with a pronoun or
an article can be linked to one long sentence with "and" and "et".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

SHORT = 3
"""Maximum number of words on each side of a short pair."""

SIZES = (2, 3, 2, 4, 2, 5)
"""Numbers of pairs to concatenate, in turn."""

EVERY = 5
"""One pair in this many is used."""

LINKS = ((", and ", ", et "), (", but ", ", mais "), (" because ", " parce qu'"))
_ENGLISH = re.compile(r"(?:The|He|She|It|We|They|You|This|That|My|There|His|Her|Our|Your)\b")
_FRENCH = re.compile(
    r"(?:Il|Ils|Elle|Elles|On|Nous|Vous|Tu|Le|La|Les|Ce|C'est|Mon|Ma|Mes|Son|Sa|Ses|Un|Une)\b"
)
_PLAIN_END = re.compile(r"[^.!?…]\.$")
_END = re.compile(r"[.!?…]$")
_VOWEL_FIRST = re.compile(r"(?:Ils?|Elles?|On|Une?)\b")


def is_short(*sides: str) -> bool:
    """Return whether a pair has at most `SHORT` words on each side."""
    return all(len(re.findall(r"\w[\w'’-]*", side)) <= SHORT for side in sides)


def concatenate(pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Make longer pairs, English first, from some of the pairs: several clauses linked to one
    sentence where possible, else sentences one after the other."""
    plain: list[tuple[str, str]] = []
    clauses: list[tuple[str, str]] = []
    made = {"plain": 0, "clauses": 0}
    for english, french in pairs[::EVERY]:
        as_clause = all(map(_PLAIN_END.search, (english, french))) and (
            _ENGLISH.match(english) and _FRENCH.match(french)
        )
        if as_clause:
            clauses.append((english, french))
        elif _END.search(english) and _END.search(french):
            plain.append((english, french))
        for name, waiting in (("plain", plain), ("clauses", clauses)):
            if len(waiting) == SIZES[made[name] % len(SIZES)]:
                yield _link(waiting, made[name]) if name == "clauses" else _sequence(waiting)
                made[name] += 1
                waiting.clear()


def _sequence(pairs: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Return sentences one after the other."""
    return " ".join(pair[0] for pair in pairs), " ".join(pair[1] for pair in pairs)


def _link(pairs: Sequence[tuple[str, str]], turn: int) -> tuple[str, str]:
    """Return clauses as one sentence, with the conjunctions of `LINKS` in turn."""
    english, french = pairs[0]
    for number, (more_english, more_french) in enumerate(pairs[1:]):
        link, lien = LINKS[(turn + number) % len(LINKS)]
        if lien.endswith("'") and not _VOWEL_FIRST.match(more_french):
            lien = f"{lien[:-1]}e "  # parce qu'il, parce que tu
        english = english[:-1] + link + more_english[0].lower() + more_english[1:]
        french = french[:-1] + lien + more_french[0].lower() + more_french[1:]
    return english, french
