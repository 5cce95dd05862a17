"""Markdown: text of paragraphs, headings, lists and tables; markup, code and links are kept.

markdown-it-py parses the document. Its inline rules are wrapped to record the position of what each
of them matched, which its tokens do not have.
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
# Parts of plain text that are kept, though they are not CommonMark.
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


def open_markdown(data: bytes, where: str) -> SpanDocument:
    """Open a Markdown document (CommonMark with tables and strikethrough)."""
    source = decode(data, where)
    text = source.text
    begin = _front_matter(text)
    lines = [match.span(1) for match in _LINE.finditer(text, begin)]
    runs = Runs(text, unescapeAll, lambda line, start, end: _written(text, line, start, end))
    parser = _RecordingParser()
    for block in parser.blocks(text[begin:]):
        positions = _positions(text, lines, block, parser.reached)
        if positions is not None and not _is_formula(block.content):
            matches = parser.matches(block.content)
            _Block(runs, text, block.content, positions).read(matches, 0, len(block.content))
            runs.mark(paragraph=True)
    return SpanDocument(source, runs.slots)


def _is_formula(content: str) -> bool:
    return len(content) > 4 and content.startswith("$$") and content.endswith("$$")


def _front_matter(text: str) -> int:
    """Return the position after the front matter (YAML or TOML)."""
    fence = _FRONT.match(text)
    if not fence:
        return 0
    end = re.compile(rf"(?<=[\r\n]){re.escape(fence[1])}[ \t]*(?:\r\n|\r|\n|\Z)")
    found = end.search(text, fence.end())
    return found.end() if found else 0


@dataclass(slots=True)
class _Match:
    """What an inline rule matched: `start` to `end` of a block's content."""

    rule: str
    start: int
    end: int
    tokens: list[Token]
    label_end: int = 0
    inner: list[_Match] = field(default_factory=list)

    def moved(self, by: int) -> _Match:
        """Return the same match, later by so many characters."""
        inner = [match.moved(by) for match in self.inner]
        places = (self.start + by, self.end + by)
        return _Match(self.rule, *places, self.tokens, self.label_end + by, inner)


class _RecordingParser:
    """A Markdown parser that records the position of what its inline rules match."""

    def __init__(self) -> None:
        self.parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
        self.parser.core.ruler.disable(["inline", "text_join"])
        self.parser.inline.ruler2.disable("fragments_join")  # it hides which markers are text
        self.reached: dict[int, int] = {}
        self._env: dict[str, Any] = {}
        self._matches: list[_Match] = []
        ruler = self.parser.inline.ruler
        for name, rule in zip(ruler.get_active_rules(), ruler.getRules(""), strict=True):
            ruler.at(name, self._recording(name, rule))

    def _recording(
        self, name: str, rule: Callable[[StateInline, bool], bool]
    ) -> Callable[[StateInline, bool], bool]:
        def recorded(state: StateInline, silent: bool) -> bool:
            if silent:
                return rule(state, silent)
            start, count, earlier = state.pos, len(state.tokens), len(self._matches)
            if not rule(state, silent):
                del self._matches[earlier:]
                return False
            match = _Match(name, start, state.pos, state.tokens[count:])
            if name in ("link", "image"):
                image = name == "image"
                match.label_end = parseLinkLabel(state, start + image, not image)
                # an image's label is parsed separately, with positions from its own start
                match.inner = [p.moved(start + 2) if image else p for p in self._matches[earlier:]]
                del self._matches[earlier:]
            self._matches.append(match)
            return True

        return recorded

    def blocks(self, text: str) -> list[Token]:
        """Return the blocks of a document that contain text, each with its content and lines."""
        return [token for token in self.parser.parse(text, self._env) if token.type == "inline"]

    def matches(self, content: str) -> list[_Match]:
        """Return what the inline rules match in a block's content, in order."""
        self._matches = []
        self.parser.inline.parse(content, self.parser, self._env, [])
        return self._matches


def _positions(
    text: str, lines: list[tuple[int, int]], block: Token, reached: dict[int, int]
) -> list[int] | None:
    """Return the position in the document of each character of a block's content.

    None if the content is not found there as it is (for example, the pipe of a table cell is
    escaped inside code): such a block is not translated.
    """
    positions: list[int] = []
    first = block.map[0] if block.map else 0
    for number, line in enumerate(block.content.split("\n"), first):
        if number >= len(lines):
            return None
        stripped = line.strip()
        start, end = lines[number]
        found = text.find(stripped, max(start, reached.get(number, 0)), end)
        if found < 0:
            reached[number] = end  # nothing more can be located in this line
            return None
        reached[number] = found + len(stripped)
        lead = len(line) - len(line.lstrip()) if stripped else len(line)
        positions += [found - lead + offset for offset in range(len(line))]
        positions.append(end)  # the line break
    return positions


class _Block:
    """Reads the text of one block's content, and reports its position to `runs`."""

    def __init__(self, runs: Runs, text: str, content: str, positions: list[int]) -> None:
        self.runs, self.text, self.content, self.positions = runs, text, content, positions
        self.start = self.end = 0  # the current text, in the content

    def read(self, matches: list[_Match], start: int, end: int) -> None:
        """Read the content from `start` to `end` with its matches."""
        position = start
        for match in matches:
            self._text(position, match.start)  # what no rule matched is text
            position = match.end
            types = [token.type for token in match.tokens]
            if match.rule in ("link", "image"):
                self._link(match)
            elif match.rule == "newline" and "hardbreak" not in types:
                self._flush()
                if _DEFINITION.match(self.content, position):
                    self.runs.mark()
                self.runs.line()
            elif _is_mark(match, types):
                self._mark()
            else:
                self._text(match.start, match.end)
        self._text(position, end)
        self._mark()

    def _text(self, start: int, end: int) -> None:
        if start != self.end:
            self._flush()
            self.start = start
        self.end = end

    def _mark(self) -> None:
        self._flush()
        self.runs.mark()

    def _flush(self) -> None:
        """Report the current text, without the parts of it that are kept."""
        start, end = self.start, self.end
        self.start = self.end
        for kept in _KEPT.finditer(self.content, start, end):
            self._report(start, kept.start())
            self.runs.mark()
            start = kept.end()
        self._report(start, end)

    def _report(self, start: int, end: int) -> None:
        if start >= end:
            return
        first, last = self.positions[start], self.positions[end - 1] + 1
        if self.text[first:last] == self.content[start:end]:
            self.runs.text(first, last)
        else:  # not found in place: not translated
            self.runs.mark()

    def _link(self, match: _Match) -> None:
        self._mark()
        slots, first = self.runs.slots, len(self.runs.slots)
        inside = match.start + len("![" if match.rule == "image" else "[")
        self.read(match.inner, inside, match.label_end)
        # A shortcut reference ("[words]", "[words][]") needs its label once the words change.
        rest = self.content[match.label_end + 1 : match.end]
        label = " ".join(self.content[inside : match.label_end].split())
        position = self.positions[match.end - 1]
        edit = {
            "": Edit(position + 1, position + 1, f"[{label}]"),
            "[]": Edit(position, position, label),
        }
        if rest in edit:
            slots[first:] = [
                replace(slot, companions=(*slot.companions, edit[rest])) for slot in slots[first:]
            ]


def _is_mark(match: _Match, types: list[str]) -> bool:
    if match.rule in ("emphasis", "strikethrough"):  # a marker that became a tag has no content
        return any(not token.content for token in match.tokens)
    if match.rule in ("text", "entity", "escape"):
        return "hardbreak" in types
    return match.rule != "backticks" or "code_inline" in types


def _written(text: str, line: str, start: int, end: int) -> str:
    """Escape a line of a translation so that Markdown reads it as plain text."""
    line = _CHANGED.sub(lambda match: "\\" + match[0], line)
    before = text[max(0, start - 200) : start]
    fresh = "\n" in before or "\r" in before or start <= 200
    if fresh and _PREFIX.match(before.replace("\r", "\n").rpartition("\n")[2]):
        line = _BLOCK_START.sub(lambda match: (match["number"] or "") + "\\", line, count=1)
    if line.endswith("!") and text.startswith("[", end):
        line = line[:-1] + "\\!"
    return line
