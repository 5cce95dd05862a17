"""The attention that draws the right lines is found: where they are known, and without them."""

import numpy as np
import pytest
import torch

from examples import toy
from pellucid.decoding import SpecialIds
from pellucid.decoding.alignment import (
    AlignedPair,
    find_alignment,
    linked_by_loss,
    measure_alignment,
)
from pellucid.decoding.ct2.conversion import SPECIAL
from pellucid.decoding.forced import force_decode, read_attention
from pellucid.errors import InputError
from pellucid.translator import load
from tests.bundles import random_model
from tests.learn.hand_aligned import PAIRS, aligned, hand_aligned
from tests.learn.made_up_language import dictionary
from tests.learn.trained import Trained
from tests.made_up import tokenizer


def test_the_best_head_draws_the_right_lines() -> None:
    """On a model that reverses, the right alignment is known."""
    torch.manual_seed(0)
    model = toy.small_model()
    toy.train(model, toy.TASKS["reverse"], steps=250)
    rows = [row for row in toy.examples(80, torch.Generator().manual_seed(5)) if len(row) > 2]
    examples = [
        AlignedPair(
            row,
            row[::-1],
            [(place, len(row) - 1 - place) for place in range(len(row))],
            slice(None),
        )
        for row in rows
    ]
    special = SpecialIds(toy.PAD, toy.START, toy.END)
    found = measure_alignment(model, special, examples)
    assert found.table.shape == (2, 4 + 1)
    assert found.accuracy == found.table[found.layer, found.head] == found.table.max()
    assert found.accuracy > 0.8
    assert found.tokens == sum(map(len, rows))
    assert found.table.min() < found.accuracy - 0.2  # it matters which
    with pytest.raises(InputError, match="no aligned pairs"):
        measure_alignment(model, special, [])


def by_hand(trained: Trained) -> list[AlignedPair]:
    """Unseen pairs whose lines are known, as each word has one translation."""
    words, found = dictionary(), []
    for one, two in trained.unseen[:200]:
        mine = one.removesuffix(".").split()
        if len(set(mine)) == len(mine):
            links = {(word, words[word]) for word in mine} | {(".", ".")}
            found.append(aligned(trained.bundle.tokenizer, one, two, "xb", links))
    return found


def test_links_by_loss_are_right(trained: Trained) -> None:
    pairs = by_hand(trained)[:60]
    model = trained.bundle.model()
    found = [linked_by_loss(model, SPECIAL, pair) for pair in pairs]
    right = [
        link in pair.links
        for pair, one in zip(pairs, found, strict=True)
        for link in one.links
        if link[0] in {target for target, _ in pair.links}
    ]
    assert len(right) > 2 * len(pairs)
    assert np.mean(right) > 0.95


def test_training_records_a_place_that_hand_made_lines_would_choose(trained: Trained) -> None:
    settings = trained.bundle.settings
    assert settings.alignment is not None
    found = measure_alignment(trained.bundle.model(), SPECIAL, by_hand(trained))
    layer, head = settings.alignment
    # Two places that explain the losses as well as each other may lie some points apart by hand.
    assert found.table[layer, head] > found.accuracy - 0.15
    assert found.table[layer, head] > np.median(found.table) + 0.05
    assert found.accuracy > found.table.min() + 0.1
    assert f"| alignment | decoder layer {layer + 1}, " in trained.bundle.about


def test_the_translator_gives_these_lines(trained: Trained) -> None:
    """With both engines, and the same ones."""
    texts = [one for one, _ in trained.unseen[:20]]
    made = [
        load(trained.bundle.folder, engine).translate(texts, attention=True)
        for engine in ("ct2", "torch")
    ]
    equal = [
        a.sentences[0].alignment == b.sentences[0].alignment for a, b in zip(*made, strict=True)
    ]
    assert np.mean(equal) >= 0.5  # int8 against float32: a near-tie of two places may go over
    words = dictionary()
    right = []
    for translation in made[0]:
        for sentence in translation.sentences:
            assert sentence.alignment is not None
            for token, place in zip(sentence.best.tokens, sentence.alignment, strict=True):
                source = [w for w, other in words.items() if token == f"▁{other}"]
                if source:  # a whole word
                    right.append(sentence.source_tokens[place].strip("▁") in source[0])
    assert len(right) > 20
    assert np.mean(right) > 0.8


def test_too_few_links_record_nothing() -> None:
    model = random_model(60)
    pair = AlignedPair([4, 7, 8, 9, 3], [10, 11])
    assert find_alignment(model, SPECIAL, [pair]) is None
    assert find_alignment(model, SPECIAL, []) is None
    assert linked_by_loss(model, SPECIAL, AlignedPair([4, 3], [10])).links == ()


def test_all_heads_at_once_are_each_head_alone() -> None:
    model = random_model(60)
    sources, targets = [[4, 7, 8, 9, 3], [4, 5, 3]], [[10, 11], [12, 13, 14]]
    read = read_attention(model, SPECIAL, sources, targets)
    for layer in range(2):
        for head in range(4):
            forced = force_decode(
                model, SPECIAL, sources, targets, attention=True, layer=layer, head=head
            )
            for one, weights in zip(forced, read, strict=True):
                np.testing.assert_allclose(one.attention, weights[layer, head], atol=1e-6)


@pytest.mark.parametrize("direction", ["fr-en", "en-fr"])
def test_hand_made_links_become_links_of_tokens(direction: str) -> None:
    words = tokenizer()
    made = hand_aligned(words, direction)
    assert len(made) == len(PAIRS) >= 25
    for pair in made:
        assert len({target for target, _ in pair.links}) > len(pair.target) / 3
        assert all(0 < source < len(pair.source) - 1 for _, source in pair.links)
    first = made[0]
    linked = {(words.piece(first.target[t]), words.piece(first.source[s])) for t, s in first.links}
    there = ("▁The", "L") if direction == "fr-en" else ("▁porte", "d")
    assert there in linked
    assert not any("e" in (a, b) and "▁porte" in (a, b) for a, b in linked)


def test_a_place_outside_of_the_model_is_refused(trained: Trained) -> None:
    bundle = trained.bundle
    with pytest.raises(ValueError, match=r"alignment = \[2, 0\]"):
        bundle.settings.changed(alignment=(2, 0))
    with pytest.raises(ValueError, match=r"alignment = \[0, 4\]"):
        bundle.settings.changed(alignment=(0, 4))
    assert bundle.settings.changed(alignment=(1, -1)).alignment_head == (1, None)
    assert bundle.settings.changed(alignment=None).alignment_head == (-1, None)
