"""Source noise: sentences as people type them in a hurry.

A model trained on proofread sentences only is thrown off by a missing full stop, a lower-case first
letter or a typo. With `batches.source_noise` a fraction of the source sentences is corrupted like
that; the targets stay as they are, so the model becomes robust.
"""

from __future__ import annotations

import hashlib
import unicodedata

_SHORTEST = 4
"""Minimum length of a word that may get a typo: shorter ones easily become other words."""


def add_typing_noise(text: str, key: str) -> str:
    """Return a text with some typing noise, determined by the text and the key: the first letter or
    all letters in lower case, no final punctuation, no accents, a typo in one word.

    The result is never empty, and a text without letters and final punctuation is unchanged.
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
        text = _add_typo(text, int.from_bytes(draws[4:8], "little"))
    return text


def without_accents(text: str) -> str:
    """Return the text without accents: é becomes e, ç becomes c."""
    decomposed = unicodedata.normalize("NFD", text)
    bare = "".join(letter for letter in decomposed if not unicodedata.combining(letter))
    return unicodedata.normalize("NFC", bare)


def _add_typo(text: str, draw: int) -> str:
    """Drop, double or swap one letter inside one of the longer words."""
    words = text.split(" ")
    longer = [n for n, word in enumerate(words) if len(word) >= _SHORTEST and word.isalpha()]
    if not longer:
        return text
    draw, chosen = divmod(draw, len(longer))
    word = words[longer[chosen]]
    draw, before = divmod(draw, len(word) - 2)
    position = before + 1  # neither the first letter nor the last
    kept = ("", word[position] * 2, word[position + 1] + word[position])[draw % 3]
    rest = position + (2 if draw % 3 == 2 else 1)
    words[longer[chosen]] = word[:position] + kept + word[rest:]
    return " ".join(words)
