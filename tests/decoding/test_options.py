"""Options refuse what cannot be, in one line, and the bound holds for each penalty."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.decoding import DecodingOptions, SpecialIds
from pellucid.decoding.options import best_attainable, penalty
from pellucid.decoding.search.task import plan
from pellucid.errors import ConfigError, InputError

SPECIAL = SpecialIds(pad=0, start=1, end=2)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"beam_size": 0}, "greater than or equal to 1"),
        ({"beam_size": 10**9}, "less than or equal to 1024"),
        ({"beam_size": 2, "n_best": 3}, "raise beam_size or lower n_best"),
        ({"beam_siz": 4}, "did you mean 'beam_size'"),
        ({"sample": True, "beam_size": 4}, "set beam_size to 1"),
        ({"top_k": 5}, "set sample to true"),
        ({"min_length": 9, "max_length": 3}, "min_length = 9"),
        ({"length_normalization": "google"}, "choose 'none', 'gnmt' or 'average'"),
        ({"length_penalty": float("nan")}, "length_penalty"),
        ({"temperature": 0.0, "sample": True}, "greater than 0"),
    ],
)
def test_wrong_options(values: dict, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        DecodingOptions(**values)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_penalties() -> None:
    assert penalty("none", 1.0, 7) == 1.0
    assert penalty("gnmt", 0.6, 7) == pytest.approx(2**0.6)
    assert penalty("average", 1.0, 7) == 7.0
    assert penalty("average", 1.0, 0) == 1.0


@given(
    st.sampled_from(["none", "gnmt", "average"]),
    st.floats(-3, 3),
    st.lists(st.floats(-20, 0), min_size=1, max_size=12),
    st.integers(1, 5),
    st.integers(0, 5),
)
def test_nothing_beats_the_bound(
    kind: str, alpha: float, steps: list[float], known: int, spare: int
) -> None:
    """Every way to finish after `known` tokens scores at most the bound."""
    known = min(known, len(steps))
    limit = len(steps) + spare
    options = DecodingOptions(length_normalization=kind, length_penalty=alpha)
    bound = best_attainable(options, np.array([sum(steps[:known])]), known, limit)[0]
    for length in range(known + 1, len(steps) + 1):
        score = sum(steps[:length]) / penalty(options.length_normalization, alpha, length)
        assert score <= bound + 1e-9 * abs(bound)


def test_limits() -> None:
    paper = DecodingOptions()
    assert paper.limit(10) == 60
    assert DecodingOptions(max_length_ratio=1.5, max_length_extra=3).limit(7) == 13
    assert DecodingOptions(max_length=5).limit(7) == 5
    task = plan([[5] * 4], DecodingOptions(max_length=2), SPECIAL, vocab_size=9, prefixes=[[5] * 6])
    assert task.limits == [6]  # a prefix is never cut
    task = plan([[5] * 4], paper, SPECIAL, vocab_size=9, longest=8)
    assert task.limits == [8]


@pytest.mark.parametrize(
    ("sources", "more", "says"),
    [
        ([[3], [4, 9]], {}, "source 1: token id 9 is outside the vocabulary of 9"),
        ([[3, -1]], {}, "source 0: token id -1"),
        ([[3, 0]], {}, "source 0: token id 0 is a special token"),
        ([[3]], {"prefixes": [[3], []]}, "2 prefixes for 1 sentences"),
        ([[3]], {"prefixes": [[2]]}, "prefix 0: token id 2 is a special token"),
        ([[]], {"prefixes": [[3]]}, "prefix 0 has no source"),
        ([[3]], {"keys": []}, "0 keys for 1 sentences"),
    ],
)
def test_wrong_input(sources: list, more: dict, says: str) -> None:
    with pytest.raises(InputError) as error:
        plan(sources, DecodingOptions(), SPECIAL, vocab_size=9, **more)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_suppressed_outside_the_vocabulary() -> None:
    with pytest.raises(InputError, match="suppress_tokens: token 9"):
        plan([[3]], DecodingOptions(suppress_tokens={9}), SPECIAL, vocab_size=9)


def test_the_ct2_path_needs_no_torch() -> None:
    modules = ["options", "steps", "engine", "engine_selection", "ct2.engine"]
    searches = ["task", "predictor", "hypotheses", "beam", "greedy", "sampling"]
    modules += [f"search.{name}" for name in searches]
    names = ", ".join(f"pellucid.decoding.{name}" for name in modules)
    code = f"import sys, {names}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
