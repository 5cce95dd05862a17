"""Text in capitals, for models that have seen few of them."""

from __future__ import annotations

import pytest

from pellucid.text.casing import lowered


def letter_by_letter(text: str) -> int:
    """A model that knows no capitals: each is a token, as is each word in small letters."""
    return sum(max(1, sum(map(str.isupper, word))) for word in text.split())


@pytest.mark.parametrize(
    ("text", "language", "small"),
    [
        ("JE SUIS FATIGUÉ.", "fr", "Je suis fatigué."),
        ("« OÙ EST LE CHAT ? »", "fr", "« Où est le chat ? »"),
        ("I THINK I AM LATE, AND I'M SORRY", "en", "I think I am late, and I'm sorry"),
        ("WE READ PART I-A, I SAID.", "en", "We read part i-a, I said."),
        ("Je suis fatigué.", "fr", None),
        ("JE SUIS fatigué", "fr", None),
        ("OK", "fr", None),
        ("1984 !", "fr", None),
        ("", "fr", None),
    ],
)
def test_lowered(text: str, language: str, small: str | None) -> None:
    assert lowered(text, language, letter_by_letter) == small


def test_a_model_that_knows_capitals_gets_them() -> None:
    assert lowered("JE SUIS FATIGUÉ.", "fr", lambda text: len(text.split())) is None
