"""Adam, AdamW and Muon; schedules; averages; their state as plain tensors."""

import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from pellucid.config import ModelConfig, TrainingConfig
from pellucid.errors import ConfigError, InputError, PellucidError
from pellucid.model import Transformer
from pellucid.training import devices
from pellucid.training.optim.averaging import MovingAverage, average_weights
from pellucid.training.optim.muon import POLYNOMIALS, Blocks, Muon, orthogonalised
from pellucid.training.optim.optimizers import Optimizers, inner_matrices
from pellucid.training.optim.schedule import learning_rate_factor, peak_learning_rate

FLOAT = torch.float32


def small(**changes: object) -> Transformer:
    torch.manual_seed(0)
    shape = {"d_model": 16, "d_ff": 24, "num_heads": 2, "encoder_layers": 1}
    return Transformer(ModelConfig(vocab_size=20, decoder_layers=1, **{**shape, **changes}))


def whole(parameter: Tensor) -> Blocks:
    return Blocks(*((size,) for size in parameter.shape))


def reference_iteration(G: Tensor) -> Tensor:
    """The iteration as a formula, one matrix at a time, always on the whole matrix."""
    X = G.T if G.shape[0] > G.shape[1] else G
    X = X / (X @ X.T).norm().sqrt().clamp(min=1e-7)
    for a, b, c in POLYNOMIALS:
        A = X @ X.T
        X = a * X + (b * A + c * A @ A) @ X
    return X.T if G.shape[0] > G.shape[1] else X


@given(rows=st.integers(1, 24), columns=st.integers(1, 24), seed=st.integers(0, 99))
@settings(max_examples=40)
def test_the_iteration_alone_and_in_a_batch(rows: int, columns: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    matrices = torch.randn(3, rows, columns, generator=generator)
    together = orthogonalised(matrices)
    for matrix, found in zip(matrices, together, strict=True):
        torch.testing.assert_close(found, orthogonalised(matrix[None])[0], rtol=1e-3, atol=2e-4)
        torch.testing.assert_close(found, reference_iteration(matrix), rtol=1e-3, atol=2e-4)


def test_singular_values_come_near_one() -> None:
    """Whatever they were, within what the polynomials give (0.87 to 1.13)."""
    generator = torch.Generator().manual_seed(0)
    for rows, columns in [(32, 32), (64, 16), (16, 64)]:
        size = min(rows, columns)
        U = torch.linalg.qr(torch.randn(rows, size, generator=generator))[0]
        V = torch.linalg.qr(torch.randn(columns, size, generator=generator))[0]
        spread = torch.logspace(0, -2, size)
        found = orthogonalised((U * spread @ V.T)[None])[0]
        values = torch.linalg.svdvals(found)
        assert values.min() > 0.86
        assert values.max() < 1.14
        # and the directions are the same: what is left is a diagonal
        inside = U.T @ found @ V
        assert (inside - torch.diag(inside.diagonal())).abs().max() < 1e-4


@given(
    rows=st.integers(2, 80),
    columns=st.integers(2, 80),
    most=st.integers(1, 80),
    rest=st.sampled_from([0.0, 1e-4, 1e-2, 0.3]),
    seed=st.integers(0, 99),
)
@settings(max_examples=60)
def test_in_bfloat16_no_direction_gets_out_of_hand(
    rows: int, columns: int, most: int, rest: float, seed: int
) -> None:
    """Rounding puts singular values beyond where the polynomials are flat; above all large ones."""
    generator = torch.Generator().manual_seed(seed)
    size = min(rows, columns)
    U = torch.linalg.qr(torch.randn(rows, size, generator=generator))[0]
    V = torch.linalg.qr(torch.randn(columns, size, generator=generator))[0]
    spread = torch.where(torch.arange(size) < most, 1.0, rest)
    matrix = (U * spread @ V.T)[None]
    rough, exact = (orthogonalised(matrix, kind)[0].float() for kind in (torch.bfloat16, FLOAT))
    assert torch.linalg.svdvals(rough).max() < 1.25
    large = slice(0, min(size, most))  # what it is about; the rest is nearly noise in bfloat16
    for found in (rough, exact):
        inside = (U.T @ found @ V).diagonal()[large]
        assert inside.min() > 0.8


def test_muon_iterates_in_what_a_run_computes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def kind(precision: str) -> torch.dtype:
        config = TrainingConfig(steps=9, optimizer="muon", precision=precision)
        muon = Optimizers(small(), config).all[1]
        assert isinstance(muon, Muon)
        return muon.dtype

    for has in (True, False):
        monkeypatch.setattr(devices, "has_bf16", lambda device, has=has: has)
        assert kind("bf16") == (torch.bfloat16 if has else FLOAT)
        assert kind("fp32") == kind("auto") == FLOAT  # on a processor, auto is fp32


def test_a_matrix_of_zeros_stays_one() -> None:
    assert not orthogonalised(torch.zeros(2, 3, 4)).any()


def test_muon_is_torchs_muon_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps of torch.optim.Muon, whose iteration is replaced by the one in float32."""
    import torch.optim._muon as theirs_module

    monkeypatch.setattr(
        theirs_module, "_zeropower_via_newtonschulz", lambda G, *_: reference_iteration(G)
    )
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(shape, generator=generator) for shape in [(12, 8), (8, 12), (8, 8)]]
    ours = [torch.nn.Parameter(matrix.clone()) for matrix in start]
    theirs = [torch.nn.Parameter(matrix.clone()) for matrix in start]
    own = Muon([(p, whole(p)) for p in ours], lr=0.02, momentum=0.9, weight_decay=0.1)
    other = torch.optim.Muon(theirs, lr=0.02, momentum=0.9, weight_decay=0.1)
    for _ in range(3):
        for mine, yours in zip(ours, theirs, strict=True):
            mine.grad = torch.randn(mine.shape, generator=generator)
            yours.grad = mine.grad.clone()
        own.step()
        other.step()
    for mine, yours in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, yours, rtol=1e-4, atol=1e-6)


def test_blocks_are_matrices_of_their_own() -> None:
    """Below each other or side by side: as if each were a parameter, but for the length of those
    side by side, which goes by the width that they share."""
    generator = torch.Generator().manual_seed(0)
    for blocks in (Blocks((4, 4, 2), (12,)), Blocks((10,), (4, 4, 4)), Blocks((5, 5), (6, 6))):
        joint = torch.nn.Parameter(torch.randn(10, 12, generator=generator))
        apart = [torch.nn.Parameter(part.detach().clone()) for part in blocks.of(joint)]
        one, many = Muon([(joint, blocks)], lr=0.1), Muon([(p, whole(p)) for p in apart], lr=0.1)
        joint.grad = torch.randn(10, 12, generator=generator)
        before = [part.clone() for part in blocks.of(joint.detach())]
        for part, gradient in zip(apart, blocks.of(joint.grad), strict=True):
            part.grad = gradient.clone()
        one.step()
        many.step()
        for old, together, alone in zip(before, blocks.of(joint.detach()), apart, strict=True):
            R, C = old.shape
            longer = max(1.0, R / C) ** 0.5  # of a parameter that is as tall as this block
            torch.testing.assert_close((together - old) * longer, alone.detach() - old)
    with pytest.raises(ValueError, match=r"\(10, 12\) is not made of Blocks\(rows=\(5, 4\)"):
        Muon([(joint, Blocks((5, 4), (12,)))], lr=0.1)


def test_an_update_is_as_long_in_blocks_as_whole() -> None:
    """Per head or in one piece: as many singular values near 1, so the same rate fits."""
    generator = torch.Generator().manual_seed(0)
    gradient = torch.randn(32, 32, generator=generator)
    lengths = []
    for blocks in (Blocks((32,), (32,)), Blocks((8,) * 4, (32,)), Blocks((32,), (8,) * 4)):
        matrix = torch.nn.Parameter(torch.zeros(32, 32))
        matrix.grad = gradient.clone()
        Muon([(matrix, blocks)], lr=1.0).step()
        lengths.append(matrix.norm().item())
    assert lengths == pytest.approx([32**0.5] * 3, rel=0.05)


def test_which_matrices_muon_gets() -> None:
    model = small(activation="swiglu", num_kv_heads=1)
    found = inner_matrices(model)
    assert found["encoder.layers.0.attention.in_weight"] == Blocks((8,) * 4, (16,))
    assert found["encoder.layers.0.feed_forward.inner.weight"] == Blocks((24, 24), (16,))
    assert found["decoder.layers.0.cross.out.weight"] == Blocks((16,), (8, 8))
    others = {name for name, _ in model.named_parameters() if name not in found}
    assert all("norm" in name or "bias" in name or "tokens" in name for name in others), others


def gradients(model: Transformer, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


@pytest.mark.parametrize("name", ["adam", "adamw", "muon"])
def test_the_state_is_plain_tensors_that_go_on(name: str, tmp_path: Path) -> None:
    config = TrainingConfig(steps=9, optimizer=name, weight_decay=0.1, learning_rate=0.01)
    straight, stopped = small(), small()
    first, second = Optimizers(straight, config), Optimizers(stopped, config)
    for step in range(2):
        for model, optimizers in ((straight, first), (stopped, second)):
            gradients(model, step)
            optimizers.step(0.5)
    state = second.tensors()
    assert all(isinstance(tensor, Tensor) for tensor in state.values())
    save_file({key: tensor.clone() for key, tensor in state.items()}, tmp_path / "state")
    fresh = small()
    fresh.load_state_dict(stopped.state_dict())
    third = Optimizers(fresh, config)
    third.restore({key: tensor.clone() for key, tensor in state.items()})
    for model, optimizers in ((straight, first), (fresh, third)):
        gradients(model, 7)
        optimizers.step(0.25)
    for one, other in zip(straight.parameters(), fresh.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_state_of_another_model_is_refused() -> None:
    config = TrainingConfig(steps=9)
    optimizers = Optimizers(small(), config)
    with pytest.raises(PellucidError, match="has the shape"):
        optimizers.restore({"source_embedding.tokens.weight/exp_avg": torch.zeros(3)})
    with pytest.raises(PellucidError, match="a state for nobody"):
        optimizers.restore({"nobody/exp_avg": torch.zeros(3)})


def test_norms_and_biases_do_not_decay() -> None:
    config = TrainingConfig(steps=9, optimizer="adamw", weight_decay=0.5, learning_rate=0.1)
    model = small()
    optimizers = Optimizers(model, config)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizers.step(1.0)
    for name, parameter in model.named_parameters():
        shrunk = 1 - 0.1 * 0.5 if parameter.ndim >= 2 else 1.0
        torch.testing.assert_close(parameter.detach(), shrunk * before[name])


def test_adam_as_in_the_paper() -> None:
    """One step, by hand: betas 0.9 and 0.98, epsilon 1e-9."""
    model = small()
    optimizers = Optimizers(model, TrainingConfig(steps=9, optimizer="adam", learning_rate=0.01))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    gradients(model, 0)
    optimizers.step(1.0)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        change = 0.01 * parameter.grad / (parameter.grad.abs() + 1e-9)
        torch.testing.assert_close(parameter.detach(), before[name] - change)


def test_the_papers_schedule() -> None:
    """lrate = d^-0.5 min(step^-0.5, step warmup^-1.5), formula (3)."""
    config = TrainingConfig(steps=100_000, schedule="noam", warmup_steps=4000)
    for width in (512, 1024):
        for step in (1, 100, 3999, 4000, 4001, 100_000):
            formula = width**-0.5 * min(step**-0.5, step * 4000**-1.5)
            found = peak_learning_rate(config, width) * learning_rate_factor(config, step, 100_000)
            assert found == pytest.approx(formula, rel=1e-12)


SCHEDULES = ["noam", "inverse_sqrt", "cosine", "warmup_stable_decay", "constant"]


@given(
    schedule=st.sampled_from(SCHEDULES),
    warmup=st.integers(0, 50),
    total=st.integers(1, 200),
    final=st.floats(0, 1),
    decay=st.floats(0.01, 1),
)
@settings(max_examples=100)
def test_every_schedule_rises_and_never_rises_again(
    schedule: str, warmup: int, total: int, final: float, decay: float
) -> None:
    if schedule == "noam" and warmup == 0:
        return
    config = TrainingConfig(
        steps=total,
        schedule=schedule,
        warmup_steps=warmup,
        min_lr_ratio=final,
        decay_fraction=decay,
    )
    shares = [learning_rate_factor(config, step, total) for step in range(1, total + 1)]
    assert all(0 < share <= 1 for share in shares)
    falling = shares[max(0, warmup - 1) :]
    assert all(a >= b - 1e-12 for a, b in pairwise(falling))
    rising = shares[: max(1, warmup)]
    if schedule != "warmup_stable_decay":  # there the end may come before the warm-up's
        assert all(a <= b + 1e-12 for a, b in pairwise(rising))
    for step in range(1, min(warmup, total) + 1):
        assert shares[step - 1] <= step / warmup + 1e-12


def test_where_schedules_end() -> None:
    wsd = TrainingConfig(
        steps=100, schedule="warmup_stable_decay", warmup_steps=10, decay_fraction=0.2
    )
    assert learning_rate_factor(wsd, 80, 100) == 1.0
    assert learning_rate_factor(wsd, 100, 100) == pytest.approx(1 / 20)
    assert learning_rate_factor(wsd, 101, 100) == 0.0
    cosine = TrainingConfig(steps=100, schedule="cosine", warmup_steps=0, min_lr_ratio=0.1)
    assert learning_rate_factor(cosine, 101, 100) == pytest.approx(0.1)
    assert learning_rate_factor(cosine, 50, 100) == pytest.approx(0.55, abs=0.01)
    with pytest.raises(ConfigError, match="needs the number of steps in advance"):
        TrainingConfig(minutes=5, schedule="cosine")


def test_the_moving_average() -> None:
    model = small()
    average = MovingAverage(model, decay=0.5)
    name, parameter = next(iter(model.named_parameters()))
    first = parameter.detach().clone()
    with torch.no_grad():
        parameter.add_(1.0)
    average.update(model, step=1)
    decay = min(0.5, 2 / 11)
    torch.testing.assert_close(average.weights[name], first + (1 - decay))
    average.update(model, step=100)
    torch.testing.assert_close(average.weights[name], first + (1 - decay * 0.5))


def test_the_mean_of_checkpoints() -> None:
    some = [{"w": torch.full((2, 2), float(n)), "b": torch.ones(3)} for n in range(3)]
    found = average_weights(some)
    assert list(found) == ["w", "b"]
    assert torch.equal(found["w"], torch.ones(2, 2))
    assert found["w"].dtype == torch.float32
    assert math.isclose(found["b"].sum().item(), 3.0)
    with pytest.raises(InputError, match="other weights"):
        average_weights([*some, {"other": torch.ones(1)}])
    with pytest.raises(InputError, match="no checkpoint"):
        average_weights([])
