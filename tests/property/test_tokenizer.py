"""Any text comes back from its tokens, however it was segmented."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests import made_up

EVERYTHING = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
# close to the tokenizer's own syntax, where mistakes would be
TRICKY = st.text(st.sampled_from("▁ <>2/s0xfr'’ \u202f\u00a0\ue000\n\tthe mapé😀"), max_size=30)
KINDS = pytest.mark.parametrize("kind", ["unigram", "bpe"])


@KINDS
@settings(max_examples=150)
@given(text=EVERYTHING | TRICKY)
@example(text="▁\ue000\ue001▁ ▁")
@example(text=" ")
def test_round_trip(kind: str, text: str) -> None:
    tokenizer = made_up.tokenizer(kind)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert all(i > tokenizer.tag_id("fr") for i in ids)


@KINDS
@settings(max_examples=80)
@given(text=EVERYTHING | TRICKY, seed=st.integers(0, 2**300), strength=st.floats(0, 1))
def test_sampled_round_trip(kind: str, text: str, seed: int, strength: float) -> None:
    tokenizer = made_up.tokenizer(kind)
    ids = tokenizer.sample(text, seed, strength)
    assert tokenizer.decode(ids) == text
    assert all(i > tokenizer.tag_id("fr") for i in ids)
    assert ids == tokenizer.sample(text, seed, strength)


@settings(max_examples=80)
@given(texts=st.lists(EVERYTHING | TRICKY, max_size=8))
def test_a_batch_is_its_texts(texts: list[str]) -> None:
    tokenizer = made_up.tokenizer()
    ids = tokenizer.encode_batch(texts)
    assert ids == [tokenizer.encode(text) for text in texts]
    assert tokenizer.decode_batch(ids) == texts


@pytest.mark.parametrize(("kind", "strength"), [("unigram", 1e5), ("bpe", 0.0)])
@settings(max_examples=100)
@given(number=st.integers(0, 10_000), noise=TRICKY)
def test_sampling_without_randomness_is_the_plain_encoding(
    kind: str, strength: float, number: int, noise: str
) -> None:
    """Our samplers and SentencePiece agree on what the pieces and their scores mean."""
    tokenizer = made_up.tokenizer(kind)
    text = made_up.pairs(1, number)[0][1] + noise
    assert tokenizer.sample(text, 0, strength) == tokenizer.encode(text)
