"""Six layers each train: post-norm with warm-up, pre-norm and sandwich without."""

import pytest
import torch

from examples.toy import TASKS, small_model, train


@pytest.mark.parametrize(("norm", "warm_up"), [("post", 120), ("pre", 1), ("sandwich", 1)])
def test_deep_stacks_train(norm: str, warm_up: int) -> None:
    torch.manual_seed(2)
    model = small_model(norm=norm, width=32, encoder_layers=6, decoder_layers=6)
    losses: list[float] = []
    train(
        model,
        TASKS["copy"],
        steps=240,
        batch=48,
        rate=2e-3,
        warm_up=warm_up,
        watch=lambda step, loss: losses.append(loss),
    )
    start, end = sum(losses[:5]) / 5, sum(losses[-20:]) / 20
    assert all(loss == loss for loss in losses), "a loss became NaN"
    assert end < 0.5 * start, f"{norm}: {start:.2f} -> {end:.2f}"
