"""Longer pairs from short ones: both sides are made of the same pairs, in the same order."""

from itertools import pairwise

from pellucid.data.concatenation import EVERY, SIZES, concatenate, is_short

CLAUSES = [(f"The cat number {n} sleeps.", f"Le chat numéro {n} dort.") for n in range(400)]
PLAIN = [(f"Does Zoe see {n} boats?", f"Zoé voit-elle {n} bateaux ?") for n in range(400)]


def test_sentences_one_after_the_other() -> None:
    made = list(concatenate(PLAIN))
    used = PLAIN[::EVERY]
    place = 0
    for (english, french), size in zip(made, SIZES, strict=False):
        some = used[place : place + size]
        assert english == " ".join(a for a, _ in some)
        assert french == " ".join(b for _, b in some)
        place += size
    assert len(made) > len(SIZES)


def test_clauses_become_one_sentence_with_the_same_links_on_both_sides() -> None:
    for english, french in concatenate(CLAUSES):
        assert english.count(".") == french.count(".") == 1
        assert english[0].isupper()
        assert not any(a == " " and b.isupper() for a, b in pairwise(english))
        for ours, theirs in ((", and ", ", et "), (", but ", ", mais "), (" because ", " parce ")):
            assert english.count(ours) == french.count(theirs)
        numbers = [[word for word in side.split() if word.isdigit()] for side in (english, french)]
        assert numbers[0] == numbers[1]
        assert len(numbers[0]) in SIZES


def test_a_vowel_takes_the_short_link() -> None:
    pairs = [(f"He has {n} hats.", f"Il a {n} chapeaux.") for n in range(200)]
    text = " ".join(french for _, french in concatenate(pairs))
    assert "parce qu'il" in text
    assert "parce que il" not in text
    assert "parce que le" in " ".join(french for _, french in concatenate(CLAUSES))


def test_names_and_open_ends_make_no_clauses() -> None:
    pairs = [(f"Zoe has {n} hats.", f"Zoé a {n} chapeaux.") for n in range(100)]
    pairs += [(f"no end {n}", f"pas de fin {n}") for n in range(100)]
    for english, french in concatenate(pairs):
        assert ", and" not in english
        assert "no end" not in english
        assert english.count("Zoe") == french.count("Zoé")


def test_short_means_both_sides() -> None:
    assert is_short("Good evening!", "Bonsoir !")
    assert is_short("Don't move.", "Ne bouge pas.")
    assert not is_short("Good evening!", "Je te souhaite une bonne soirée.")
