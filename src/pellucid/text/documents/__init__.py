"""Documents whose text is translated while everything else stays as it was.

    document = open_document(data, name="manual.md")
    translations = [translate(text) for text in document.texts()]
    data = document.rebuilt(translations)

A document is never serialized from a parsed form: its text is replaced in place, so that all the
rest is kept byte for byte. `docs/documents.md` says for each format what is text.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Protocol

from pellucid.errors import InputError
from pellucid.text.preserve import ProtectedSpan, Protection, placeholders, protect, protected

__all__ = [
    "KINDS",
    "Document",
    "ProtectedSpan",
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
"""Kind of document by the extension of its file name."""


class Document(Protocol):
    """A document that has been read."""

    def texts(self) -> list[str]:
        """Return the texts to translate, in order, each with a letter and no space around it."""

    def groups(self) -> list[int]:
        """Return for each text the number of its paragraph (block, cue, entry).

        Texts with the same number are parts of one sentence or paragraph that markup separates,
        such as the three of "a *very* good day".
        """

    def rebuilt(self, translations: Sequence[str]) -> bytes:
        """Return the document with its texts replaced, in its own encoding.

        An empty translation leaves its text as it is. With `texts()` itself, a document that is
        translated in place comes back byte for byte.
        """


def kind_of(name: str) -> str:
    """Return the kind of document of a file name, or raise an InputError with the known ones."""
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
    """Read a document of a kind ("md"), or of the kind of its file name ("a.md").

    source, target: language codes. TMX needs the target (the source is by default that of its
    header), and HTML's `lang` is set to it. overwrite: translate again what already has a
    translation in a catalogue or translation memory.
    """
    if kind is None and name is None:
        raise InputError("what kind of document is it? Give its kind or its file name")
    where = name or f"the {kind} document"
    found = kind_of(kind if kind is not None else str(name))
    if found == "txt":
        from pellucid.text.documents.plain import open_plain

        return open_plain(data, where)
    if found == "md":
        from pellucid.text.documents.markdown import open_markdown

        return open_markdown(data, where)
    if found == "html":
        from pellucid.text.documents.html import open_html

        return open_html(data, where, target)
    if found == "srt":
        from pellucid.text.documents.subtitles import open_subtitles

        return open_subtitles(data, where)
    if found == "po":
        from pellucid.text.documents.catalogues import open_catalogue

        return open_catalogue(data, where, overwrite)
    from pellucid.text.documents.tmx import open_tmx

    return open_tmx(data, where, source, target, overwrite)
