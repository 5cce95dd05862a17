"""Six layers each train: post-norm with warm-up, pre-norm and sandwich without."""

import pytest
import torch

from examples.toy import TASKS, small_model, train


@pytest.mark.parametrize(("norm", "warmup_steps"), [("post", 120), ("pre", 1), ("sandwich", 1)])
def test_deep_stacks_train(norm: str, warmup_steps: int) -> None:
    torch.manual_seed(2)
    model = small_model(norm=norm, d_model=32, encoder_layers=6, decoder_layers=6)
    losses: list[float] = []
    train(
        model,
        TASKS["copy"],
        steps=240,
        batch_size=48,
        learning_rate=2e-3,
        warmup_steps=warmup_steps,
        on_step=lambda step, loss: losses.append(loss),
    )
    start, end = sum(losses[:5]) / 5, sum(losses[-20:]) / 20
    assert all(loss == loss for loss in losses), "a loss became NaN"
    assert end < 0.5 * start, f"{norm}: {start:.2f} -> {end:.2f}"
