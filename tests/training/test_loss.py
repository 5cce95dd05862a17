"""The loss: what it equals, that its gradient is right, and that nothing large is held."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.training import loss as loss_module
from pellucid.training.loss import SoftTargets, linear_loss, smoothed_cross_entropy


def case(N: int, D: int, V: int, seed: int, bias: bool) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(N, D, generator=generator, dtype=torch.float64)
    weight = torch.randn(V, D, generator=generator, dtype=torch.float64)
    added = torch.randn(V, generator=generator, dtype=torch.float64) if bias else None
    targets = torch.randint(V, (N,), generator=generator)
    leaves = [t.requires_grad_() for t in (states, weight, added) if t is not None]
    return (*leaves, *([] if bias else [None]), targets)


def random_soft_targets(N: int, V: int, K: int, seed: int) -> SoftTargets:
    """Any soft targets: a token twice, the right one too, up to the whole target."""
    generator = torch.Generator().manual_seed(seed + 1000)
    probabilities = torch.rand(N, K, generator=generator, dtype=torch.float64)
    probabilities /= (
        probabilities.sum(dim=-1, keepdim=True) + torch.rand(N, 1, generator=generator).round()
    )
    return SoftTargets(torch.randint(V, (N, K), generator=generator), probabilities)


@given(
    N=st.integers(1, 12),
    V=st.integers(2, 30),
    smoothing=st.floats(0, 0.9),
    seed=st.integers(0, 99),
)
@settings(max_examples=40)
def test_it_is_the_divergence_from_the_smoothed_target(
    N: int, V: int, smoothing: float, seed: int
) -> None:
    """-sum q log p = KL(q || p) + H(q), and H(q) depends on nothing but smoothing and V."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(N, V, generator=generator, dtype=torch.float64)
    targets = torch.randint(V, (N,), generator=generator)
    q = torch.full((N, V), smoothing / V, dtype=torch.float64)
    q[torch.arange(N), targets] += 1 - smoothing
    divergence = F.kl_div(logits.log_softmax(-1), q, reduction="sum").item()
    top, rest = 1 - smoothing + smoothing / V, smoothing / V
    entropy = -top * math.log(top) - ((V - 1) * rest * math.log(rest) if rest else 0.0)
    found = smoothed_cross_entropy(logits, targets, smoothing)
    assert found.smoothed.item() == pytest.approx(divergence + N * entropy, rel=1e-9)
    reference = F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    assert found.smoothed.item() == pytest.approx(reference.item(), rel=1e-9)
    assert found.plain.item() == pytest.approx(F.cross_entropy(logits, targets).item() * N)


@given(
    N=st.integers(0, 20),
    V=st.integers(2, 40),
    smoothing=st.sampled_from([0.0, 0.1, 0.7]),
    bias=st.booleans(),
    K=st.sampled_from([0, 1, 3]),
    chunk=st.integers(1, 200),
    seed=st.integers(0, 99),
)
@settings(max_examples=200)
def test_fused_equals_the_plain_formula(
    N: int,
    V: int,
    smoothing: float,
    bias: bool,
    K: int,
    chunk: int,
    seed: int,
) -> None:
    """Values and gradients, whatever the size of a chunk; also for no tokens at all."""
    states, weight, added, targets = case(N, 5, V, seed, bias)
    leaves = [t for t in (states, weight, added) if t is not None]
    soft_targets = random_soft_targets(len(states), V, K, seed) if K else None
    usual = loss_module.CHUNK_NUMBERS
    loss_module.CHUNK_NUMBERS = chunk
    try:
        fused = linear_loss(states, weight, added, targets, smoothing, soft_targets)
    finally:
        loss_module.CHUNK_NUMBERS = usual
    logits = F.linear(states, weight, added)
    plain = smoothed_cross_entropy(logits, targets, smoothing, soft_targets)
    torch.testing.assert_close(fused.smoothed, plain.smoothed)
    torch.testing.assert_close(fused.plain, plain.plain)
    ours = torch.autograd.grad(fused.smoothed * 1.7, leaves)
    theirs = torch.autograd.grad(plain.smoothed * 1.7, leaves)
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own, other)


def test_what_teachers_say_is_a_part_of_the_target() -> None:
    """The target written out in full, against PyTorch's own loss for probabilities."""
    generator = torch.Generator().manual_seed(5)
    logits = 3 * torch.randn(8, 9, generator=generator, dtype=torch.float64)
    targets = torch.randint(9, (8,), generator=generator)
    tokens = torch.stack([torch.randperm(9, generator=generator)[:4] for _ in range(8)])
    probabilities = torch.rand(8, 4, generator=generator, dtype=torch.float64) / 4
    q = torch.zeros(8, 9, dtype=torch.float64).scatter_(1, tokens, probabilities)
    q[torch.arange(8), targets] += 1 - probabilities.sum(dim=-1)
    found = smoothed_cross_entropy(
        logits, targets, 0.1, soft_targets=SoftTargets(tokens, probabilities)
    )
    wanted = F.cross_entropy(logits, q, label_smoothing=0.1, reduction="sum")
    torch.testing.assert_close(found.smoothed, wanted)
    torch.testing.assert_close(found.plain, F.cross_entropy(logits, targets, reduction="sum"))


def test_the_gradient_by_finite_differences() -> None:
    states, weight, bias, targets = case(4, 3, 6, 1, True)
    linear_loss(states, weight, bias, targets, 0.1).smoothed.backward()
    for leaf in (states, weight, bias):
        for place in range(leaf.numel()):
            values = []
            for step in (1e-6, -1e-6):
                with torch.no_grad():
                    leaf.view(-1)[place] += step
                    values.append(linear_loss(states, weight, bias, targets, 0.1).smoothed.item())
                    leaf.view(-1)[place] -= step
            slope = (values[0] - values[1]) / 2e-6
            assert leaf.grad.view(-1)[place].item() == pytest.approx(slope, abs=1e-6)


def test_a_second_backward_pass_is_refused() -> None:
    """The gradients are made once and changed in place; a second use would be wrong."""
    states, weight, _, targets = case(4, 3, 6, 1, False)
    found = linear_loss(states, weight, None, targets).smoothed * 0.5
    found.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        found.backward()


def test_without_gradients_none_are_made() -> None:
    states, weight, _, targets = case(4, 3, 6, 1, False)
    with torch.no_grad():
        found = linear_loss(states, weight, None, targets, 0.1)
    assert not found.smoothed.requires_grad
    assert not linear_loss(states, weight, None, targets).plain.requires_grad


class _Largest(torch.utils._python_dispatch.TorchDispatchMode):
    """Notes the largest tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.numbers = max(self.numbers, tensor.numel())
        return result


def test_no_more_than_a_chunk_of_logits_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    N, D, V = 512, 8, 300
    monkeypatch.setattr(loss_module, "CHUNK_NUMBERS", 16 * V)
    states, weight, _, targets = case(N, D, V, 0, False)
    with _Largest() as fused:
        linear_loss(states, weight, None, targets, 0.1).smoothed.backward()
    with _Largest() as plain:
        smoothed_cross_entropy(F.linear(states, weight), targets, 0.1).smoothed.backward()
    assert fused.numbers == 16 * V
    assert plain.numbers == N * V


def test_half_precision_sums_in_full() -> None:
    """Under autocast, products are in bf16, and log-sums over the vocabulary are not."""
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(64, 16, generator=generator, requires_grad=True)
    weight = torch.randn(500, 16, generator=generator, requires_grad=True)
    targets = torch.randint(500, (64,), generator=generator)
    exact = linear_loss(states, weight, None, targets, 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        rough = linear_loss(states, weight, None, targets, 0.1)
    assert rough.smoothed.dtype == torch.float32
    assert rough.smoothed.item() == pytest.approx(exact.smoothed.item(), rel=5e-3)
    rough.smoothed.backward()
    assert states.grad is not None
    assert states.grad.dtype == torch.float32
    own = torch.autograd.grad(exact.smoothed, states)[0]
    assert F.cosine_similarity(states.grad.flatten(), own.flatten(), dim=0) > 0.999
