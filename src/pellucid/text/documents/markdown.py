"""Markdown: the words of paragraphs, headings, lists and tables; marks, code and links stay.

markdown-it-py reads the document; its rules are listened to while they work, which tells where in
the text each of them read what (its tokens alone do not say).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.common.utils import unescapeAll
from markdown_it.helpers import parseLinkLabel
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from pellucid.text.documents.spans import Edit, Runs, SpanDocument, decode

_LINE = re.compile(r"([^\r\n]*)(?:\r\n|\r|\n|\Z)")
_FRONT = re.compile(r"(---|\+\+\+)[ \t]*(?:\r\n|\r|\n)")
# Pieces of plain text that are kept, though CommonMark has no name for them.
_KEPT = re.compile(
    r"(?<!\w)(?:https?://|www\.)[^\s<>\"]{1,4000}"  # addresses
    r"|\[\^[^\]\s]{1,80}\]:?|\A\[[ xX]\](?=\s)|\A\[![A-Z]{1,20}\]"  # notes, task boxes, alerts
    r"|\{[#.:][^{}\n]{1,200}\}|(?<!\w):[a-z0-9_+-]{2,40}:(?!\w)"  # heading ids, short codes
    r"|(?<![\w$])\$[^\s$](?:[^$\n]{0,200}[^\s$])?\$(?![\w$])"  # formulas
    r"|\{\{[^{}\n]{1,200}\}\}|\{%[^%\n]{1,200}%\}"  # templates
    r"|(?:\A|(?<=\n))(?::{3,}[^\n]*|(?:!!!|\?\?\?\+?) \w+)"  # boxes of site generators
)
_CHANGED = re.compile(r"[\\`*\[\]<|]|(?<![^\W_])_|_(?![^\W_])|~(?=~)|(?<=~)~|&(?=#?\w{1,31};)")
_BLOCK_START = re.compile(r"\A(?:(?=[#>+=~-])|(?P<number>\d{1,9})(?=[.)](?:\s|$)))")
_DEFINITION = re.compile(r":\s")  # a term's definition, on the line after the term
_PREFIX = re.compile(r"[\s>*+\-#\d.)|]*\Z")


def read_markdown(data: bytes, where: str) -> SpanDocument:
    """Read a Markdown document (CommonMark with tables and strikethrough)."""
    source = decode(data, where)
    text = source.text
    begin = _front_matter(text)
    lines = [match.span(1) for match in _LINE.finditer(text, begin)]
    runs = Runs(text, unescapeAll, lambda line, start, end: _written(text, line, start, end))
    parser = _Listener()
    for block in parser.blocks(text[begin:]):
        places = _places(text, lines, block, parser.reached)
        if places is not None and not _is_formula(block.content):
            pieces = parser.pieces(block.content)
            _Block(runs, text, block.content, places).read(pieces, 0, len(block.content))
            runs.mark(paragraph=True)
    return SpanDocument(source, runs.slots)


def _is_formula(content: str) -> bool:
    return len(content) > 4 and content.startswith("$$") and content.endswith("$$")


def _front_matter(text: str) -> int:
    """Where the document begins after the settings (YAML or TOML) at its top."""
    fence = _FRONT.match(text)
    if not fence:
        return 0
    end = re.compile(rf"(?<=[\r\n]){re.escape(fence[1])}[ \t]*(?:\r\n|\r|\n|\Z)")
    found = end.search(text, fence.end())
    return found.end() if found else 0


@dataclass(slots=True)
class _Piece:
    """What one rule read: `rule` from `start` to `end` of a block's content."""

    rule: str
    start: int
    end: int
    tokens: list[Token]
    label_end: int = 0
    inner: list[_Piece] = field(default_factory=list)

    def moved(self, by: int) -> _Piece:
        """The same, further on by so many characters."""
        inner = [piece.moved(by) for piece in self.inner]
        places = (self.start + by, self.end + by)
        return _Piece(self.rule, *places, self.tokens, self.label_end + by, inner)


class _Listener:
    """A Markdown parser that tells where its inline rules read what they read."""

    def __init__(self) -> None:
        self.parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
        self.parser.core.ruler.disable(["inline", "text_join"])
        self.parser.inline.ruler2.disable("fragments_join")  # it would hide which marks are words
        self.reached: dict[int, int] = {}
        self._env: dict[str, Any] = {}
        self._heard: list[_Piece] = []
        ruler = self.parser.inline.ruler
        for name, rule in zip(ruler.get_active_rules(), ruler.getRules(""), strict=True):
            ruler.at(name, self._listening(name, rule))

    def _listening(
        self, name: str, rule: Callable[[StateInline, bool], bool]
    ) -> Callable[[StateInline, bool], bool]:
        def listened(state: StateInline, silent: bool) -> bool:
            if silent:
                return rule(state, silent)
            start, count, heard = state.pos, len(state.tokens), len(self._heard)
            if not rule(state, silent):
                del self._heard[heard:]
                return False
            piece = _Piece(name, start, state.pos, state.tokens[count:])
            if name in ("link", "image"):
                image = name == "image"
                piece.label_end = parseLinkLabel(state, start + image, not image)
                # an image's label is parsed apart, so its places count from the label's start
                piece.inner = [p.moved(start + 2) if image else p for p in self._heard[heard:]]
                del self._heard[heard:]
            self._heard.append(piece)
            return True

        return listened

    def blocks(self, text: str) -> list[Token]:
        """The blocks of a document that have words in them, each with its content and lines."""
        return [token for token in self.parser.parse(text, self._env) if token.type == "inline"]

    def pieces(self, content: str) -> list[_Piece]:
        """What the inline rules read in a block's content, in order."""
        self._heard = []
        self.parser.inline.parse(content, self.parser, self._env, [])
        return self._heard


def _places(
    text: str, lines: list[tuple[int, int]], block: Token, reached: dict[int, int]
) -> list[int] | None:
    """For each character of a block's content, where it stands in the document.

    None when the content is not found there as it is (the pipe of a table's cell is escaped
    inside code, say): such a block is left alone.
    """
    places: list[int] = []
    first = block.map[0] if block.map else 0
    for number, line in enumerate(block.content.split("\n"), first):
        if number >= len(lines):
            return None
        words = line.strip()
        start, end = lines[number]
        found = text.find(words, max(start, reached.get(number, 0)), end)
        if found < 0:
            reached[number] = end  # nothing more can be told apart in this line
            return None
        reached[number] = found + len(words)
        lead = len(line) - len(line.lstrip()) if words else len(line)
        places += [found - lead + offset for offset in range(len(line))]
        places.append(end)  # the line break
    return places


class _Block:
    """Reads the words of one block's content, and tells `runs` where they stand."""

    def __init__(self, runs: Runs, text: str, content: str, places: list[int]) -> None:
        self.runs, self.text, self.content, self.places = runs, text, content, places
        self.start = self.end = 0  # the words at hand, in the content

    def read(self, pieces: list[_Piece], start: int, end: int) -> None:
        """Read the content from `start` to `end`, of which rules have read the pieces."""
        position = start
        for piece in pieces:
            self._words(position, piece.start)  # what no rule wanted is words
            position = piece.end
            types = [token.type for token in piece.tokens]
            if piece.rule in ("link", "image"):
                self._link(piece)
            elif piece.rule == "newline" and "hardbreak" not in types:
                self._flush()
                if _DEFINITION.match(self.content, position):
                    self.runs.mark()
                self.runs.line()
            elif _is_mark(piece, types):
                self._mark()
            else:
                self._words(piece.start, piece.end)
        self._words(position, end)
        self._mark()

    def _words(self, start: int, end: int) -> None:
        if start != self.end:
            self._flush()
            self.start = start
        self.end = end

    def _mark(self) -> None:
        self._flush()
        self.runs.mark()

    def _flush(self) -> None:
        """Tell the words at hand, without the pieces of them that are kept."""
        start, end = self.start, self.end
        self.start = self.end
        for kept in _KEPT.finditer(self.content, start, end):
            self._tell(start, kept.start())
            self.runs.mark()
            start = kept.end()
        self._tell(start, end)

    def _tell(self, start: int, end: int) -> None:
        if start >= end:
            return
        first, last = self.places[start], self.places[end - 1] + 1
        if self.text[first:last] == self.content[start:end]:
            self.runs.text(first, last)
        else:  # not where it was looked for: left alone
            self.runs.mark()

    def _link(self, piece: _Piece) -> None:
        self._mark()
        slots, first = self.runs.slots, len(self.runs.slots)
        inside = piece.start + len("![" if piece.rule == "image" else "[")
        self.read(piece.inner, inside, piece.label_end)
        # A reference by its own words ("[words]", "[words][]") has to name them once they change.
        rest = self.content[piece.label_end + 1 : piece.end]
        label = " ".join(self.content[inside : piece.label_end].split())
        place = self.places[piece.end - 1]
        edit = {"": Edit(place + 1, place + 1, f"[{label}]"), "[]": Edit(place, place, label)}
        if rest in edit:
            slots[first:] = [
                replace(slot, companions=(*slot.companions, edit[rest])) for slot in slots[first:]
            ]


def _is_mark(piece: _Piece, types: list[str]) -> bool:
    if piece.rule in ("emphasis", "strikethrough"):  # a marker that has become a tag is emptied
        return any(not token.content for token in piece.tokens)
    if piece.rule in ("text", "entity", "escape"):
        return "hardbreak" in types
    return piece.rule != "backticks" or "code_inline" in types


def _written(text: str, line: str, start: int, end: int) -> str:
    """A line of a translation so that Markdown reads it as these words and nothing else."""
    line = _CHANGED.sub(lambda match: "\\" + match[0], line)
    before = text[max(0, start - 200) : start]
    fresh = "\n" in before or "\r" in before or start <= 200
    if fresh and _PREFIX.match(before.replace("\r", "\n").rpartition("\n")[2]):
        line = _BLOCK_START.sub(lambda match: (match["number"] or "") + "\\", line, count=1)
    if line.endswith("!") and text.startswith("[", end):
        line = line[:-1] + "\\!"
    return line
