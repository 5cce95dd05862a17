"""Sentences as they look when somebody types them in a hurry.

A model that has read only proofread sentences is thrown off by a missing full stop, a small letter
at the beginning or a slip of the finger. With `batches.source_noise` a share of the sources is read
as if typed in a hurry; targets stay as they are, so the model learns to forgive.
"""

from __future__ import annotations

import hashlib
import unicodedata

_SHORTEST = 4
"""Letters of a word that may have a slip in it: shorter ones become other words too easily."""


def hurried(text: str, key: str) -> str:
    """A text with some of the marks of haste, chosen by the key alone: a small first letter or
    small letters throughout, no mark at the end, accents left off, a slip in one word.

    What is left is never empty, and a text without letters stays as it is.
    """
    draws = hashlib.sha256(f"{key}/{text}".encode()).digest()
    if draws[0] < 96:
        text = text.lower()
    elif draws[0] < 192:
        text = text[:1].lower() + text[1:]
    if draws[1] < 160:
        text = text.rstrip(" \u00a0\u202f.!…") or text
    if draws[2] < 48:
        text = without_accents(text)
    if draws[3] < 80:
        text = _slip(text, int.from_bytes(draws[4:8], "little"))
    return text


def without_accents(text: str) -> str:
    """The text with é as e, ç as c and so on."""
    apart = unicodedata.normalize("NFD", text)
    bare = "".join(letter for letter in apart if not unicodedata.combining(letter))
    return unicodedata.normalize("NFC", bare)


def _slip(text: str, draw: int) -> str:
    """One letter inside one longer word left out, written twice, or swapped with the next."""
    words = text.split(" ")
    longer = [n for n, word in enumerate(words) if len(word) >= _SHORTEST and word.isalpha()]
    if not longer:
        return text
    draw, chosen = divmod(draw, len(longer))
    word = words[longer[chosen]]
    draw, before = divmod(draw, len(word) - 2)
    place = before + 1  # neither the first letter nor the last
    kept = ("", word[place] * 2, word[place + 1] + word[place])[draw % 3]
    rest = place + (2 if draw % 3 == 2 else 1)
    words[longer[chosen]] = word[:place] + kept + word[rest:]
    return " ".join(words)
