"""Splitting loses nothing, for any text at all."""

import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.text.sentences import LINE_BREAKS, segment, split_long, split_sentences

# Any character, lone surrogates too, and texts thick with what the rules look at.
ANY = st.text(st.characters(codec=None, exclude_categories=()), max_size=200)
PIECES = """. ! ? … ... » « “ ” " ) ( M Mr z B p ex 3 12 Mai The il etc J - — 1) 😀 👩\u200d🚀
    🇫🇷 。 ！ ؟ । a.b U.S ' ; , and \u0301 \ud800 \udc00"""
SPACES = (" ", "  ", "\n", "\r\n", "\u00a0", "\u202f", "\u2028", "\x85")
THICK = st.lists(st.sampled_from((*PIECES.split(), *SPACES)), max_size=60).map("".join)
TEXTS = st.one_of(ANY, THICK)
LANGUAGES = st.sampled_from([None, "en", "fr", "de", "ja", "xx", ""])


@settings(deadline=None, max_examples=400)
@given(TEXTS, LANGUAGES)
def test_joined_sentences_are_the_text(text: str, language: str | None) -> None:
    sentences = split_sentences(text, language)
    assert "".join(sentences) == text
    assert all(sentences)
    assert all(not sentence[0].isspace() for sentence in sentences[1:])


@settings(deadline=None, max_examples=300)
@given(TEXTS, LANGUAGES)
def test_joined_segments_are_the_text(text: str, language: str | None) -> None:
    segments = segment(text, language)
    assert "".join(s.before + s.core + s.after for s in segments) == text
    for part in segments:
        assert part.core == part.core.strip()
        assert part.core or not text.strip()
        assert part.after == "" or part.after.isspace()
        assert not set(part.core) & set(LINE_BREAKS)


@settings(deadline=None, max_examples=300)
@given(st.lists(TEXTS, max_size=5))
def test_lines_are_split_one_by_one(texts: list[str]) -> None:
    lines = [" ".join(text.splitlines()) for text in texts]
    apart = [s.core for line in lines for s in segment(line) if s.core]
    together = [s.core for s in segment("\n".join(lines)) if s.core]
    assert together == apart


@settings(deadline=None, max_examples=300)
@given(TEXTS, st.integers(1, 30))
def test_parts_of_a_long_sentence_fit_and_join(text: str, limit: int) -> None:
    parts = split_long(text, limit)
    assert "".join(parts) == text
    assert all(parts)
    assert all(len(part) <= limit or len(split_long(part, 1)) == 1 for part in parts)
    assert all(unicodedata.category(part[0])[0] != "M" for part in parts[1:])


@settings(deadline=None, max_examples=200)
@given(TEXTS, st.integers(1, 12))
def test_parts_fit_by_a_count_that_is_not_a_sum(text: str, limit: int) -> None:
    def pieces(part: str) -> int:  # like a tokenizer's: a space starts a piece, long words are two
        return sum(1 + (len(word) > 4) for word in part.split(" "))

    parts = split_long(text, limit, pieces)
    assert "".join(parts) == text
    assert all(pieces(part) <= limit or len(split_long(part, 1)) == 1 for part in parts)
