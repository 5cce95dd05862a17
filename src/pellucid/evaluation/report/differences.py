"""Where two texts differ, word by word, marked for a page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

from pellucid.drawing.svg import escaped
from pellucid.evaluation.test_set import words

LONGEST = 1500
"""Characters of a text that are shown; comparing takes time that grows with their square."""

_PIECE = re.compile(r"\w+|[^\w\s]")


def closest(text: str, references: Sequence[str]) -> str:
    """The reference that is most like a text."""
    if len(references) == 1:
        return references[0]
    given = words(clipped(text))
    return max(
        references,
        key=lambda reference: SequenceMatcher(
            None, given, words(clipped(reference)), autojunk=False
        ).ratio(),
    )


def clipped(text: str) -> str:
    """As much of a text as is shown."""
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def marked(text: str, other: str, kind: str) -> str:
    """HTML of a text in which what the other has not, or has elsewhere, is marked.

    kind: the CSS class of the marks.
    """
    text, other = clipped(text), clipped(other)
    pieces, others = list(_PIECE.finditer(text)), _PIECE.findall(other)
    matcher = SequenceMatcher(None, [p.group() for p in pieces], others, autojunk=False)
    parts, done = [], 0
    for name, start, stop, _, _ in matcher.get_opcodes():
        if name == "equal" or start == stop:
            continue
        begin, end = pieces[start].start(), pieces[stop - 1].end()
        parts.append(escaped(text[done:begin]))
        parts.append(f'<mark class="{kind}">{escaped(text[begin:end])}</mark>')
        done = end
    return "".join([*parts, escaped(text[done:])])
