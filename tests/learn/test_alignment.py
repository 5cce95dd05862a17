"""On a model that reverses, the right alignment is known, and the best head finds it."""

import pytest
import torch

from examples import toy
from pellucid.decoding import SpecialIds
from pellucid.decoding.alignment import AlignedPair, measure_alignment
from pellucid.errors import InputError

SPECIAL = SpecialIds(toy.PAD, toy.START, toy.END)


def test_the_best_head_draws_the_right_lines() -> None:
    torch.manual_seed(0)
    model = toy.small_model()
    toy.train(model, toy.TASKS["reverse"], steps=250)
    rows = [row for row in toy.examples(80, torch.Generator().manual_seed(5)) if len(row) > 2]
    examples = [
        AlignedPair(row, row[::-1], [(place, len(row) - 1 - place) for place in range(len(row))])
        for row in rows
    ]
    found = measure_alignment(model, SPECIAL, examples)
    assert found.table.shape == (2, 4)
    assert found.accuracy == found.table[found.layer, found.head] == found.table.max()
    assert found.accuracy > 0.8
    assert found.table.min() < found.accuracy - 0.2  # it matters which
    with pytest.raises(InputError, match="no aligned pairs"):
        measure_alignment(model, SPECIAL, [])
