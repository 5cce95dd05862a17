"""SubRip subtitles: the words of each cue; numbers, times, positions and tags are kept."""

from __future__ import annotations

import re
from itertools import pairwise

from pellucid.errors import InputError
from pellucid.text.documents.spans import Runs, SpanDocument, decode

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_STAMP = r"\d{1,9}[,.:]\d{1,9}[,.:]\d{1,9}(?:[,.:]\d{0,9})?"
_TIMES = re.compile(rf"\s*{_STAMP} *-[ -] *> *{_STAMP}(?=\s|\Z)")
_NUMBER = re.compile(r"\s*-?\d{1,12}\s*\Z")
# Formatting tags, positions in braces and music signs; a dash at the start marks a speaker.
_MARK = re.compile(r"</?[a-zA-Z][^<>\n]{0,200}>|\{\\?[^{}\n]{0,200}\}|[♩♪♫♬]+|\\[Nnh]")
_DASH = re.compile(r"\s*(?:<[^<>\n]{0,200}>|\{[^{}\n]{0,200}\})*\s*([-–—‐]+)(?!\d)\s*")


def open_subtitles(data: bytes, where: str) -> SpanDocument:
    """Open a .srt document.

    The lines of a cue are one text, and its translation is broken into as many lines. A line that
    begins with a dash is another speaker's, and a separate text.
    """
    source = decode(data, where)
    lines = [match.span() for match in _LINE.finditer(source.text) if match[0]]
    runs = Runs(source.text, str, lambda line, _start, _end: _escaped(line))
    times = [number for number, span in enumerate(lines) if _TIMES.match(source.text, *span)]
    if not times and source.text.strip():
        raise InputError(f"{where} has no cue with times (00:00:01,000 --> 00:00:02,000)")
    for number, follower in pairwise([*times, len(lines)]):
        last = follower
        if follower < len(lines):  # the number above the next cue's times is not text
            above = follower - 1
            if above > number and _NUMBER.match(source.text, *lines[above]):
                last = above
        for start, end in lines[number + 1 : last]:
            _read_line(runs, source.text, start, end)
        runs.mark(paragraph=True)
    return SpanDocument(source, runs.slots)


def _read_line(runs: Runs, text: str, start: int, end: int) -> None:
    if not text[start:end].strip():  # a blank line inside a cue or after it
        runs.mark()
        return
    runs.line()
    dash = _DASH.match(text, start, end)
    if dash:
        runs.mark()
        start = dash.end()
    for mark in _MARK.finditer(text, start, end):
        runs.text(start, mark.start())
        runs.mark()
        start = mark.end()
    runs.text(start, end)


def _escaped(line: str) -> str:
    """Return a line that cannot be read as the times of a cue."""
    return line.replace("-->", "→") if "-->" in line else line
