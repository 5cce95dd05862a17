"""Text in capitals: most models have hardly seen any, and tokenize it letter by letter."""

from __future__ import annotations

import re
from collections.abc import Callable

MIN_LETTERS = 4
"""A text with fewer letters is left as it is."""

MIN_RATIO = 1.5
"""Capitals are unknown to a model if they take at least this many times the tokens of small
letters."""

_I = re.compile(r"(?<![\w'\u2019-])i(?=[\s,;!?]|['\u2019]\w|$)")


def lowered(text: str, language: str, length: Callable[[str], int]) -> str | None:
    """Return a text in capitals as it is written in small letters; None for any other text.

    length: number of tokens of a text. A model that was trained on capitals has tokens for them,
    and gets them as they are.
    """
    if not text.isupper() or sum(map(str.isalpha, text)) < MIN_LETTERS:
        return None
    small = text.lower()
    first = next(i for i, letter in enumerate(small) if letter.isalpha())
    small = small[:first] + text[first] + small[first + 1 :]
    if language == "en":
        small = _I.sub("I", small)
    return small if length(text) >= MIN_RATIO * length(small) else None
