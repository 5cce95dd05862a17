"""TEXT IN CAPITALS: most models have hardly seen any, and read it letter by letter."""

from __future__ import annotations

import re
from collections.abc import Callable

FEWEST_LETTERS = 4
COSTLIER = 1.5
"""How many times the tokens of its small letters a text must take to be unknown in capitals."""

_I = re.compile(r"(?<![\w'\u2019-])i(?=[\s,;!?]|['\u2019]\w|$)")


def lowered(text: str, language: str, length: Callable[[str], int]) -> str | None:
    """A text in capitals as one would write it in small letters; None for any other text.

    length: how many tokens a text takes. A model that learned from capitals has tokens for them,
    and gets them as they are.
    """
    if not text.isupper() or sum(map(str.isalpha, text)) < FEWEST_LETTERS:
        return None
    small = text.lower()
    first = next(place for place, letter in enumerate(small) if letter.isalpha())
    small = small[:first] + text[first] + small[first + 1 :]
    if language == "en":
        small = _I.sub("I", small)
    return small if length(text) >= COSTLIER * length(small) else None
