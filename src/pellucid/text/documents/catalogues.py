"""Gettext catalogues: each message without a translation gets one; everything else is kept.

The file is edited in place rather than written by a library, which would wrap its lines again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from pellucid.errors import InputError
from pellucid.text.documents.spans import (
    Edit,
    Source,
    check_count,
    decode,
    edited,
    has_letter,
    writable,
)
from pellucid.text.preserve import placeholders

_LINE = re.compile(r"([^\r\n]*)(?:\r\n|\r|\n|\Z)")
_KEYWORD = re.compile(r"\s*(msgctxt|msgid_plural|msgid|msgstr)(?:\[(\d{1,3})\])?\s*(?=\")")
_STRING = re.compile(r'\s*("(?:[^"\\\r\n]|\\.)*")\s*\Z')
_CHARSET = re.compile(r"charset=([\w-]+)", re.IGNORECASE)
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_WRITTEN = {value: f"\\{key}" for key, value in _ESCAPED.items()} | {'"': '\\"', "\\": "\\\\"}
_TO_WRITE = re.compile(r'["\\\n\t\r\a\b\f\v]')


@dataclass(slots=True)
class _String:
    """A string of an entry: its value, and the positions of its first and last quote."""

    value: str
    start: int
    end: int


@dataclass(slots=True)
class _Entry:
    start: int = -1
    """Start of its first keyword's line."""
    strings: dict[str, _String] = field(default_factory=dict)
    """By keyword: msgctxt, msgid, msgid_plural, msgstr, or msgstr[0] and so on."""
    flags: tuple[int, int] | None = None
    """Its line of flags, line end included."""
    fuzzy: bool = False
    previous: list[tuple[int, int]] = field(default_factory=list)
    """Lines with the previous message of a fuzzy translation."""


@dataclass(frozen=True, slots=True)
class _Form:
    """A text of an entry: the message or its plural, and the strings that its translation fills."""

    entry: _Entry
    message: str
    targets: tuple[_String, ...]

    @property
    def text(self) -> str:
        """The text to translate, without the white space around it."""
        return self.message.strip()

    def whole(self, translation: str) -> str:
        """Return a translation with the white space that the message has around it."""
        start = self.message.index(self.text)
        after = self.message[start + len(self.text) :]
        return self.message[:start] + writable(translation).strip() + after


def open_catalogue(data: bytes, where: str, overwrite: bool = False) -> Catalogue:
    """Open a .po or .pot document; overwrite: translate again what has a translation."""
    source = decode(data, where)
    entries = _entries(source.text, where)
    return Catalogue(source, entries, _charset_edit(source.text, entries, where), overwrite)


class Catalogue:
    """A gettext catalogue, as a `Document`."""

    def __init__(
        self, source: Source, entries: list[_Entry], charset: Edit | None, overwrite: bool
    ) -> None:
        self._source, self._charset = source, charset
        self._forms = [form for entry in entries for form in _forms(entry, overwrite)]

    def texts(self) -> list[str]:
        """Return the messages to translate, a plural after its singular."""
        return [form.text for form in self._forms]

    def groups(self) -> list[int]:
        """Return a number for each message: each is a group of its own."""
        return list(range(len(self._forms)))

    def rebuilt(self, translations: Sequence[str]) -> bytes:
        """Return the catalogue with these translations; an empty one leaves its message as it is.

        A fuzzy entry loses its flag. An entry whose translation has other placeholders than its
        message gets the flag, so that no program crashes on it before somebody has checked it.
        """
        check_count(translations, len(self._forms))
        text, edits = self._source.text, []
        intact: dict[int, bool] = {}
        entries: dict[int, _Entry] = {}
        for form, translation in zip(self._forms, translations, strict=True):
            if not translation.strip():
                continue
            whole = form.whole(translation)
            matches = placeholders(whole) == placeholders(form.message)
            intact[id(form.entry)] = intact.get(id(form.entry), True) and matches
            entries[id(form.entry)] = form.entry
            for target in form.targets:
                edits.append(Edit(target.start, target.end, _quoted(whole, _line_end(text))))
        for key, entry in entries.items():
            edits += _flag_edits(text, entry, fuzzy=not intact[key])
        if edits and self._charset:
            edits.append(self._charset)
        return self._source.bytes_of(edited(text, edits))


def _entries(text: str, where: str) -> list[_Entry]:
    """Parse the entries of a catalogue, without the obsolete ones."""
    entries = [_Entry()]
    current: _String | None = None
    for number, line in enumerate(_LINE.finditer(text), 1):
        content = line[1].strip()
        if not content or content.startswith("#"):
            current = None
            if content and "msgid" in entries[-1].strings:
                entries.append(_Entry())
            _comment(entries[-1], content, line.span())
            continue
        keyword = _KEYWORD.match(line[1])
        string = _STRING.match(line[1], keyword.end() if keyword else 0)
        if string is None or (keyword is None and current is None):
            raise InputError(f"{where} is not a catalogue at line {number}: {content[:40]!r}")
        start, end = (line.start() + place for place in string.span(1))
        value = _ESCAPE.sub(_unescaped, string[1][1:-1])
        if keyword is None and current is not None:
            current.value += value
            current.end = end
            continue
        name = f"{keyword[1]}[{int(keyword[2])}]" if keyword and keyword[2] else ""
        name = name or (keyword[1] if keyword else "")
        if name in ("msgctxt", "msgid") and "msgid" in entries[-1].strings:
            entries.append(_Entry())
        if name in entries[-1].strings or (
            name not in ("msgctxt", "msgid") and "msgid" not in entries[-1].strings
        ):
            raise InputError(f"{where} is not a catalogue at line {number}: {name} is out of place")
        if entries[-1].start < 0:
            entries[-1].start = line.start()
        current = entries[-1].strings[name] = _String(value, start, end)
    return [entry for entry in entries if "msgid" in entry.strings]


def _comment(entry: _Entry, content: str, span: tuple[int, int]) -> None:
    if content.startswith("#,"):
        fuzzy = "fuzzy" in [flag.strip() for flag in content[2:].split(",")]
        if fuzzy or entry.flags is None:  # of several lines of flags, the one with "fuzzy"
            entry.flags = span
        entry.fuzzy = entry.fuzzy or fuzzy
    elif content.startswith("#|"):
        entry.previous.append(span)


def _forms(entry: _Entry, overwrite: bool) -> list[_Form]:
    """Return the texts of an entry that need a translation."""
    strings = entry.strings
    message = strings["msgid"].value
    if not message:  # the header
        return []
    plural = strings.get("msgid_plural")
    targets = [name for name in strings if name.startswith("msgstr")]
    wanted = [n for n in targets if overwrite or entry.fuzzy or not strings[n].value]
    if plural is None:
        filled = [(message, wanted[:1])]
    elif len(targets) == 1:  # a language with one form for all numbers
        filled = [(plural.value, wanted)]
    else:
        filled = [
            (message, [name for name in wanted if name == "msgstr[0]"]),
            (plural.value, [name for name in wanted if name != "msgstr[0]"]),
        ]
    return [
        _Form(entry, text, tuple(strings[name] for name in names))
        for text, names in filled
        if names and has_letter(text)
    ]


def _flag_edits(text: str, entry: _Entry, fuzzy: bool) -> list[Edit]:
    """Return the edits that set or remove an entry's fuzzy flag."""
    if fuzzy == entry.fuzzy:
        return []
    if entry.flags is None:
        return [Edit(entry.start, entry.start, f"#, fuzzy{_line_end(text)}")]
    start, end = entry.flags
    line = text[start:end]
    content = line.rstrip("\r\n")
    flags = [flag.strip() for flag in content.strip()[2:].split(",")]
    flags = [*flags, "fuzzy"] if fuzzy else [flag for flag in flags if flag != "fuzzy"]
    new = f"#, {', '.join(flags)}{line[len(content) :]}" if flags else ""
    gone = [] if fuzzy else [Edit(a, b, "") for a, b in entry.previous]
    return [Edit(start, end, new), *gone]


def _charset_edit(text: str, entries: list[_Entry], where: str) -> Edit | None:
    """Return the edit that changes the charset of a header to UTF-8, if the file is ASCII."""
    header = entries[0].strings if entries and not entries[0].strings["msgid"].value else {}
    if "msgstr" not in header:
        return None
    place = header["msgstr"]
    declared = _CHARSET.search(text, place.start, place.end)
    if declared is None or declared[1].lower().replace("-", "") == "utf8":
        return None
    if not text.isascii():
        raise InputError(
            f"{where} names the encoding {declared[1]}: convert it (msgconv --to-code=UTF-8)"
        )
    return Edit(*declared.span(1), "UTF-8")


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text[:4096] else "\n"


def _unescaped(match: re.Match[str]) -> str:
    octal, hexadecimal, character = match.groups()
    if octal or hexadecimal:
        return chr(int(octal, 8) if octal else int(hexadecimal, 16))
    return _ESCAPED.get(character, character)


def _quoted(value: str, line_end: str) -> str:
    """Return a string as written in a catalogue, each of its lines on a line."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", value) if "\n" in value[:-1] else [value]
    quoted = [f'"{_TO_WRITE.sub(lambda match: _WRITTEN[match[0]], line)}"' for line in lines]
    return quoted[0] if len(quoted) == 1 else line_end.join(['""', *quoted])
