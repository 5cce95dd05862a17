"""Text that a translation must preserve: addresses, paths, code, placeholders, numbers.

`protected` finds where it is. `Preserved` carries it through a translation: it checks and repairs
a translation, and rewrites a text whose translation lost something. For programs that translate
with something else, `protect` puts a mark in the place of each span, and `placeholders` compares a
message with its translation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pellucid.text.passage import Passage, Unit

# Every pattern has a fixed beginning and a bounded length, or runs to the next space, so that the
# search takes time in proportion to the text.
_PLACEHOLDER = (
    r"%\(\w{1,80}\)[-+#0]*\d{0,4}(?:\.\d{1,4})?[diouxXeEfFgGcrsa]"  # %(name)s
    r"|(?<![\d\w])%(?:\d{1,2}\$)?[-+#0]*\d{0,4}(?:\.\d{1,4})?(?:hh|h|ll|l|L|z|j|t)?"
    r"[diouxXeEfFgGcrsap@](?![^\W_])"  # %s %2$d %.2f
    r"|(?<![\d\w])%(?:\d{1,2}|n|L\d{1,2})(?![\w%])"  # %1 %n
    # {name} {0:.2f} ${name} {{ name }}
    r"|\$?\{\{?[ ]?[\w.\[\]]{0,80}(?:![rsa])?(?::[^{}\s]{0,40})?[ ]?\}?\}"
    r"|%[A-Z_]{2,40}%"  # %PATH%
    r"|%%"
)
_PATTERNS = {
    "code": r"`{1,3}[^`\n]{1,500}`{1,3}",
    "tag": r"</?[a-zA-Z][^<>\n]{0,300}>|<!--[^\n<]{0,300}?-->"
    r"|&(?:#\d{1,7}|#x[0-9a-fA-F]{1,6}|\w{2,31});",
    "url": r"(?<!\w)(?i:https?|ftp|file|mailto|tel)://?[^\s<>\"«»“”{}|\\^`]{1,4000}"
    r"|(?<![\w@])(?i:www)\.[^\s<>\"«»“”{}|\\^`]{1,4000}",
    "email": r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}",
    "placeholder": _PLACEHOLDER,
    "path": r"(?<![\w./\\])(?:[A-Za-z]:\\|\\\\|~/|\.{1,2}/|/(?=[\w.]{1,100}/))"
    r"[^\s<>\"'«»|*?]{1,1000}"
    r"|(?<![\w./-])[\w-]{1,80}(?:[/.][\w-]{1,80}){0,20}\.(?:txt|md|html?|css|js|ts|json|ya?ml|toml|ini"
    r"|cfg|conf|xml|csv|tsv|po|mo|tmx|srt|pdf|docx?|xlsx?|pptx?|odt|png|jpe?g|gif|svg|webp|mp[34]|wav"
    r"|zip|gz|tar|zst|exe|dll|so|py|rs|go|c|h|cpp|java|rb|sh|bat|sql|log|lock|env)(?!\w)",
    "option": r"(?<![\w-])--[a-zA-Z](?:-?\w){1,60}(?:=[\w./-]{1,100})?(?![\w-])",
    "quantity": r"(?<![\w.,])[-+−]?\d{1,18}(?:[.,\u00a0\u202f]\d{1,18}){0,8}[ \u00a0\u202f]?"
    r"(?:%|‰|°[CF]?|[€$£¥]|k[gmWB]|[cm]m|mg|m[lL]|[cd]l|[MGT]B|[KMG]iB|kWh|[kMG]?Hz|km/h|m[²³]?|g|L|V|W)"
    r"(?![\w])",
    "emoji": r"(?:[\U0001f1e6-\U0001f1ff]{2}|[\U0001f000-\U0001faff\u2600-\u27bf\u2b50]"
    r"(?:\ufe0f|\u20e3|[\U0001f3fb-\U0001f3ff]|[\U000e0020-\U000e007f]{1,10}"
    r"|\u200d[\U0001f000-\U0001faff\u2600-\u27bf]){0,12})",
}
_ONLY_PLACEHOLDERS = re.compile(f"{_PLACEHOLDER}|{_PATTERNS['tag']}")
_TRAILING = ".,;:!?'’)]…*_"
_MARK = re.compile(r"⟦\s*([0-9]{1,6})\s*⟧")
_ANY = re.compile(
    "|".join(f"(?P<{kind}>{part})" for kind, part in {"mark": _MARK.pattern, **_PATTERNS}.items())
)

_LETTER = re.compile(r"[^\W\d_]")
_NUMBER = re.compile(r"\d+(?:[.,\u00a0\u202f ]\d{3})*(?:[.,]\d+)?")
_NO_DIGITS = re.compile(r"\D+")
_DIGIT = re.compile(r"\d")
_QUARTERS = {"15", "30", "45"}  # "half past" and the like have no digits
_CLOCK = re.compile(r"\d\s?(?:h\b|heures?\b|:\s?\d|[ap]\.?m\b|o['\u2019]clock)", re.IGNORECASE)
_TIME = re.compile(r"(?<![\d:])(\d{1,2})\s?[h:]\s?(\d{2})(?![\d:])", re.IGNORECASE)
_HALF_DAY = re.compile(
    r"[ap]\.?m\b|soir|matin|midi|nuit|morning|noon|evening|night|abend|morgen|mittag|nacht",
    re.IGNORECASE,
)
_ADDRESSES = ("url", "email", "placeholder", "path")
_CHECKED = ("code", "tag", "url", "email", "placeholder", "path", "option", "emoji", "mark")

NAMES = ("Tom", "Mary", "John")
"""Stand-ins for addresses: words that every model copies."""

ROUND_NUMBERS = ("20", "30", "50", "40", "60")
"""Stand-ins for numbers."""

KINDS = (*_PATTERNS, "mark")


@dataclass(frozen=True, slots=True)
class ProtectedSpan:
    """A span of a text that is not to be translated."""

    start: int
    end: int
    kind: str


def protected(text: str, kinds: tuple[str, ...] = KINDS) -> list[ProtectedSpan]:
    """Find the spans of a text that a translation must keep unchanged, in order.

    They never overlap. Kinds: code (in backticks), tag (and character entity), url, email,
    placeholder, path (and file name), option (of a command), quantity (a number with its unit),
    emoji, and mark (what looks like a mark of `protect`).
    """
    found = []
    for match in _ANY.finditer(text):
        kind = match.lastgroup or ""
        start, end = match.span()
        if kind in ("url", "path", "email"):
            end = _without_trailing(text, start, end)
        if kind in kinds and end > start:
            found.append(ProtectedSpan(start, end, kind))
    return found


def _without_trailing(text: str, start: int, end: int) -> int:
    """Return the end of an address without the punctuation of the sentence around it."""
    while end > start and text[end - 1] in _TRAILING:
        if text[end - 1] == ")" and text.count("(", start, end) >= text.count(")", start, end):
            break
        end -= 1
    return end


def has_words(text: str) -> bool:
    """Tell whether there is a letter outside of addresses, code and the like."""
    if not _LETTER.search(text):
        return False
    position = 0
    for span in protected(text):
        if _LETTER.search(text, position, span.start):
            return True
        position = span.end
    return _LETTER.search(text, position) is not None


def names_for_addresses(text: str) -> str:
    """Return the text with a short name for each address, as a model may read it."""
    for span in reversed(protected(text, _ADDRESSES)):
        text = f"{text[: span.start]}{NAMES[0]}{text[span.end :]}"
    return text


@dataclass(frozen=True, slots=True)
class Preserved:
    """What must survive the translation of a text: addresses, code, emoji, numbers and the like.

    `repaired` checks a translation and puts right what it can. If something is lost, translate the
    text again as `with_stand_ins` rewrites it, and if that fails too, as `without_protected` does.
    """

    text: str

    def repaired(self, translation: str) -> str | None:
        """Return the translation with everything that must survive, or None if some of it is lost.

        What came through with other spaces or capitals is put right, and a number that came out as
        another one is set back, where it is clear which.
        """
        for span in protected(self.text, _CHECKED):
            exact = self.text[span.start : span.end]
            if translation.count(exact) >= self.text.count(exact):
                continue
            if span.kind == "emoji" or len(exact) > 300:
                return None
            loose = re.compile(r"\s*".join(map(re.escape, exact)), re.IGNORECASE)
            translation, count = loose.subn(exact.replace("\\", "\\\\"), translation)
            if count < self.text.count(exact):
                return None
        return _with_numbers(self.text, translation)

    def with_stand_ins(self) -> Rewritten | None:
        """Return the text with round numbers for its numbers and names for its addresses.

        A model copies those. None where that cannot be done, as for emoji and tags, which are no
        part of the sentence's grammar.
        """
        names, numbers = (
            [word for word in words if word not in self.text] for words in (NAMES, ROUND_NUMBERS)
        )
        written, pairs, position = "", [], 0
        for start, end, kind in self._spans():
            if kind not in _ADDRESSES and kind != "number":
                return None
            free = numbers if kind == "number" else names
            if not free:
                return None
            word = free.pop(0)
            pairs.append((word, self.text[start:end]))
            written += self.text[position:start] + word
            position = end
        if not pairs:
            return None
        return Rewritten(self, Passage((Unit(written + self.text[position:], 0),)), tuple(pairs))

    def without_protected(self) -> Rewritten:
        """Return the text cut at what must survive: what is cut out cannot be lost."""
        parts: list[str | Unit] = []
        position = 0
        for start, end, _ in [*self._spans(), (len(self.text), len(self.text), "")]:
            between = self.text[position:start]
            core = between.strip()
            before = between[: len(between) - len(between.lstrip())]
            after = between[len(before) + len(core) :]
            unit = Unit(core, 0, part=True) if has_words(core) else core
            parts += [before, unit, after, self.text[start:end]]
            position = end
        return Rewritten(self, Passage(tuple(part for part in parts if part)))

    def _spans(self) -> list[tuple[int, int, str]]:
        """Return start, end and kind of all that must survive, numbers included, in order."""
        spans = [(span.start, span.end, span.kind) for span in protected(self.text)]
        for pattern in (_TIME, _NUMBER):
            for found in pattern.finditer(self.text):
                if all(found.end() <= a or found.start() >= b for a, b, _ in spans):
                    spans.append((*found.span(), "number"))
        return sorted(spans)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A text in a form from which a translation can lose nothing, or shows that it did."""

    preserved: Preserved
    passage: Passage
    """What to translate in place of the text."""
    stand_ins: tuple[tuple[str, str], ...] = ()
    """Words that are in it for others, and the others."""

    def restored(self, translations: Sequence[str], language: str | None = None) -> str | None:
        """Return the translation of the text, from those of the passage's units.

        None if a stand-in is not in its translation exactly once, or something else is lost.
        """
        if not self.stand_ins:
            return self.passage.joined(translations, language)
        (translation,) = translations
        for word, exact in self.stand_ins:
            alone = re.compile(rf"(?<!\w){word}(?!\w)")
            if len(alone.findall(translation)) != 1:
                return None
            translation = alone.sub(exact.replace("\\", "\\\\"), translation)
        return self.preserved.repaired(translation)


def _with_numbers(source: str, translation: str) -> str | None:
    """Return the translation with its source's numbers, or None if one of 3 digits or more is lost.

    A smaller one is often a word in the other language, so it is only set back where another number
    is in its place; of times of day only the minutes must survive, as 5:20 p.m. may become 17 h 20.
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
        wanted, present = _numbers(source, large), _numbers(translation, large)
        known, seen = {digits for digits, _ in wanted}, {digits for digits, _ in present}
        lost = [match[0] for digits, match in wanted if digits not in seen]
        if large:  # it may be cut in other places there
            everything = " ".join(_NO_DIGITS.sub(" ", translation).split())
            together = _NO_DIGITS.sub("", translation)
            lost = [n for n in lost if _NO_DIGITS.sub("", n) not in f"{everything}/{together}"]
        strange = [match for digits, match in present if digits not in known]
        if len(strange) != len(lost):
            if large and lost:
                return None
            continue
        for match, written in reversed(list(zip(strange, lost, strict=True))):
            translation = translation[: match.start()] + written + translation[match.end() :]
    return translation


def _with_hour(source: str, translation: str) -> str:
    """Return the translation with its source's hour, for one time of day in a 24-hour clock."""
    wanted, present = list(_TIME.finditer(source)), list(_TIME.finditer(translation))
    if len(wanted) != 1 or len(present) != 1 or wanted[0][2] != present[0][2]:
        return translation
    if _HALF_DAY.search(source) or _HALF_DAY.search(translation):
        return translation
    start, end = present[0].span(1)
    return translation[:start] + wanted[0][1] + translation[end:]


def _numbers(text: str, large: bool | None) -> list[tuple[str, re.Match[str]]]:
    """Find the numbers of a text, each with its digits alone.

    large: those of three digits and more, or the others; None for all.
    """
    found = ((_NO_DIGITS.sub("", match[0]), match) for match in _NUMBER.finditer(text))
    return [
        (digits, match) for digits, match in found if large is None or (len(digits) >= 3) == large
    ]


def placeholders(text: str) -> list[str]:
    """Return the placeholders and tags of a message, sorted: a translation must have the same.

    Knows %s, %2$d, %(name)s, %1, {name}, {0:.2f}, {{name}}, ${name}, %NAME%, <b> and &amp;.
    """
    return sorted(match[0] for match in _ONLY_PLACEHOLDERS.finditer(text))


@dataclass(frozen=True, slots=True)
class Protection:
    """A text with marks in the place of its protected spans, and the text of these."""

    text: str
    pieces: tuple[str, ...]

    def restored(self, translation: str) -> str:
        """Return the translation with each mark replaced by its piece; unknown marks stay."""

        def piece(match: re.Match[str]) -> str:
            number = int(match[1])
            return self.pieces[number] if number < len(self.pieces) else match[0]

        return _MARK.sub(piece, translation)

    def missing(self, translation: str) -> list[str]:
        """Return the pieces whose mark the translation has lost."""
        present = {int(match[1]) for match in _MARK.finditer(translation)}
        return [piece for number, piece in enumerate(self.pieces) if number not in present]


def protect(text: str, kinds: tuple[str, ...] = KINDS) -> Protection:
    """Put a mark such as ⟦0⟧ in the place of each protected span of a text.

    `protect(text).restored(protect(text).text) == text` for any text: marks that it already
    contains are protected too.
    """
    parts: list[str] = []
    pieces: list[str] = []
    position = 0
    for span in protected(text, (*kinds, "mark")):
        parts += [text[position : span.start], f"⟦{len(pieces)}⟧"]
        pieces.append(text[span.start : span.end])
        position = span.end
    return Protection("".join([*parts, text[position:]]), tuple(pieces))
