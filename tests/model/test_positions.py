"""Where a token stands: the paper's formula, both layouts, any length."""

import math

import pytest
import torch

from pellucid.errors import InputError
from pellucid.model import ModelConfig, Transformer
from pellucid.model.positions import RotaryPositions, SinusoidalPositions, sinusoidal_table


def test_the_formula_of_the_paper() -> None:
    width = 16
    table = sinusoidal_table(50, width)
    for position in (0, 1, 7, 49):
        for i in range(width // 2):
            angle = position / 10000 ** (2 * i / width)
            assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_the_layouts_are_the_same_columns_in_another_order() -> None:
    interleaved = sinusoidal_table(20, 512)
    halves = sinusoidal_table(20, 512, layout="halves")
    assert torch.equal(halves, torch.cat([interleaved[:, ::2], interleaved[:, 1::2]], dim=1))
    assert (halves[0, :256] == 0).all()  # sine of 0
    assert (halves[0, 256:] == 1).all()  # cosine of 0


def test_a_shift_is_the_same_rotation_everywhere() -> None:
    """Why sines: position p + n follows from p by a rotation that does not depend on p."""
    table = sinusoidal_table(100, 8, layout="halves").double()
    sines, cosines = table[:, :4], table[:, 4:]
    n, start = 5, torch.tensor([0, 13, 60])
    turn_sine, turn_cosine = sines[n], cosines[n]
    moved = sines[start] * turn_cosine + cosines[start] * turn_sine
    torch.testing.assert_close(moved, sines[start + n], atol=1e-6, rtol=0)


def test_computed_once_and_grown_when_needed() -> None:
    positions = SinusoidalPositions(8, base=10000.0, layout="interleaved")
    first = positions(10)
    assert positions(200).data_ptr() == first.data_ptr()
    assert torch.equal(positions(3, past=5000), sinusoidal_table(5003, 8)[5000:])
    assert torch.equal(positions(10), first)


@pytest.mark.parametrize("kind", ["sinusoidal", "rotary", "none"])
def test_longer_than_anything_seen(kind: str) -> None:
    config = ModelConfig.preset("tiny", vocab_size=20, position_encoding=kind, max_length=8)
    model = Transformer(config).eval()
    with torch.no_grad():
        assert model(torch.ones(1, 700, dtype=torch.long), torch.ones(1, 3).long()).isfinite().all()


def test_learned_positions_end_with_a_clear_line() -> None:
    config = ModelConfig.preset("tiny", vocab_size=20, position_encoding="learned", max_length=8)
    model = Transformer(config).eval()
    model(torch.ones(1, 8, dtype=torch.long), torch.ones(1, 8, dtype=torch.long))
    with pytest.raises(InputError, match=r"9 tokens is longer than the 8 learned positions.*raise"):
        model(torch.ones(1, 9, dtype=torch.long), torch.ones(1, 3, dtype=torch.long))


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_rotary_products_depend_on_the_distance_alone(layout: str) -> None:
    torch.manual_seed(0)
    rotary = RotaryPositions(8, base=100.0, layout=layout)
    q, k = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)

    def product(m: int, n: int) -> float:
        return (rotary(q, m) * rotary(k, n)).sum().item()

    assert product(3, 1) == pytest.approx(product(303, 301), abs=1e-4)
    assert product(3, 1) != pytest.approx(product(3, 2), abs=1e-4)
    assert rotary(q, 77).norm().item() == pytest.approx(q.norm().item(), rel=1e-5)


def test_rotary_layouts_are_one_rotation_of_permuted_numbers() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 5, 8)
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])  # interleaved pairs -> halves
    interleaved = RotaryPositions(8, base=50.0, layout="interleaved")
    halves = RotaryPositions(8, base=50.0, layout="halves")
    torch.testing.assert_close(interleaved(x)[..., order], halves(x[..., order]))
