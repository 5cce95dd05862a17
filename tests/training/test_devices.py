"""The precision of a run, and that bf16 gives nearly the same gradients as fp32."""

import warnings
from contextlib import nullcontext

import pytest
import torch

from pellucid.config import TrainingConfig
from pellucid.errors import InputError
from pellucid.model import ModelConfig, Transformer
from pellucid.training import devices
from pellucid.training.devices import autocast_for
from pellucid.training.loop import Objective
from pellucid.training.plan import hardware

CPU = torch.device("cpu")


def bf16(precision: str) -> bool:
    """Whether a run with this setting computes in bf16 on a processor."""
    return autocast_for(TrainingConfig(steps=1, precision=precision), CPU) is not nullcontext


@pytest.mark.parametrize("has", [True, False])
def test_a_processor_computes_in_bf16_only_when_asked_and_able(
    has: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without units for bf16, one line says that the run computes in fp32."""
    monkeypatch.setattr(devices, "has_bf16", lambda device: has)
    found = {name: bf16(name) for name in ("auto", "fp32", "bf16")}
    assert found == {"auto": False, "fp32": False, "bf16": has}
    notes = {
        name: devices.precision_note(TrainingConfig(steps=1, precision=name), CPU) for name in found
    }
    assert notes["auto"] is notes["fp32"] is None
    if has:
        assert notes["bf16"] is None
    else:
        assert "AVX-512 BF16 or AMX" in notes["bf16"]
        assert "computes in fp32" in notes["bf16"]
        assert "\n" not in notes["bf16"]


@pytest.mark.parametrize("has", [True, False])
def test_a_gpu_computes_in_bf16_if_it_can(has: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself where it can; asked for where it cannot, an error says so."""
    monkeypatch.setattr(devices, "has_bf16", lambda device: has)
    gpu = torch.device("cuda", 0)

    def config(precision: str) -> TrainingConfig:
        return TrainingConfig(steps=1, precision=precision)

    assert devices.uses_bf16(config("auto"), gpu) is has
    assert devices.uses_bf16(config("bf16"), gpu)
    assert not devices.uses_bf16(config("fp32"), gpu)
    assert devices.precision_note(config("bf16"), gpu) is None
    if not has:
        with pytest.raises(InputError, match=r"this GPU does not have: set 'fp32'"):
            autocast_for(config("bf16"), gpu)


@pytest.mark.parametrize(
    ("precision", "has", "measured"),
    [("bf16", True, True), ("bf16", False, False), ("fp32", True, False), ("auto", True, False)],
)
def test_the_peak_is_measured_in_the_precision_of_the_run(
    precision: str, has: bool, measured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a run in bf16 has more than 100% of it."""
    monkeypatch.setattr(devices, "has_bf16", lambda device: has)
    monkeypatch.setattr(devices, "matmul_rate", lambda device, *, bf16: 2.0 if bf16 else 1.0)
    config = TrainingConfig(steps=1, precision=precision)
    assert devices.peak_flops(config, CPU) == (2.0 if measured else 1.0)


def test_a_rate_is_measured_in_both() -> None:
    for kind in (False, devices.has_bf16(CPU)):
        assert hardware.matmul_rate("cpu", bf16=kind, seconds=0.01) > 1e8


def test_whether_this_processor_has_it_is_known() -> None:
    assert isinstance(devices.has_bf16(CPU), bool)


def test_gradients_in_bf16_point_the_same_way_and_nothing_warns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the processor only emulates bf16."""
    monkeypatch.setattr(devices, "has_bf16", lambda device: True)
    torch.manual_seed(0)
    config = ModelConfig.preset(
        "tiny", vocab_size=60, norm="pre", norm_type="rms", qk_norm="self", dropout=0.0
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
