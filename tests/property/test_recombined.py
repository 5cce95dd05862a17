"""Sentences that are put together: made of what stood in the corpus, and new."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.text.recombined import CONTEXT, LONGEST, recombined
from tests import made_up

words = st.sampled_from(["a", "b", "c", "d", "e", "f"])
corpora = st.lists(st.lists(words, min_size=0, max_size=9).map(" ".join), max_size=30)


@given(corpus=corpora, count=st.integers(0, 40), seed=st.integers(0, 5))
@settings(max_examples=80)
def test_every_three_words_stand_so_in_the_corpus(corpus: list[str], count: int, seed: int) -> None:
    there, ends, begins = set(), set(), set()
    for sentence in corpus:
        some = sentence.split()
        if len(some) > CONTEXT:
            begins.add(tuple(some[:CONTEXT]))
            ends.add(tuple(some[-CONTEXT - 1 :]))
            there |= {tuple(some[i : i + CONTEXT + 1]) for i in range(len(some) - CONTEXT)}
    found = recombined(corpus, count, seed)
    assert len(found) == len(set(found)) <= count
    assert not set(found) & set(corpus)
    for sentence in found:
        some = sentence.split()
        assert tuple(some[:CONTEXT]) in begins
        assert tuple(some[-CONTEXT - 1 :]) in ends
        assert {tuple(some[i : i + CONTEXT + 1]) for i in range(len(some) - CONTEXT)} <= there
        assert len(some) <= LONGEST
    assert found == recombined(corpus, count, seed)


def test_a_corpus_of_one_kind_gives_as_many_as_are_wanted() -> None:
    corpus = [source for source, _ in made_up.pairs(300)]
    found = recombined(corpus, 600, seed=1)
    assert len(found) == 600
    assert found != recombined(corpus, 600, seed=2)


def test_sentences_with_nothing_in_common_give_none() -> None:
    assert recombined(["one two three", "four five six seven", ""], 10, seed=0) == []
    assert recombined(["\u6211\u662f\u5b66\u751f\u3002"] * 3, 10, seed=0) == []
    assert recombined([], 10, seed=0) == []


def test_walks_in_a_circle_are_given_up() -> None:
    circle = "round and round and round and round and"
    assert all(len(one.split()) <= LONGEST for one in recombined([circle, circle + " out"], 5, 0))
