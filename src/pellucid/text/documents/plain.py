"""Plain text: each line is a text; indentation, blank lines and line ends are kept."""

from __future__ import annotations

import re

from pellucid.text.documents.spans import Runs, SpanDocument, decode
from pellucid.text.sentences import LINE_BREAKS

_LINE = re.compile(rf"[^{LINE_BREAKS}]+")


def open_plain(data: bytes, where: str) -> SpanDocument:
    """Open a .txt document."""
    source = decode(data, where)
    runs = Runs(source.text, str, lambda line, _start, _end: line)
    for line in _LINE.finditer(source.text):
        runs.text(*line.span())
        runs.mark(paragraph=True)
    return SpanDocument(source, runs.slots)
