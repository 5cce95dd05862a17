"""A text of any length as units that a model can read, and their translations as a text again.

White space, line breaks, list marks and whatever has no letter in it are kept as they stand;
the units between them are sentences, and the parts of sentences that are too long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pellucid.text.preserve import protected
from pellucid.text.sentences import LINE_BREAKS, segment, split_long

_BREAKS = re.compile(f"[{LINE_BREAKS}]+")
_LETTER = re.compile(r"[^\W\d_]")
_NUMBER = re.compile(r"\d+(?:[.,\u00a0\u202f ]\d{3})*(?:[.,]\d+)?")
_DIGITS = re.compile(r"\D+")
_DIGIT = re.compile(r"\d")
_QUARTERS = {"15", "30", "45"}  # "half past" and the like have no digits
_CLOCK = re.compile(r"\d\s?(?:h\b|heures?\b|:\s?\d|[ap]\.?m\b|o['\u2019]clock)", re.IGNORECASE)
_TIME = re.compile(r"(?<![\d:])(\d{1,2})\s?[h:]\s?(\d{2})(?![\d:])", re.IGNORECASE)
_HALF_DAY = re.compile(
    r"[ap]\.?m\b|soir|matin|midi|nuit|morning|noon|evening|night|abend|morgen|mittag|nacht",
    re.IGNORECASE,
)
_CAPITAL_NOUNS = {"de", "lb", "nds"}  # a capital there may well be right
_I = re.compile(r"I\b")
_FULL_STOP = re.compile(r"[^.]\.$")
_NAMED = ("url", "email", "placeholder", "path")
_NAMES = ("Tom", "Mary", "John")
_ROUND_NUMBERS = ("20", "30", "50", "40", "60")
_CHECKED = ("code", "tag", "url", "email", "placeholder", "path", "option", "emoji", "mark")


@dataclass(frozen=True, slots=True)
class Unit:
    """What a model reads at once."""

    text: str
    sentence: int
    """Which sentence of the text it is, or is a part of."""
    part: bool = False
    """Whether it is only a part of that sentence."""


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

    def joined(self, translations: Sequence[str], language: str | None = None) -> str:
        """The text with each unit replaced by its translation, which gets no line breaks in.

        language: that of the translations, which says where capital letters stand.
        """
        rest = iter(translations)
        return "".join(
            part if isinstance(part, str) else _fitted(part, one_line(next(rest)), language)
            for part in self.parts
        )


def _fitted(unit: Unit, translation: str, language: str | None) -> str:
    """A translation; that of a part of a sentence without a full stop that its source has not,
    and with a small letter at its beginning, as in the middle of a sentence."""
    if not unit.part:
        return translation
    small = language is not None and language not in _CAPITAL_NOUNS
    if small and unit.text[0].islower() and not _I.match(translation):
        translation = translation[:1].lower() + translation[1:]
    if not _FULL_STOP.search(translation) or unit.text.endswith("."):
        return translation
    end = unit.text[-1] if unit.text[-1] in ",;:" else ""
    return translation[:-1].rstrip() + end


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
        elif limit is None or _fits(_with_names(sentence.core), limit, length):
            parts.append(Unit(sentence.core, number))
        else:
            split += 1
            for part in _whole(sentence.core, split_long(sentence.core, limit, length)):
                core = part.rstrip()
                unit = Unit(core, number, part=True) if has_words(core) else core
                parts += [unit, part[len(core) :]]
        parts.append(sentence.after)
    return Passage(tuple(part for part in parts if part), split)


def _with_names(text: str) -> str:
    """The text with one short word for each address: how long that is does not count."""
    for piece in reversed(protected(text, _NAMED)):
        text = f"{text[: piece.start]}{_NAMES[0]}{text[piece.end :]}"
    return text


def _whole(text: str, parts: Iterable[str]) -> Iterator[str]:
    """The parts of a text, together where a cut would go through an address or the like."""
    pieces = protected(text)
    position, waiting = 0, ""
    for part in parts:
        position, waiting = position + len(part), waiting + part
        if not any(piece.start < position < piece.end for piece in pieces):
            yield waiting
            waiting = ""
    if waiting:
        yield waiting


def _fits(text: str, limit: int, length: Callable[[str], int]) -> bool:
    """Whether a text is within the limit; a token has at least a byte, but for the first space."""
    return len(text.encode("utf-8", "replace")) < limit or length(text) <= limit


def _fixed(text: str) -> list[tuple[int, int, str]]:
    """Where what must survive stands, in order, and what it is."""
    fixed = [(piece.start, piece.end, piece.kind) for piece in protected(text)]
    for pattern in (_TIME, _NUMBER):
        for found in pattern.finditer(text):
            if all(found.end() <= a or found.start() >= b for a, b, _ in fixed):
                fixed.append((*found.span(), "number"))
    return sorted(fixed)


@dataclass(frozen=True, slots=True)
class StandIns:
    """A text with common words in the place of what must survive: a model copies those."""

    text: str
    pairs: tuple[tuple[str, str], ...]
    """What stands in, and for what."""

    def restored(self, translation: str) -> str | None:
        """The translation with what they stood for, or None if one is not there just once."""
        for word, exact in self.pairs:
            alone = re.compile(rf"(?<!\w){word}(?!\w)")
            if len(alone.findall(translation)) != 1:
                return None
            translation = alone.sub(exact.replace("\\", "\\\\"), translation)
        return translation


def with_stand_ins(text: str) -> StandIns | None:
    """The text with round numbers for its numbers and names for its addresses and the like; None
    where that cannot be done, as for emoji and tags, which are no part of the sentence's grammar.
    """
    names, numbers = (
        [word for word in words if word not in text] for words in (_NAMES, _ROUND_NUMBERS)
    )
    written, pairs, position = "", [], 0
    for start, end, kind in _fixed(text):
        if kind not in _NAMED and kind != "number":
            return None
        free = numbers if kind == "number" else names
        if not free:
            return None
        word = free.pop(0)
        pairs.append((word, text[start:end]))
        written += text[position:start] + word
        position = end
    return StandIns(written + text[position:], tuple(pairs)) if pairs else None


def without_protected(text: str) -> Passage:
    """The text cut at what must survive as it is: addresses, code, emoji, numbers.

    For a translation that has lost some of it: what is cut out cannot be lost.
    """
    parts: list[str | Unit] = []
    position = 0
    for start, end, _ in [*_fixed(text), (len(text), len(text), "")]:
        between = text[position:start]
        core = between.strip()
        before = between[: len(between) - len(between.lstrip())]
        after = between[len(before) + len(core) :]
        unit = Unit(core, 0, part=True) if has_words(core) else core
        parts += [before, unit, after, text[start:end]]
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
    its place; of times of day only the minutes must survive, as 5:20 p.m. may well become 17 h 20.
    """
    minutes = {minute for _, minute in _TIME.findall(source)} - {"00"}
    if (_DIGIT.search(translation) or minutes - _QUARTERS) and (
        minutes - {minute for _, minute in _TIME.findall(translation)}
    ):
        return None
    translation = _with_hour(source, translation)
    for large in (True, False, None):
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


def _with_hour(source: str, translation: str) -> str:
    """The same with the hour of its one time of day, unless someone counts to twelve there."""
    wanted, there = list(_TIME.finditer(source)), list(_TIME.finditer(translation))
    if len(wanted) != 1 or len(there) != 1 or wanted[0][2] != there[0][2]:
        return translation
    if _HALF_DAY.search(source) or _HALF_DAY.search(translation):
        return translation
    start, end = there[0].span(1)
    return translation[:start] + wanted[0][1] + translation[end:]


def _numbers(text: str, large: bool | None) -> list[tuple[str, re.Match[str]]]:
    """The numbers of a text with their digits alone: those of three digits and more, or the
    others, or all."""
    found = ((_DIGITS.sub("", match[0]), match) for match in _NUMBER.finditer(text))
    return [
        (digits, match) for digits, match in found if large is None or (len(digits) >= 3) == large
    ]
