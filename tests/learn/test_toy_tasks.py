"""The model learns: copy, reverse and sort, every held-out example right."""

import pytest
import torch

from examples.toy import TASKS, examples, small_model, train, translate


@pytest.mark.parametrize("task", TASKS)
def test_every_held_out_example_is_right(task: str) -> None:
    torch.manual_seed(1)
    held_out = [row for row in examples(700, torch.Generator().manual_seed(99)) if len(row) > 3]
    assert len(held_out) > 300
    model = small_model()
    train(model, TASKS[task], held_out=held_out)
    wrong = [
        (row, answer)
        for row, answer in zip(held_out, translate(model, held_out), strict=True)
        if answer != TASKS[task](row)
    ]
    assert not wrong, f"{len(wrong)} of {len(held_out)} wrong, e.g. {wrong[:3]}"
