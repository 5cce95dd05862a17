"""In which precision a run computes, and that half precision learns the same."""

import warnings
from contextlib import nullcontext

import pytest
import torch

from pellucid.config import TrainingConfig
from pellucid.model import ModelConfig, Transformer
from pellucid.training import devices
from pellucid.training.devices import autocast_for
from pellucid.training.loop import Objective
from pellucid.training.plan import hardware

CPU = torch.device("cpu")


def bf16(precision: str) -> bool:
    """Whether a run with this setting computes in bf16 here."""
    return autocast_for(TrainingConfig(steps=1, precision=precision), CPU) is not nullcontext


@pytest.mark.parametrize("has", [True, False])
def test_a_processor_computes_in_half_only_when_asked(
    has: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "has_bf16", lambda device: has)
    found = {name: bf16(name) for name in ("auto", "fp32", "fast", "bf16")}
    assert found == {"auto": False, "fp32": False, "fast": has, "bf16": True}


@pytest.mark.parametrize(
    ("precision", "has", "measured"),
    [("fast", True, True), ("fast", False, False), ("fp32", True, False), ("bf16", False, False)],
)
def test_the_peak_is_that_of_what_a_run_computes_in(
    precision: str, has: bool, measured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a run in bf16 has more than 100% of it."""
    monkeypatch.setattr(devices, "has_bf16", lambda device: has)
    monkeypatch.setattr(devices, "matmul_rate", lambda device, *, bf16: 2.0 if bf16 else 1.0)
    config = TrainingConfig(steps=1, precision=precision)
    assert devices.peak_for(config, CPU) == (2.0 if measured else 1.0)


def test_a_rate_is_measured_in_both() -> None:
    for kind in (False, devices.has_bf16(CPU)):
        assert hardware.matmul_rate("cpu", bf16=kind, seconds=0.01) > 1e8


def test_whether_this_processor_has_it_is_known() -> None:
    assert isinstance(devices.has_bf16(CPU), bool)


def test_gradients_in_half_point_the_same_way_and_nothing_warns() -> None:
    torch.manual_seed(0)
    config = ModelConfig.preset(
        "tiny", vocab_size=60, norm="pre", norm_kind="rms", qk_norm="self", dropout=0.0
    )
    objective = Objective(Transformer(config), 0.1)
    source, target = torch.randint(1, 60, (2, 4, 7))
    targets = torch.randint(1, 60, (28,))

    def gradient(precision: str) -> torch.Tensor:
        objective.zero_grad()
        with autocast_for(TrainingConfig(steps=1, precision=precision), CPU)():
            sums = objective(source, target, torch.arange(28), targets)
        sums.smoothed.backward()
        return torch.cat([p.grad.flatten() for p in objective.parameters() if p.grad is not None])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exact, rough = gradient("fp32"), gradient("bf16")
    assert rough.dtype == torch.float32
    assert not torch.equal(exact, rough)
    assert torch.cosine_similarity(exact, rough, dim=0) > 0.99
