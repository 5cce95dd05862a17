"""What must hold for attention whatever the numbers."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pellucid.model import (
    ModelConfig,
    MultiHeadAttention,
    TensorTrace,
    Transformer,
    attend,
    attend_fused,
)
from tests.property.strategies import configs

SETTINGS = settings(max_examples=300 if settings().max_examples > 100 else 40)


@st.composite
def attention_inputs(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q, k, v with any number of heads, and a mask of any broadcastable shape."""
    B, G, group = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    T, S, K = draw(st.integers(1, 7)), draw(st.integers(1, 7)), draw(st.integers(1, 9))
    torch.manual_seed(draw(st.integers(0, 10_000)))
    scale = draw(st.sampled_from([0.1, 1.0, 30.0]))
    q = torch.randn(B, G * group, T, K) * scale
    k, v = torch.randn(B, G, S, K) * scale, torch.randn(B, G, S, K)
    shape = (
        draw(st.sampled_from([1, B])),
        draw(st.sampled_from([1, G * group])),
        draw(st.sampled_from([1, T])),
        S,
    )
    return q, k, v, torch.rand(shape) < draw(st.sampled_from([0.0, 0.3, 0.8, 1.0]))


@SETTINGS
@given(attention_inputs())
def test_weights_are_a_mixing_formula(inputs: tuple[Tensor, ...]) -> None:
    q, k, v, mask = inputs
    trace = TensorTrace()
    mixed = attend(q, k, v, mask, trace=trace)
    weights = trace["weights"]
    visible = mask.expand_as(weights)
    assert (weights[~visible] == 0).all()
    assert (weights >= 0).all()
    anywhere = visible.any(dim=-1)
    sums = weights.sum(dim=-1)
    torch.testing.assert_close(sums[anywhere], torch.ones_like(sums[anywhere]))
    assert (mixed[~anywhere] == 0).all(), "a row that may look nowhere must give zeros"
    assert mixed.isfinite().all()


@SETTINGS
@given(attention_inputs(), st.booleans())
def test_readable_and_fused_paths_agree(inputs: tuple[Tensor, ...], masked: bool) -> None:
    q, k, v, mask = inputs
    seen = mask if masked else None
    torch.testing.assert_close(
        attend(q, k, v, seen), attend_fused(q, k, v, seen), atol=1e-5, rtol=1e-4
    )
    # gradients in double precision: with scores in the hundreds, single precision rounds coarsely
    results = []
    for path in (attend, attend_fused):
        leaves = [t.double().requires_grad_() for t in (q, k, v)]
        output = path(*leaves, seen)
        (output * torch.linspace(-1, 1, output.numel()).view_as(output)).sum().backward()
        results.append([output.detach(), *(leaf.grad for leaf in leaves)])
    for readable, fused in zip(*results, strict=True):
        assert readable.isfinite().all()
        torch.testing.assert_close(readable, fused, atol=1e-9, rtol=1e-7)


@SETTINGS
@given(
    configs(position_encoding="none", num_heads=2, num_kv_heads=1, d_model=8), st.integers(0, 999)
)
def test_without_positions_order_does_not_matter(config: ModelConfig, seed: int) -> None:
    """Permuting the source permutes the encoder's states and leaves the decoder's logits alone."""
    torch.manual_seed(seed)
    model = Transformer(config).eval().double()
    source, target = torch.randint(1, 23, (2, 6)), torch.randint(1, 23, (2, 4))
    order = torch.randperm(6)
    with torch.no_grad():
        states, moved = model.encode(source).states, model.encode(source[:, order]).states
        torch.testing.assert_close(states[:, order], moved, atol=1e-10, rtol=0)
        torch.testing.assert_close(
            model(source, target), model(source[:, order], target), atol=1e-10, rtol=0
        )


@SETTINGS
@given(st.integers(0, 999), st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_beams_share_the_source_without_copies(
    seed: int, beams: int, length: int, full_mask: bool
) -> None:
    """Cross-attention of several beams over one sentence equals attention over copies of it."""
    torch.manual_seed(seed)
    attention = MultiHeadAttention(12, 3, 1).requires_grad_(False).double()
    for parameter in attention.parameters():
        parameter.normal_(std=0.5)
    memory, x = torch.randn(2, 5, 12).double(), torch.randn(2 * beams, length, 12).double()
    mask = torch.rand(2, 1, length if full_mask else 1, 5) < 0.7
    shared = attention.cross(x, attention.key_values(memory), mask)
    copies = attention.key_values(memory.repeat_interleave(beams, dim=0))
    apart = attention.cross(x, copies, mask.repeat_interleave(beams, dim=0))
    torch.testing.assert_close(shared, apart, atol=1e-10, rtol=0)
    traced = attention.cross(x, attention.key_values(memory), mask, trace=TensorTrace())
    torch.testing.assert_close(shared, traced, atol=1e-10, rtol=0)
