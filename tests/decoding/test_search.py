"""Searches over a table of probabilities, where the right answer is known by hand."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from pellucid.decoding import DecodingOptions, Fate, Result, SpecialIds, Step
from pellucid.decoding.search.beam import beam_search
from pellucid.decoding.search.greedy import choose_best, token_by_token
from pellucid.decoding.search.hypotheses import ngram_repeats
from pellucid.decoding.search.predictor import Banned, Ranked
from pellucid.decoding.search.sampling import choose_sampled, draw, uniform
from pellucid.decoding.search.task import plan
from pellucid.decoding.steps import run_to_end

PAD, START, END, A, B, C = range(6)
SPECIAL = SpecialIds(PAD, START, END)


class Table:
    """A Predictor whose next token depends on the last one only: {last: {next: probability}}."""

    def __init__(self, table: dict[int, dict[int, float]]) -> None:
        self.logs = np.full((6, 6), -np.inf)
        for last, following in table.items():
            for token, probability in following.items():
                self.logs[last, token] = math.log(probability)

    def prefill(self, history: np.ndarray) -> np.ndarray:
        return self.logs[history[:, :-1], history[:, 1:]]

    def rank(
        self,
        history: np.ndarray,
        top: int,
        *,
        banned: Banned | None = None,
        wanted: np.ndarray | None = None,
    ) -> Ranked:
        ranked = self.distribution(history, banned=banned, wanted=wanted)
        logs = ranked.log_probabilities
        order = np.argsort(-logs, axis=1, kind="stable")[:, :top]
        return Ranked(order, np.take_along_axis(logs, order, 1), ranked.wanted)

    def distribution(
        self,
        history: np.ndarray,
        *,
        banned: Banned | None = None,
        wanted: np.ndarray | None = None,
    ) -> Ranked:
        logs = self.logs[history[:, -1]]
        asked = None if wanted is None else logs[np.arange(len(logs)), np.maximum(wanted, 0)]
        if banned is not None:
            logs[banned.rows, banned.tokens] = -np.inf
        return Ranked(np.broadcast_to(np.arange(6), logs.shape), logs, asked)

    def reorder(self, rows: np.ndarray, sentences: np.ndarray | None) -> None:
        pass


# Greedy takes A (0.5) and then needs the poor end; B is worth more in the end.
TRAP = {
    START: {A: 0.5, B: 0.4, C: 0.1},
    A: {C: 0.4, B: 0.35, END: 0.25},
    B: {END: 0.9, A: 0.1},
    C: {END: 0.5, C: 0.5},
}


def decode(
    table: dict[int, dict[int, float]], prefix: tuple[int, ...] = (), **settings: Any
) -> tuple[list[Step], Result]:
    options = DecodingOptions(**{"max_length": 8, **settings})
    task = plan([[A, B]], options, SPECIAL, vocab_size=6, prefixes=[prefix])
    if options.sample:
        steps = token_by_token(task, np.array([0]), Table(table), choose_sampled, options.n_best)
    elif options.beam_size == 1:
        steps = token_by_token(task, np.array([0]), Table(table), choose_best)
    else:
        steps = beam_search(task, np.array([0]), Table(table))
    taken, results = run_to_end(steps)
    return taken, results[0]


def test_greedy_falls_into_the_trap() -> None:
    _, result = decode(TRAP, beam_size=1)
    assert result.best.tokens == (A, C)
    assert result.best.log_probability == pytest.approx(math.log(0.5 * 0.4 * 0.5))
    assert result.near_tie  # C goes on or ends: 0.5 against 0.5


def test_beam_does_not() -> None:
    steps, result = decode(TRAP, beam_size=2, length_normalization="none")
    assert result.best.tokens == (B,)
    assert result.best.log_probability == pytest.approx(math.log(0.36))
    first = steps[0].candidates(0)
    assert [(c.token, c.fate) for c in first] == [
        (A, Fate.KEPT),
        (B, Fate.KEPT),
        (C, Fate.PRUNED),
    ]
    second = steps[1].candidates(0)
    assert (second[0].parent, second[0].token, second[0].fate) == (1, END, Fate.FINISHED)
    assert len(steps) == 2  # 0.36 cannot be beaten by 0.2: proven, so the search stops


def test_going_on_without_early_exit() -> None:
    steps, result = decode(
        TRAP, beam_size=2, length_normalization="none", early_exit=False, stop="proven"
    )
    assert result.best.tokens == (B,)
    assert len(steps) == 8


def test_prefix_of_any_length() -> None:
    for prefix in [(), (A,), (A, B), (C, C, C)]:
        for beam in (1, 3):
            _, result = decode(TRAP, prefix, beam_size=beam)
            assert result.best.tokens[: len(prefix)] == prefix
            assert result.prefix_length == len(prefix)
            assert result.best.length == len(result.best.token_log_probabilities)


@pytest.mark.parametrize("beam", [1, 3])
def test_cut_at_the_limit_is_said(beam: int) -> None:
    loop = {START: {A: 1.0}, A: {A: 1.0}}
    _, result = decode(loop, beam_size=beam, max_length=3)
    assert (result.best.tokens, result.best.ended, result.best.length) == ((A, A, A), "length", 3)
    _, result = decode(loop, (A, A, A, A), beam_size=beam, max_length=3)
    assert (result.best.tokens, result.best.ended) == ((A, A, A, A), "length")


@pytest.mark.parametrize("beam", [1, 3])
def test_dead_end_is_said(beam: int) -> None:
    dead = {START: {A: 1.0}, A: {B: 1.0}, B: {}}
    _, result = decode(dead, beam_size=beam)
    assert (result.best.tokens, result.best.ended) == ((A, B), "blocked")


def test_ties_go_to_the_lower_token_and_are_reported() -> None:
    even = {START: {A: 0.5, B: 0.5}, A: {END: 1.0}, B: {END: 1.0}}
    for beam in (1, 2):
        _, result = decode(even, beam_size=beam)
        assert result.best.tokens == (A,)
        assert result.near_tie
    clear = {START: {A: 0.6, B: 0.4}, A: {END: 1.0}, B: {END: 1.0}}
    assert not decode(clear, beam_size=1)[1].near_tie
    assert not decode(clear, beam_size=2, n_best=2)[1].near_tie


def test_patience_waits() -> None:
    quick, _ = decode(TRAP, beam_size=2, early_exit=False, patience=1.0)
    slow, _ = decode(TRAP, beam_size=2, early_exit=False, patience=2.0)
    assert len(quick) < len(slow)


def test_short_and_worse_outputs_do_not_crowd_out_a_better_one() -> None:
    """Two hypotheses finish at once, with middling scores; the best one needs 3 more tokens."""
    model = {
        START: {A: 0.55, END: 0.25, B: 0.2},
        A: {A: 0.9, END: 0.1},
        B: {END: 0.6, A: 0.4},
    }
    _, crowded = decode(model, beam_size=2, patience=1.0, early_exit=False, max_length=6)
    _, usual = decode(model, beam_size=2, max_length=6)
    _, proven = decode(model, beam_size=2, stop="proven", max_length=6)
    assert usual.best.score == pytest.approx(proven.best.score)
    assert usual.best.score > crowded.best.score


def test_sampling_follows_the_probabilities() -> None:
    coin = {START: {A: 0.7, B: 0.3}, A: {END: 1.0}, B: {END: 1.0}}
    _, result = decode(coin, sample=True, n_best=1000)
    counts = Counter(h.tokens for h in result.hypotheses)
    assert 640 < counts[A,] < 760
    _, cold = decode(coin, sample=True, n_best=50, temperature=0.01)
    assert {h.tokens for h in cold.hypotheses} == {(A,)}
    _, narrow = decode(coin, sample=True, n_best=50, top_p=0.6)
    assert {h.tokens for h in narrow.hypotheses} == {(A,)}
    _, single = decode(coin, sample=True, n_best=50, top_k=1)
    assert {h.tokens for h in single.hypotheses} == {(A,)}
    again = decode(coin, sample=True, n_best=1000)[1]
    assert again == result
    assert decode(coin, sample=True, n_best=1000, seed=1)[1] != result


def test_draws_are_fixed_for_ever() -> None:
    """The same seed must give the same text in a year: the function may not change."""
    assert uniform(0, 0, 0, 0) == pytest.approx(0.3723266815877797, abs=1e-15)
    assert (
        len({uniform(s, k, n, p) for s in (0, 1) for k in (0, 1) for n in (0, 1) for p in (0, 1)})
        == 16
    )


def test_draw_of_nothing_allowed() -> None:
    options = DecodingOptions(sample=True)
    token, _ = draw(np.full(4, -np.inf), options, 0.3)
    assert token == 0  # its score stays -inf, so the hypothesis is blocked


def test_ngrams() -> None:
    assert ngram_repeats([A, B, A], 2) == [B]
    assert ngram_repeats([A, B, A], 1) == [A, B]
    assert ngram_repeats([A, B, C], 2) == []
    assert ngram_repeats([A], 3) == []
    assert ngram_repeats([A, A, A, A], 3) == [A]


@pytest.mark.parametrize("early_exit", [True, False])
def test_the_bound_waits_for_a_long_good_one(early_exit: bool) -> None:
    """A bound taken at the next length, not at the last, would stop at once and be wrong."""
    slow = {START: {END: 0.6, A: 0.3, B: 0.1}, A: {A: 0.98, END: 0.02}, B: {END: 1.0}}
    _, result = decode(slow, beam_size=2, stop="proven", early_exit=early_exit)
    assert result.best.tokens == (A,) * 8


@pytest.mark.parametrize("early_exit", [True, False])
def test_the_bound_waits_for_a_short_one_when_short_is_better(early_exit: bool) -> None:
    """With a length penalty below 0 it is the other way round: the next length is the best."""
    quick = {START: {A: 0.82, END: 0.18}, A: {END: 1.0}}
    _, result = decode(
        quick, beam_size=2, stop="proven", length_penalty=-1.0, max_length=10, early_exit=early_exit
    )
    assert result.best.tokens == (A,)
    assert result.best.score == pytest.approx(2 * math.log(0.82))
