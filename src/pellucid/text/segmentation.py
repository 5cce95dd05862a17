"""Segmentation of a text of any length into units that a model can translate.

White space, line breaks, list marks and whatever has no letter in it are kept as they are; the
units between them are sentences, and parts of sentences that are too long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pellucid.text.passage import Passage, Unit
from pellucid.text.preserve import has_words, names_for_addresses, protected
from pellucid.text.sentences import segment, split_long


def cut(
    text: str,
    language: str | None = None,
    *,
    limit: int | None = None,
    length: Callable[[str], int] = len,
) -> Passage:
    """Cut a text into units of at most `limit`, as `length` measures them."""
    parts: list[str | Unit] = []
    split = 0
    for number, sentence in enumerate(segment(text, language)):
        parts.append(sentence.before)
        if not has_words(sentence.core):
            parts.append(sentence.core)
        elif limit is None or _fits(names_for_addresses(sentence.core), limit, length):
            parts.append(Unit(sentence.core, number))
        else:
            split += 1
            for part in _unbroken(sentence.core, split_long(sentence.core, limit, length)):
                core = part.rstrip()
                unit = Unit(core, number, part=True) if has_words(core) else core
                parts += [unit, part[len(core) :]]
        parts.append(sentence.after)
    return Passage(tuple(part for part in parts if part), split)


def _unbroken(text: str, parts: Iterable[str]) -> Iterator[str]:
    """Yield the parts of a text, joined where a cut would go through an address or the like."""
    spans = protected(text)
    position, waiting = 0, ""
    for part in parts:
        position, waiting = position + len(part), waiting + part
        if not any(span.start < position < span.end for span in spans):
            yield waiting
            waiting = ""
    if waiting:
        yield waiting


def _fits(text: str, limit: int, length: Callable[[str], int]) -> bool:
    """Tell whether a text is within the limit.

    A token has at least one byte, but for the first space: short texts need no tokenizer.
    """
    return len(text.encode("utf-8", "replace")) < limit or length(text) <= limit
