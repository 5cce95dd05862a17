"""Word-by-word differences of two texts, marked in HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

from pellucid.drawing.svg import escaped
from pellucid.evaluation.test_set import words

LONGEST = 1500
"""Maximum number of characters to show; comparing takes time quadratic in it."""

_PIECE = re.compile(r"\w+|[^\w\s]")


def closest(text: str, references: Sequence[str]) -> str:
    """Return the reference most similar to a text."""
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
    """Cut a text to the length that is shown."""
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def marked(text: str, other: str, kind: str) -> str:
    """Return HTML of a text in which what is not in the other, or elsewhere in it, is marked.

    kind: CSS class of the marks.
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
