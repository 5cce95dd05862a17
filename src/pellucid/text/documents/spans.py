"""Edits of a document in place, and its bytes as characters and back."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pellucid.errors import InputError
from pellucid.text.sentences import LINE_BREAKS

MAX_BYTES = 64 * 1024 * 1024
"""Maximum size of a document: it is held in memory as a whole."""

_BYTE_ORDER_MARKS = [  # the longer ones first: UTF-32's begins with UTF-16's
    (codecs.BOM_UTF32_LE, ""),
    (codecs.BOM_UTF32_BE, ""),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
]
_BREAK = re.compile(rf"[{LINE_BREAKS}]+")
# Punctuation that stays at the markup: what closes after it, what opens before it.
_CLOSE = re.compile(r"[)\]}»”’\"'/—–-]*\s*[,.;:!?)\]}»”…，。、；：！？]*")
_OPEN = "([{«“„‚\"'/:—–-"
_UNWRITABLE = re.compile("[\x00\ud800-\udfff]")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\uffef]")


@dataclass(frozen=True, slots=True)
class Source:
    """A document's characters and their encoding."""

    text: str
    encoding: str
    mark: bytes

    def bytes_of(self, text: str) -> bytes:
        """Return another text in this document's encoding."""
        return self.mark + text.encode(self.encoding)


def decode(data: bytes, where: str) -> Source:
    """Decode a document in UTF-8, or in UTF-16 with its byte order mark."""
    if len(data) > MAX_BYTES:
        size = f"{len(data):,} bytes"
        raise InputError(f"{where} has {size}: at most {MAX_BYTES:,} are read, so cut it in parts")
    mark, encoding = next(
        ((mark, name) for mark, name in _BYTE_ORDER_MARKS if data.startswith(mark)), (b"", "utf-8")
    )
    if not encoding:
        raise InputError(f"{where} is in UTF-32: save it as UTF-8")
    try:
        text = data[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        place = error.start + len(mark)
        name = encoding[:6].upper().rstrip("-")
        raise InputError(
            f"{where} is not text in {name} (byte {place:,}): save it as UTF-8"
        ) from None
    if "\x00" in text:
        place = text.index("\x00")
        raise InputError(
            f"{where} has a NUL (character {place:,}): it is not text, or UTF-16 without its mark; "
            "save it as UTF-8"
        )
    return Source(text, encoding, mark)


@dataclass(frozen=True, slots=True)
class Edit:
    """A replacement of the characters from `start` to `end`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Slot:
    """A text in a document: its position, and how a translation is written there."""

    text: str
    pieces: tuple[tuple[int, int], ...]
    """Its position: start and end on each line."""
    encode: Callable[[str, int, int], str]
    """Escapes a line of a translation, given the start and end of what it replaces."""
    group: int
    companions: tuple[Edit, ...] = ()
    """Further edits, made only if the text changes."""

    def edits(self, translation: str) -> list[Edit]:
        """Return the edits that put a translation in place of the text."""
        clean = _BREAK.sub(" ", writable(translation)).strip()
        if not clean or translation == self.text:
            return []
        lines = [clean] if len(self.pieces) == 1 else broken(clean, len(self.pieces))
        found = [
            Edit(start, end, self.encode(line, start, end))
            for line, (start, end) in zip(lines, self.pieces, strict=False)
        ]
        if len(lines) < len(self.pieces):  # the lines that are not needed go, with their breaks
            found.append(Edit(self.pieces[len(lines) - 1][1], self.pieces[-1][1], ""))
        return [*found, *self.companions]


class SpanDocument:
    """A `Document` whose texts are replaced in place."""

    def __init__(self, source: Source, slots: list[Slot], edits: Sequence[Edit] = ()) -> None:
        self._source, self._slots, self._edits = source, slots, edits

    def texts(self) -> list[str]:
        """Return the texts to translate, in order."""
        return [slot.text for slot in self._slots]

    def groups(self) -> list[int]:
        """Return for each text the number of its paragraph."""
        return [slot.group for slot in self._slots]

    def rebuilt(self, translations: Sequence[str]) -> bytes:
        """Return the document with its texts replaced."""
        check_count(translations, len(self._slots))
        edits = list(self._edits)
        for slot, translation in zip(self._slots, translations, strict=True):
            edits += slot.edits(translation)
        return self._source.bytes_of(edited(self._source.text, edits))


def has_letter(text: str) -> bool:
    """Tell whether there is anything to translate in a text."""
    return any(character.isalpha() for character in text)


def writable(text: str) -> str:
    """Return a text with lone surrogates and NUL replaced by U+FFFD."""
    return _UNWRITABLE.sub("\ufffd", text)


def check_count(translations: Sequence[str], texts: int) -> None:
    """Raise an InputError unless there is one translation for each text."""
    if isinstance(translations, str) or len(translations) != texts:
        given = "one string" if isinstance(translations, str) else f"{len(translations)}"
        raise InputError(
            f"{given} given as translations for {texts} texts: give one for each of texts()"
        )


def edited(text: str, edits: Sequence[Edit]) -> str:
    """Apply edits to a text; an edit given twice is applied once."""
    parts, position = [], 0
    for edit in sorted(set(edits), key=lambda edit: (edit.start, edit.end)):
        if edit.start < position:
            raise ValueError(f"edits overlap at character {edit.start}")  # a bug
        parts += [text[position : edit.start], edit.text]
        position = edit.end
    return "".join([*parts, text[position:]])


class Runs:
    """Collects the text between markup into slots.

    A parser reports the position of text, line by line, and of markup, which ends a text. Spaces
    around a text are not part of it, and a text without any letter is not translated.
    """

    def __init__(
        self,
        source: str,
        decode: Callable[[str], str],
        encode: Callable[[str, int, int], str],
        spaces: tuple[str, ...] = (),
    ) -> None:
        self.slots: list[Slot] = []
        self.group = 0
        self._source, self._decode, self._encode = source, decode, encode
        self._spaces = spaces  # what else counts as white space at the ends of a line
        self._pieces: list[tuple[int, int]] = []
        self._open = False  # whether the last piece may continue
        self._after_mark = False

    def text(self, start: int, end: int) -> None:
        """Add text from `start` to `end`, on one line; adjacent text is one piece."""
        if start >= end:
            return
        if self._open and self._pieces[-1][1] == start:
            self._pieces[-1] = (self._pieces[-1][0], end)
        else:
            self._pieces.append((start, end))
        self._open = True

    def line(self) -> None:
        """Add a line break that does not end a sentence."""
        self._open = False

    def mark(self, *, paragraph: bool = False) -> None:
        """Add markup: end the current text, and with `paragraph` also its group."""
        self._pieces = self._without_punctuation(before_mark=not paragraph)
        pieces = [piece for piece in map(self._trimmed, self._pieces) if piece[0] < piece[1]]
        self._pieces, self._open, self._after_mark = [], False, not paragraph
        text = " ".join(self._decode(self._source[a:b]) for a, b in pieces).strip()
        if has_letter(text):
            self.slots.append(Slot(text, tuple(pieces), self._encode, self.group))
        if paragraph and self.slots and self.slots[-1].group == self.group:
            self.group += 1

    def _without_punctuation(self, before_mark: bool) -> list[tuple[int, int]]:
        """Return the current pieces without the punctuation between them and markup.

        The comma after an emphasised word must stay where it is: without it, Markdown would not
        always recognise the end of the emphasis, and a model would not know what to do with it.
        """
        pieces = list(self._pieces)
        if pieces and self._after_mark:
            start, end = pieces[0]
            close = _CLOSE.match(self._source, start, end)
            pieces[0] = (close.end() if close else start, end)
        if pieces and before_mark:
            start, end = pieces[-1]
            while start < end and self._source[end - 1] in _OPEN:
                end -= 1
            pieces[-1] = (start, end)
        return pieces

    def _trimmed(self, piece: tuple[int, int]) -> tuple[int, int]:
        source, (start, end) = self._source, piece
        while start < end:
            if source[start].isspace():
                start += 1
            elif source[end - 1].isspace():
                end -= 1
            elif self._spaces and source.startswith(self._spaces, start, end):
                start = source.index(";", start) + 1
            elif self._spaces and source.endswith(self._spaces, start, end):
                end = source.rindex("&", start, end)
            else:
                break
        return start, end


def broken(text: str, lines: int) -> list[str]:
    """Break a text into at most so many lines of about the same length, at spaces.

    Scripts without spaces (Chinese, Japanese, Thai) are broken between any two characters.
    """
    spaces = [match.start() for match in re.finditer(r" +", text)]
    if len(spaces) < lines - 1 and _UNSPACED.search(text):
        spaces = [
            place
            for place in range(1, len(text))
            if _UNSPACED.match(text, place - 1) and _UNSPACED.match(text, place)
        ]
    found, start, at = [], 0, 0
    for left in range(lines, 1, -1):
        goal = start + (len(text) - start) / left
        while at < len(spaces) and spaces[at] < goal:
            at += 1
        near = [place for place in spaces[max(at - 1, 0) : at + 1] if place > start]
        if not near:
            break
        cut = min(near, key=lambda place: abs(place - goal))
        found.append(text[start:cut].strip())
        start = cut
    return [line for line in [*found, text[start:].strip()] if line]
