"""Translation memories (TMX): each unit gets a target segment; everything else is kept.

expat parses the file and gives the position of each element; nothing outside of the file is ever
read, and a file that declares entities is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

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

_CODES = frozenset(["bpt", "ept", "it", "ph", "ut"])  # their content is native code, not text
_REFERENCE = re.compile(r"&(?:#(\d{1,7})|#x([0-9a-fA-F]{1,6})|(amp|lt|gt|quot|apos));")
_NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_ENCODING = re.compile(r"<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([\w.-]+)")


@dataclass(slots=True)
class _Variant:
    """A <tuv>: its language and positions, in bytes while parsing and then in characters."""

    language: str
    start: int
    inner: int
    """End of its start tag."""
    end: int = 0
    seg: tuple[int, int] = (0, 0)
    """Its <seg> with its tags."""
    content: tuple[int, int] = (0, 0)
    fragments: list[tuple[int, int]] = field(default_factory=list)
    """Text in <seg> between its tags and codes."""


@dataclass(frozen=True, slots=True)
class _Fragment:
    unit: int
    start: int
    end: int
    text: str


def open_tmx(
    data: bytes, where: str, source: str | None, target: str | None, overwrite: bool = False
) -> TranslationMemory:
    """Open a .tmx document to translate its units from one language into another.

    source: by default the language of the header. A unit that has a target segment is left as it
    is, unless `overwrite`.
    """
    if not target:
        raise InputError(f"{where} is a translation memory: say which language is to be added")
    document = decode(data, where)
    raw = document.text.encode("utf-8")
    parser = _Parser(where, raw)
    parser.read()
    source = source or parser.source
    if not source or source == "*all*":
        raise InputError(f"{where} does not name its source language: say which one it is")
    parser.to_characters()
    return TranslationMemory(document, parser.units, source, target, overwrite, where)


class TranslationMemory:
    """A translation memory. A `Document`."""

    def __init__(
        self,
        document: Source,
        units: list[list[_Variant]],
        source: str,
        target: str,
        overwrite: bool,
        where: str,
    ) -> None:
        self._document, self._target = document, target
        self._ascii = _needs_ascii(document, where)
        self._units: list[tuple[_Variant, _Variant | None]] = []
        self._fragments: list[_Fragment] = []
        text = document.text
        for variants in units:
            origin = _of_language(variants, source)
            there = _of_language([v for v in variants if v is not origin], target)
            done = there is not None and text[slice(*there.content)].strip() != ""
            if origin is None or (done and not overwrite):
                continue
            for start, end in origin.fragments:
                words = _unescaped(text[start:end])
                if has_letter(words):
                    lead = len(text[start:end]) - len(text[start:end].lstrip())
                    stop = start + len(text[start:end].rstrip())
                    number = len(self._units)
                    words = _unescaped(text[start + lead : stop])
                    self._fragments.append(_Fragment(number, start + lead, stop, words))
            self._units.append((origin, there))

    def texts(self) -> list[str]:
        """Return the source text of each unit, in as many parts as codes and tags separate."""
        return [fragment.text for fragment in self._fragments]

    def groups(self) -> list[int]:
        """Return the number of each text's unit."""
        return [fragment.unit for fragment in self._fragments]

    def rebuilt(self, translations: Sequence[str]) -> bytes:
        """Return the memory with these translations; a unit without any is left as it is."""
        check_count(translations, len(self._fragments))
        changes: dict[int, list[Edit]] = {}
        for fragment, translation in zip(self._fragments, translations, strict=True):
            if translation.strip():
                written = self._escaped(writable(translation).strip())
                edit = Edit(fragment.start, fragment.end, written)
                changes.setdefault(fragment.unit, []).append(edit)
        text = self._document.text
        edits = [self._unit_edit(*self._units[unit], made) for unit, made in changes.items()]
        return self._document.bytes_of(edited(text, edits))

    def _escaped(self, words: str) -> str:
        words = escape(_NOT_XML.sub("\ufffd", words))
        return words.encode("ascii", "xmlcharrefreplace").decode() if self._ascii else words

    def _unit_edit(self, origin: _Variant, there: _Variant | None, made: list[Edit]) -> Edit:
        """Return the edit that adds or replaces a unit's target: the source's <seg>, translated."""
        text = self._document.text
        start, end = origin.content
        moved = [Edit(edit.start - start, edit.end - start, edit.text) for edit in made]
        seg = f"<seg>{edited(text[start:end], moved)}</seg>"
        if there is not None:
            return Edit(*there.seg, seg)
        before, after = text[origin.inner : origin.seg[0]], text[origin.seg[1] : origin.end]
        before = before if not before.strip() else ""
        space = after[: len(after) - len(after.lstrip())]
        indent = text[text.rfind(">", max(0, origin.start - 500), origin.start) + 1 : origin.start]
        indent = indent if len(indent) <= 500 and not indent.strip() else ""
        opening = f"{indent}<tuv xml:lang={quoteattr(self._target)}>"
        return Edit(origin.end, origin.end, f"{opening}{before}{seg}{space}</tuv>")


def _of_language(variants: list[_Variant], wanted: str) -> _Variant | None:
    """Return the variant in a language, or else in one of its regional forms."""
    wanted = wanted.lower().replace("_", "-")
    codes = [variant.language.lower().replace("_", "-") for variant in variants]
    for matches in (
        [v for v, code in zip(variants, codes, strict=True) if code == wanted],
        [v for v, code in zip(variants, codes, strict=True) if code.startswith(f"{wanted}-")],
    ):
        if matches:
            return matches[0]
    return None


def _needs_ascii(document: Source, where: str) -> bool:
    declared = _ENCODING.match(document.text)
    if declared is None or declared[1].lower().startswith(("utf-8", "utf8", "utf-16")):
        return False
    if not document.text.isascii():
        raise InputError(f"{where} names the encoding {declared[1]}: save it as UTF-8")
    return True


def _unescaped(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        decimal, hexadecimal, name = match.groups()
        return _NAMED[name] if name else chr(int(decimal) if decimal else int(hexadecimal, 16))

    return _REFERENCE.sub(character, text)


class _Parser:
    """Handles expat's events and records the positions of units, variants and their texts."""

    def __init__(self, where: str, raw: bytes) -> None:
        self.where, self.raw = where, raw
        self.source: str | None = None
        self.units: list[list[_Variant]] = []
        self._variant: _Variant | None = None
        self._inside: list[str] = []  # names of the open elements within <seg>
        self._text_from = -1  # start of the current text, or -1
        self._is_tmx = False
        self._parser = expat.ParserCreate("utf-8")
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.EntityDeclHandler = self._refuse_entity
        self._parser.CommentHandler = lambda _comment: self._pause()
        self._parser.ProcessingInstructionHandler = lambda _target, _data: self._pause()
        self._parser.StartCdataSectionHandler = self._pause
        self._parser.EndCdataSectionHandler = lambda: None

    def read(self) -> None:
        """Parse the whole file."""
        try:
            self._parser.Parse(self.raw, True)
        except expat.ExpatError as error:
            what = expat.errors.messages[error.code]
            raise InputError(f"{self.where} is not XML at line {error.lineno}: {what}") from None
        if not self._is_tmx:
            raise InputError(f"{self.where} is not a translation memory: it has no <tmx>")

    def _refuse_entity(self, name: str, *_: object) -> None:
        raise InputError(f"{self.where} declares the entity {name[:40]!r}: take it out first")

    def _tag_end(self, start: int) -> int:
        """Return the end of the tag at `start`, past quoted values with a ">" in them."""
        tag = re.compile(rb"<(?:[^>\"']|\"[^\"]*\"|'[^']*')*>").match(self.raw, start)
        return tag.end() if tag else len(self.raw)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        at = self._parser.CurrentByteIndex
        if self._inside:
            self._cut(at)
            self._inside.append(name)
            self._text_from = -1 if name in _CODES else self._tag_end(at)
        elif name == "tmx":
            self._is_tmx = True
        elif name == "header":
            self.source = attributes.get("srclang", "").strip() or None
        elif name == "tu":
            self.units.append([])
        elif name == "tuv" and self.units:
            language = attributes.get("xml:lang") or attributes.get("lang") or ""
            self._variant = _Variant(language, at, self._tag_end(at))
            self.units[-1].append(self._variant)
        elif name == "seg" and self._variant is not None:
            inner = self._tag_end(at)
            self._variant.seg = self._variant.content = (at, inner)
            self._inside = ["seg"]
            self._text_from = inner

    def _end(self, name: str) -> None:
        at = self._parser.CurrentByteIndex
        if self._inside:
            self._cut(at)
            closed = self._inside.pop()
            end = self._tag_end(at)
            if self._inside:
                self._text_from = -1 if self._inside[-1] in _CODES else end
            elif closed == "seg" and self._variant is not None:
                start, inner = self._variant.seg
                empty = self.raw[inner - 2 : inner] == b"/>"
                self._variant.seg = (start, inner if empty else end)
                self._variant.content = (inner, inner if empty else at)
        elif name == "tuv" and self._variant is not None:
            self._variant.end = self._tag_end(at)
            self._variant = None

    def _cut(self, at: int) -> None:
        """End the current text."""
        if self._variant is not None and 0 <= self._text_from < at:
            self._variant.fragments.append((self._text_from, at))
        self._text_from = -1

    def _pause(self) -> None:
        """Handle a comment or the like inside text: the rest up to the next tag is left as is."""
        if self._inside:
            self._cut(self._parser.CurrentByteIndex)

    def to_characters(self) -> None:
        """Convert all positions from bytes to characters, in one pass over the file."""
        variants = [variant for unit in self.units for variant in unit]
        wanted: set[int] = set()
        for v in variants:
            spans = [(v.start, v.inner), (v.end, v.end), v.seg, v.content, *v.fragments]
            wanted.update(position for span in spans for position in span)
        known, last, count = {}, 0, 0
        for position in sorted(wanted):
            count += len(self.raw[last:position].decode("utf-8"))
            known[position], last = count, position
        for v in variants:
            v.start, v.inner, v.end = known[v.start], known[v.inner], known[v.end]
            v.seg = (known[v.seg[0]], known[v.seg[1]])
            v.content = (known[v.content[0]], known[v.content[1]])
            v.fragments = [(known[a], known[b]) for a, b in v.fragments]
