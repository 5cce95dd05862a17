"""A text of any length as units that a model can read, and their translations as a text again.

White space, line breaks, list marks and whatever has no letter in it are kept as they stand;
the units between them are sentences, and the parts of sentences that are too long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pellucid.text.documents.protected import protected
from pellucid.text.sentences import LINE_BREAKS, segment, split_long

_BREAKS = re.compile(f"[{LINE_BREAKS}]+")
_LETTER = re.compile(r"[^\W\d_]")
_NUMBER = re.compile(r"\d+(?:[.,\u00a0\u202f ]\d{3})*(?:[.,]\d+)?")
_DIGITS = re.compile(r"\D+")
_CLOCK = re.compile(r"\d\s?(?:h\b|heures?\b|:\s?\d|[ap]\.?m\b|o['\u2019]clock)", re.IGNORECASE)
_CHECKED = ("code", "tag", "url", "email", "placeholder", "path", "option", "emoji", "mark")


@dataclass(frozen=True, slots=True)
class Unit:
    """What a model reads at once."""

    text: str
    sentence: int
    """Which sentence of the text it is, or is a part of."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A text in its parts: strings that stay, and units to be translated."""

    parts: tuple[str | Unit, ...]
    split: int = 0
    """How many sentences were too long and are translated in parts."""

    @property
    def units(self) -> list[Unit]:
        """What is to be translated, in order."""
        return [part for part in self.parts if isinstance(part, Unit)]

    def joined(self, translations: Sequence[str]) -> str:
        """The text with each unit replaced by its translation, which gets no line breaks in."""
        rest = iter(translations)
        return "".join(
            part if isinstance(part, str) else one_line(next(rest)) for part in self.parts
        )


def one_line(text: str) -> str:
    """The text with line breaks of any kind as spaces."""
    return _BREAKS.sub(" ", text)


def has_words(text: str) -> bool:
    """Whether there is a letter outside of addresses, code and the like."""
    if not _LETTER.search(text):
        return False
    position = 0
    for piece in protected(text):
        if _LETTER.search(text, position, piece.start):
            return True
        position = piece.end
    return _LETTER.search(text, position) is not None


def cut(
    text: str,
    language: str | None = None,
    *,
    limit: int | None = None,
    length: Callable[[str], int] = len,
) -> Passage:
    """Cut a text into units of at most `limit`, as `length` measures them."""
    parts: list[str | Unit] = []
    split = 0
    for number, sentence in enumerate(segment(text, language)):
        parts.append(sentence.before)
        if not has_words(sentence.core):
            parts.append(sentence.core)
        elif limit is None or _fits(sentence.core, limit, length):
            parts.append(Unit(sentence.core, number))
        else:
            split += 1
            for part in split_long(sentence.core, limit, length):
                core = part.rstrip()
                parts += [Unit(core, number) if has_words(core) else core, part[len(core) :]]
        parts.append(sentence.after)
    return Passage(tuple(part for part in parts if part), split)


def _fits(text: str, limit: int, length: Callable[[str], int]) -> bool:
    """Whether a text is within the limit; a token has at least a byte, but for the first space."""
    return len(text.encode("utf-8", "replace")) < limit or length(text) <= limit


def without_protected(text: str) -> Passage:
    """The text cut at what must survive as it is: addresses, code, emoji, numbers.

    For a translation that has lost some of it: what is cut out cannot be lost.
    """
    fixed = [(p.start, p.end) for p in protected(text)]
    for number in _NUMBER.finditer(text):
        if all(number.end() <= a or number.start() >= b for a, b in fixed):
            fixed.append(number.span())
    parts: list[str | Unit] = []
    position = 0
    for start, end in [*sorted(fixed), (len(text), len(text))]:
        between = text[position:start]
        core = between.strip()
        before = between[: len(between) - len(between.lstrip())]
        after = between[len(before) + len(core) :]
        parts += [before, Unit(core, 0) if has_words(core) else core, after, text[start:end]]
        position = end
    return Passage(tuple(part for part in parts if part))


def mended(source: str, translation: str) -> str | None:
    """The translation with all pieces of the source that must survive, or None if some are lost.

    A piece that came through with other spaces or capitals is put right, and a number that came
    out as another one is set back, where it is clear which.
    """
    for piece in protected(source, _CHECKED):
        exact = source[piece.start : piece.end]
        if translation.count(exact) >= source.count(exact):
            continue
        if piece.kind == "emoji" or len(exact) > 300:
            return None
        loose = re.compile(r"\s*".join(map(re.escape, exact)), re.IGNORECASE)
        translation, count = loose.subn(exact.replace("\\", "\\\\"), translation)
        if count < source.count(exact):
            return None
    return _with_numbers(source, translation)


def _with_numbers(source: str, translation: str) -> str | None:
    """The same with its numbers, or None if one of three digits and more is lost.

    A smaller one is often a word on the other side, so it is only set back where another stands in
    its place; and times of day are left alone, as 5 p.m. may well become 17 h.
    """
    for large in (True, False):
        if not large and (_CLOCK.search(source) or _CLOCK.search(translation)):
            break
        wanted, there = _numbers(source, large), _numbers(translation, large)
        known, seen = {digits for digits, _ in wanted}, {digits for digits, _ in there}
        lost = [match[0] for digits, match in wanted if digits not in seen]
        if large:  # it may be cut in other places there
            everything = " ".join(_DIGITS.sub(" ", translation).split())
            together = _DIGITS.sub("", translation)
            lost = [n for n in lost if _DIGITS.sub("", n) not in f"{everything}/{together}"]
        strange = [match for digits, match in there if digits not in known]
        if len(strange) != len(lost):
            if large and lost:
                return None
            continue
        for match, written in reversed(list(zip(strange, lost, strict=True))):
            translation = translation[: match.start()] + written + translation[match.end() :]
    return translation


def _numbers(text: str, large: bool) -> list[tuple[str, re.Match[str]]]:
    """The numbers of a text with their digits alone: those of three digits and more, or others."""
    found = ((_DIGITS.sub("", match[0]), match) for match in _NUMBER.finditer(text))
    return [(digits, match) for digits, match in found if (len(digits) >= 3) == large]
