"""HTML: text between tags and text in attributes; tags and code are kept.

A small tokenizer of our own finds the positions of text, because no parser we know of keeps the
original characters; it follows the HTML standard where that decides what is text. Broken markup is
kept as it is.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field, replace

from pellucid.text.documents.spans import Edit, Runs, Slot, Source, SpanDocument, decode, has_letter


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_KEPT = _words("code pre kbd samp var tt svg math object canvas template")
# Elements whose content is raw text up to their own end tag.
_RAW = _words("script style textarea xmp iframe noembed noframes plaintext title")
_VOID = _words("area base br col embed hr img input link meta param source track wbr")
_INLINE = _words(
    """a abbr acronym b bdi bdo big cite code data del dfn em font i img input ins kbd label mark
    q s samp small span strike strong sub sup time tt u var wbr"""
)
# Elements whose end tag may be omitted: the tags that close them.
_CLOSED_BY = {
    "li": frozenset(["li"]),
    "dt": frozenset(["dt", "dd"]),
    "dd": frozenset(["dt", "dd"]),
    "tr": frozenset(["tr", "tbody", "tfoot"]),
    "td": frozenset(["td", "th", "tr", "tbody", "tfoot"]),
    "th": frozenset(["td", "th", "tr", "tbody", "tfoot"]),
    "option": frozenset(["option", "optgroup"]),
    "p": _words(
        """p div ul ol dl table h1 h2 h3 h4 h5 h6 pre form section article aside header footer nav
        main figure blockquote hr address fieldset"""
    ),
}
_TEXT_ATTRIBUTES = frozenset(["alt", "title", "placeholder", "aria-label"])
_DESCRIPTIONS = frozenset(["description", "og:title", "og:description", "twitter:description"])

_NAME = re.compile(r"[a-zA-Z][^\s/>]*")
_ATTRIBUTE = re.compile(r"[\s/]*([^\s/>][^\s/>=]*)(?:\s*=\s*(?=(.)))?", re.DOTALL)
_UNQUOTED = re.compile(r"[^\s>]+")
_LINE = re.compile(r"[^\r\n]+")
_SPACES = ("&nbsp;", "&#160;", "&#xa0;", "&#xA0;")
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w-]+)", re.IGNORECASE)


def open_html(data: bytes, where: str, target: str | None = None) -> SpanDocument:
    """Open an HTML document; `target` becomes the `lang` of its <html>."""
    source = decode(data, where)
    tokenizer = _Tokenizer(source, target)
    tokenizer.read()
    slots = sorted(tokenizer.slots + tokenizer.runs.slots, key=lambda slot: slot.pieces[0])
    numbers: dict[int, int] = {}
    slots = [replace(slot, group=numbers.setdefault(slot.group, len(numbers))) for slot in slots]
    return SpanDocument(source, slots, tokenizer.edits)


@dataclass(frozen=True, slots=True)
class _Attribute:
    name: str
    value: str
    start: int
    end: int
    quote: str


@dataclass(slots=True)
class _Tag:
    name: str
    end: int
    attributes: list[_Attribute] = field(default_factory=list)

    def get(self, name: str) -> str | None:
        """Return the value of the first attribute of a name, unescaped."""
        return next((a.value for a in self.attributes if a.name == name), None)


class _Tokenizer:
    def __init__(self, source: Source, target: str | None) -> None:
        self.text, self.target = source.text, target
        declared = _CHARSET.search(self.text[:2048])
        foreign = declared is not None and declared[1].lower().replace("-", "") != "utf8"
        # characters beyond ASCII would be misread where another encoding is declared
        self.ascii = foreign and self.text.isascii() and not source.mark
        self.closed_by_slash = self.text.lstrip().startswith("<?xml")
        self.runs = Runs(
            self.text, html.unescape, lambda line, _start, _end: self._escaped(line), _SPACES
        )
        self.slots: list[Slot] = []
        self.edits: list[Edit] = []
        self.open: list[
            tuple[str, bool]
        ] = []  # name of each open element, and whether its text is kept
        self.counts: dict[str, int] = {}

    def _escaped(self, text: str, quote: str = "") -> str:
        text = html.escape(text, quote=False)
        if quote:
            text = text.replace(quote, "&quot;" if quote == '"' else "&#39;")
        return text.encode("ascii", "xmlcharrefreplace").decode() if self.ascii else text

    @property
    def kept(self) -> bool:
        """Whether text at the current position is not translated."""
        return bool(self.open) and self.open[-1][1]

    def read(self) -> None:
        """Read the document once."""
        text, position = self.text, 0
        while position < len(text):
            begin = text.find("<", position)
            begin = len(text) if begin < 0 else begin
            self._words(position, begin)
            position = self._markup(begin) if begin < len(text) else begin
        self.runs.mark()

    def _words(self, start: int, end: int) -> None:
        if self.kept:
            return
        for line in _LINE.finditer(self.text, start, end):
            self.runs.text(*line.span())

    def _markup(self, start: int) -> int:
        """Read the markup that begins with the "<" at `start`; return its end."""
        text = self.text
        if text.startswith("<!--", start):
            if text.startswith((">", "->"), start + 4):
                return text.index(">", start) + 1
            return self._past("-->", start + 4)
        if text.startswith(("<!", "<?"), start):
            return self._past(">", start)
        closing = text.startswith("</", start)
        name = _NAME.match(text, start + 1 + closing)
        if not name:
            if closing:
                return self._past(">", start)
            self._less_than(start)
            return start + 1
        tag = self._tag(name)
        if tag is None:  # without an end: nothing after it is text
            self.runs.mark()
            return len(text)
        self.runs.mark(paragraph=tag.name not in _INLINE)
        if closing:
            self._close(tag.name)
            return tag.end
        return self._element(tag)

    def _less_than(self, start: int) -> None:
        """Read a "<" that is no tag as text."""
        if not self.kept:
            self.runs.text(start, start + 1)

    def _past(self, ending: str, start: int) -> int:
        self.runs.mark()
        found = self.text.find(ending, start)
        return len(self.text) if found < 0 else found + len(ending)

    def _tag(self, name: re.Match[str]) -> _Tag | None:
        """Return the tag of this name with its attributes, or None if it has no end."""
        text, tag, position = self.text, _Tag(name[0].lower(), 0), name.end()
        while True:
            attribute = _ATTRIBUTE.match(text, position)
            if attribute is None:
                tag.end = text.find(">", position) + 1
                return tag if tag.end else None
            position = attribute.end()
            quote = attribute[2]
            if quote is None:
                continue
            if quote in "\"'":
                start, end = position + 1, text.find(quote, position + 1)
                if end < 0:
                    return None
                position = end + 1
            else:
                value = _UNQUOTED.match(text, position)
                start, end = value.span() if value else (position, position)
                quote, position = "", end
            if len(tag.attributes) < 1000:
                value_text = html.unescape(text[start:end])
                tag.attributes.append(
                    _Attribute(attribute[1].lower(), value_text, start, end, quote)
                )

    def _element(self, tag: _Tag) -> int:
        while self.open and tag.name in _CLOSED_BY.get(self.open[-1][0], ()):
            self._close(self.open[-1][0])
        kept = self._is_kept(tag)
        if tag.name == "html":
            self._language(tag)
        if not kept:
            self._attributes(tag)
        if tag.name in _VOID or (self.closed_by_slash and self.text[tag.end - 2] == "/"):
            return tag.end
        if tag.name in _RAW:
            ending = re.compile(rf"</{tag.name}(?=[\s/>])", re.IGNORECASE)
            found = ending.search(self.text, tag.end)
            end = found.start() if found and tag.name != "plaintext" else len(self.text)
            if tag.name == "title" and not kept:
                self._words(tag.end, end)
                self.runs.mark(paragraph=True)
            return end
        self.open.append((tag.name, kept))
        self.counts[tag.name] = self.counts.get(tag.name, 0) + 1
        return tag.end

    def _is_kept(self, tag: _Tag) -> bool:
        asked = (tag.get("translate") or "").lower() if tag.get("translate") is not None else None
        if asked == "no" or "notranslate" in (tag.get("class") or "").split():
            return True
        if asked in ("", "yes"):
            return False
        return self.kept or tag.name in _KEPT

    def _close(self, name: str) -> None:
        """Close the last open element of a name and all within it."""
        while self.counts.get(name):
            closed, _ = self.open.pop()
            self.counts[closed] -= 1
            if closed == name:
                return

    def _language(self, tag: _Tag) -> None:
        for attribute in tag.attributes:
            if attribute.name in ("lang", "xml:lang") and self.target is not None:
                quote = attribute.quote or '"'
                code = self._escaped(self.target, quote)
                code = code if attribute.quote else f'"{code}"'
                if attribute.value != self.target:
                    self.edits.append(Edit(attribute.start, attribute.end, code))

    def _attributes(self, tag: _Tag) -> None:
        described = (
            tag.name == "meta"
            and (tag.get("name") or tag.get("property") or "").lower() in _DESCRIPTIONS
        )
        for attribute in tag.attributes:
            if attribute.name in _TEXT_ATTRIBUTES or (described and attribute.name == "content"):
                text = " ".join(attribute.value.split())
                if has_letter(text):
                    self.slots.append(self._attribute_slot(attribute, text))

    def _attribute_slot(self, attribute: _Attribute, text: str) -> Slot:
        def encode(line: str, _start: int, _end: int) -> str:
            escaped = self._escaped(line, attribute.quote or '"')
            return escaped if attribute.quote else f'"{escaped}"'

        position = ((attribute.start, attribute.end),)
        return Slot(text, position, encode, -1 - attribute.start)  # its own group
