"""Documents whose text is translated while everything else stays as it was.

    document = open_document(data, name="manual.md")
    translations = [translate(text) for text in document.texts()]
    data = document.rebuilt(translations)

A document is never written anew from a parsed form: its text is replaced in place, so that what is
not text is kept byte for byte. `docs/documents.md` says for each format what is text.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Protocol

from pellucid.errors import InputError
from pellucid.text.preserve import Piece, Protection, placeholders, protect, protected

__all__ = [
    "KINDS",
    "Document",
    "Piece",
    "Protection",
    "kind_of",
    "open_document",
    "placeholders",
    "protect",
    "protected",
]

KINDS = {
    "txt": "txt",
    "text": "txt",
    "md": "md",
    "markdown": "md",
    "html": "html",
    "htm": "html",
    "xhtml": "html",
    "srt": "srt",
    "po": "po",
    "pot": "po",
    "tmx": "tmx",
}
"""The kind of document that a file name's ending stands for."""


class Document(Protocol):
    """A text document, read."""

    def texts(self) -> list[str]:
        """What is to be translated, in order. Each has a letter in it and no space around it."""

    def groups(self) -> list[int]:
        """For each text, the number of the paragraph (block, cue, entry) that it is a part of.

        Texts with one number are neighbours in one sentence or paragraph that markup cuts, such as
        the three of "a *very* good day".
        """

    def rebuilt(self, translations: Sequence[str]) -> bytes:
        """The document with its texts replaced, in the encoding it came in.

        An empty translation leaves its text as it is. With `texts()` itself, a document that is
        translated in place comes back byte for byte.
        """


def kind_of(name: str) -> str:
    """The kind of document a file name stands for, or an InputError that lists the known ones."""
    ending = PurePath(name).suffix.lstrip(".").lower() or name.lower()
    if ending not in KINDS:
        known = ", ".join(KINDS)
        raise InputError(f"{name!r} is not a kind of document that can be translated: use {known}")
    return KINDS[ending]


def open_document(
    data: bytes,
    kind: str | None = None,
    name: str | None = None,
    *,
    source: str | None = None,
    target: str | None = None,
    overwrite: bool = False,
) -> Document:
    """Read a document of a kind ("md"), or of the kind that its file name stands for ("a.md").

    `source` and `target` are language codes: TMX needs the target (its source is by default the
    one its header names), and HTML's `lang` is set to it. `overwrite` translates again what a
    catalogue or a translation memory already has a translation of.
    """
    if kind is None and name is None:
        raise InputError("what kind of document is it? Give its kind or its file name")
    where = name or f"the {kind} document"
    found = kind_of(kind if kind is not None else str(name))
    if found == "txt":
        from pellucid.text.documents.plain import read_plain

        return read_plain(data, where)
    if found == "md":
        from pellucid.text.documents.markdown import read_markdown

        return read_markdown(data, where)
    if found == "html":
        from pellucid.text.documents.html import read_html

        return read_html(data, where, target)
    if found == "srt":
        from pellucid.text.documents.subtitles import read_subtitles

        return read_subtitles(data, where)
    if found == "po":
        from pellucid.text.documents.catalogues import read_catalogue

        return read_catalogue(data, where, overwrite)
    from pellucid.text.documents.tmx import read_tmx

    return read_tmx(data, where, source, target, overwrite)
