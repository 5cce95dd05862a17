"""Pieces of a text that are the same in every language: addresses, paths, code, placeholders.

A translator may get them wrong, so it can look where they stand (`protected`), put a mark in the
place of each (`protect`), or check afterwards that they are all there (`placeholders`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Every part has a fixed beginning and a bounded length, or runs to the next space, so that the
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
_PARTS = {
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
_ONLY_PLACEHOLDERS = re.compile(f"{_PLACEHOLDER}|{_PARTS['tag']}")
_TRAILING = ".,;:!?'’)]…*_"
_MARK = re.compile(r"⟦\s*([0-9]{1,6})\s*⟧")
_ANY = re.compile(
    "|".join(f"(?P<{kind}>{part})" for kind, part in {"mark": _MARK.pattern, **_PARTS}.items())
)

KINDS = (*_PARTS, "mark")


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a text that is not to be translated: where it stands, and what it is."""

    start: int
    end: int
    kind: str


def protected(text: str, kinds: tuple[str, ...] = KINDS) -> list[Piece]:
    """The pieces of a text that have to come through a translation unchanged, in order.

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
            found.append(Piece(start, end, kind))
    return found


def _without_trailing(text: str, start: int, end: int) -> int:
    """The end of an address without the punctuation of the sentence that it stands in."""
    while end > start and text[end - 1] in _TRAILING:
        if text[end - 1] == ")" and text.count("(", start, end) >= text.count(")", start, end):
            break
        end -= 1
    return end


def placeholders(text: str) -> list[str]:
    """Placeholders and tags of a message, sorted: a translation must have the same ones.

    Knows %s, %2$d, %(name)s, %1, {name}, {0:.2f}, {{name}}, ${name}, %NAME%, <b> and &amp;.
    """
    return sorted(match[0] for match in _ONLY_PLACEHOLDERS.finditer(text))


@dataclass(frozen=True, slots=True)
class Protection:
    """A text with marks in the place of its protected pieces, and the pieces."""

    text: str
    pieces: tuple[str, ...]

    def restored(self, translation: str) -> str:
        """The translation with each mark replaced by its piece; unknown marks stay."""

        def piece(match: re.Match[str]) -> str:
            number = int(match[1])
            return self.pieces[number] if number < len(self.pieces) else match[0]

        return _MARK.sub(piece, translation)

    def missing(self, translation: str) -> list[str]:
        """The pieces whose mark the translation has lost."""
        there = {int(match[1]) for match in _MARK.finditer(translation)}
        return [piece for number, piece in enumerate(self.pieces) if number not in there]


def protect(text: str, kinds: tuple[str, ...] = KINDS) -> Protection:
    """Put a mark such as ⟦0⟧ in the place of each protected piece of a text.

    `protect(text).restored(protect(text).text) == text` for any text: marks that it already has
    are protected as well.
    """
    parts: list[str] = []
    pieces: list[str] = []
    position = 0
    for piece in protected(text, (*kinds, "mark")):
        parts += [text[position : piece.start], f"⟦{len(pieces)}⟧"]
        pieces.append(text[piece.start : piece.end])
        position = piece.end
    return Protection("".join([*parts, text[position:]]), tuple(pieces))
