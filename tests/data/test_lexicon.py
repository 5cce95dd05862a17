"""Words found in sentences: a made-up language whose dictionary is known is found again."""

import random

import pytest

from pellucid.data.lexicon import MIN_LETTERS, dictionary_lines, lexicon

SYLLABLES = ["ba", "ko", "mi", "ter", "lun", "sa", "pel", "dor"]
Pairs = list[tuple[str, str]]


def made_up(seed: int, words: int = 60, sentences: int = 3000) -> tuple[dict[str, str], Pairs]:
    """A dictionary, and sentences translated with it; the other language's words stand in another
    order, with a particle before some."""
    draw = random.Random(seed)
    vocabulary: list[str] = []
    while len(vocabulary) < 2 * words:
        word = "".join(draw.choices(SYLLABLES, k=3))
        if word not in vocabulary:
            vocabulary.append(word)
    known = dict(zip(vocabulary[:words], vocabulary[words:], strict=True))
    pairs = []
    for _ in range(sentences):
        chosen = draw.sample(vocabulary[:words], draw.randint(2, 6))
        other = [("la " if draw.random() < 0.5 else "") + known[word] for word in chosen]
        draw.shuffle(other)
        first, second = " ".join(chosen), " ".join(other)
        pairs.append((first.capitalize() + ".", second.capitalize() + " !"))
    return known, pairs


@pytest.mark.parametrize("seed", range(3))
def test_the_dictionary_is_found_again(seed: int) -> None:
    known, pairs = made_up(seed)
    assert dict(lexicon(pairs)) == known


def test_nothing_is_found_where_sides_have_nothing_to_do_with_each_other() -> None:
    _, pairs = made_up(5, sentences=400)
    others = [second for _, second in pairs]
    random.Random(1).shuffle(others)
    shuffled = [(first, other) for (first, _), other in zip(pairs, others, strict=True)]
    assert list(lexicon(shuffled)) == []


def test_a_word_that_stands_for_several_is_left_out() -> None:
    known, pairs = made_up(7)
    word, other = next(iter(known.items()))
    several = [(a, b.lower().replace(other, f"sil vus {other}")) for a, b in pairs]
    found = dict(lexicon(several))
    assert word not in found
    assert {w: found[w] for w in found if w in known} == {w: known[w] for w in found}
    assert len(found) == len(known) - 1


def test_short_words_and_elisions_are_left_out() -> None:
    pairs = [("It rains.", "L'eau pa."), ("It sleeps.", "Chat pa."), ("It rains.", "L'eau pa.")] * 9
    for pair in lexicon(pairs):
        assert all(len(word) >= MIN_LETTERS and "'" not in word for word in pair)


@pytest.mark.parametrize("pairs", [[], [("", "")], [("Rain.", "")], [("7 8 9", "7 8 9")]])
def test_sentences_without_words_have_no_lexicon(pairs: Pairs) -> None:
    assert list(lexicon(pairs)) == []


def test_lines_to_learn_from() -> None:
    known, pairs = made_up(2)
    lines = list(dictionary_lines(pairs))
    for word, other in known.items():
        assert (word, other) in lines
        assert (word.capitalize(), other.capitalize()) in lines
        assert (f"{word.capitalize()}.", f"{other.capitalize()}.") in lines
    assert len(lines) == len(set(lines)) == 3 * len(known)
