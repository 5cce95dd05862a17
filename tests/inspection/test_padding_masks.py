"""Two sentences as one batch: the masks are those the model used, and padding is not seen."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from pellucid.decoding.engine import special_ids
from pellucid.errors import InputError
from pellucid.inspection.padding_masks import Masks, look_at_masks
from tests.bundles import random_model
from tests.made_up import tokenizer

LONG = "Your aunt was looking for the lighthouse between the bridge and the market!"
SHORT = "Nobody sells pears!"
WORDS = tokenizer()
SHAPES: list[dict[str, Any]] = [
    {},
    {"norm": "pre", "position_encoding": "rotary", "num_kv_heads": 1, "activation": "swiglu"},
    {"position_encoding": "none"},
]


def looked(*texts: str, **shape: Any) -> Masks:
    model = random_model(WORDS.vocab_size, **shape)
    return look_at_masks(model, WORDS, special_ids(WORDS), texts, "en-fr")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_parts_make_the_masks_that_were_used(shape: dict[str, Any]) -> None:
    masks = looked(LONG, SHORT, **shape)
    S, T = len(masks.source[0]), len(masks.target[0])
    for row, text in enumerate((LONG, SHORT)):
        ids = WORDS.encode(text, target_language="fr")
        padded = [*ids, *[WORDS.pad_id] * (S - len(ids))]
        assert [token.id for token in masks.source[row]] == padded
        assert masks.source_padding[row].tolist() == [place < len(ids) for place in range(S)]
        length = sum(token.id != WORDS.pad_id for token in masks.target[row])
        assert masks.target_padding[row].tolist() == [place < length for place in range(T)]
    assert masks.causal.tolist() == [[j <= i for j in range(T)] for i in range(T)]
    np.testing.assert_array_equal(masks.decoder, masks.causal & masks.target_padding[:, None])
    for used, queries in ((masks.encoder, S), (masks.cross, T)):
        everyone = np.repeat(masks.source_padding[:, None], queries, axis=1)
        np.testing.assert_array_equal(used, everyone)
    assert not masks.source_padding.all()
    assert masks.difference < 1e-4


def test_one_sentence_has_no_padding() -> None:
    masks = looked(SHORT)
    assert masks.source_padding.all()
    assert masks.target_padding.all()
    assert masks.difference < 1e-4


def test_as_json_a_mask_is_zeros_and_ones() -> None:
    masks = looked(LONG, SHORT)
    plain = json.loads(json.dumps(masks.as_dict()))
    assert plain["decoder"] == masks.decoder.astype(int).tolist()
    assert plain["source"][1][-1] == [WORDS.pad_id, WORDS.piece(WORDS.pad_id)]
    assert plain["difference"] == masks.difference


@pytest.mark.parametrize("texts", [[], [SHORT] * 5, ["a lighthouse and " * 200]], ids=len)
def test_what_is_too_much_is_refused(texts: list[str]) -> None:
    with pytest.raises(InputError):
        looked(*texts)
