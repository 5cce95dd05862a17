"""Greedy search, and the loop that sampling shares: each hypothesis takes one token a step."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, Protocol

import numpy as np

from pellucid.decoding.search.hypotheses import LiveHypotheses, banned_tokens, first_hypotheses
from pellucid.decoding.search.predictor import Banned, Predictor
from pellucid.decoding.search.task import Task
from pellucid.decoding.steps import FINISHED, KEPT, NEAR_TIE, NONE, PRUNED, Hypothesis, Result, Step


class Choice(NamedTuple):
    """The token chosen for each of R rows, first in a list of candidates, `(R, C)` each."""

    tokens: np.ndarray
    log_probabilities: np.ndarray
    """-inf in the first column if nothing is allowed."""
    close: np.ndarray
    """(R,) whether another token was nearly chosen."""


class Chooser(Protocol):
    """Chooses the next token of each row."""

    def __call__(
        self,
        task: Task,
        live: LiveHypotheses,
        predictor: Predictor,
        banned: Banned | None,
        forced: np.ndarray | None,
    ) -> Choice:
        """Return the next token of each row; `forced (R,)` gives it, or -1 where it is free."""
        ...


def choose_best(
    task: Task,
    live: LiveHypotheses,
    predictor: Predictor,
    banned: Banned | None,
    forced: np.ndarray | None,
) -> Choice:
    """Choose the most probable token; of equal ones the lower id."""
    top = max(2, task.options.record_candidates)
    ranked = predictor.rank(live.history, top, banned=banned, wanted=forced)
    logs = ranked.log_probabilities
    if logs.shape[1] > 1:
        close = logs[:, 1] > logs[:, 0] - NEAR_TIE
    else:
        close = np.zeros(len(logs), dtype=bool)
    choice = Choice(ranked.tokens, logs, close)
    return choice if forced is None else force(choice, forced, ranked.wanted)


def force(choice: Choice, forced: np.ndarray, wanted: np.ndarray | None) -> Choice:
    """Return the choice with the forced tokens (not -1) in place of the chosen ones."""
    assert wanted is not None
    rows = np.flatnonzero(forced >= 0)
    tokens, logs, close = (column.copy() for column in choice)
    logs[rows], close[rows] = -np.inf, False
    tokens[rows, 0], logs[rows, 0] = forced[rows], wanted[rows]
    return Choice(tokens, logs, close)


def token_by_token(
    task: Task,
    sentences: np.ndarray,
    predictor: Predictor,
    choose: Chooser,
    width: int = 1,
    *,
    every_step: bool = True,
) -> Generator[Step, None, dict[int, Result]]:
    """Extend `width` independent hypotheses of each sentence until all are finished.

    Yields a Step each round, returns the results. every_step: if False, only steps in which some
    hypothesis finishes are yielded, which is faster.
    """
    live = first_hypotheses(task, sentences, predictor, width)
    if width > 1 and not live.length:  # after a prefill each hypothesis has its row already
        predictor.reorder(np.repeat(np.arange(len(sentences)), width), None)
    finished: dict[int, list[Hypothesis]] = {int(s): [] for s in sentences}
    close: set[int] = set()
    results: dict[int, Result] = {}
    while len(live.sentences):
        forced = task.forced(live.sentences, live.length)
        wanted = None if forced is None else np.repeat(forced, width)
        choice = choose(task, live, predictor, banned_tokens(task, live), wanted)
        if choice.close.any():
            near = choice.close.reshape(-1, width) & (live.sums > -np.inf)
            close.update(live.sentences[near.any(axis=1)].tolist())
        if not every_step and (extended := _all_extended(task, live, choice)) is not None:
            live = extended
            continue
        step = _step(task, live, choice)
        for sentence, hypothesis in step.finished:
            finished[sentence].append(hypothesis)
        for s in step.done:
            results[s] = task.result(s, finished.pop(s), s in close)
        live = _advance(live, step, predictor)
        yield step
    return results


def _all_extended(task: Task, live: LiveHypotheses, choice: Choice) -> LiveHypotheses | None:
    """Return each hypothesis with its chosen token; None if one of them is finished with it."""
    tokens = choice.tokens[:, 0]
    added = choice.log_probabilities[:, 0]
    sums = live.sums + added.reshape(live.sums.shape)
    if (
        live.length + 1 >= task.limit_table[live.sentences].min()
        or (tokens == task.special.end).any()
        or not sums.min() > -np.inf
    ):
        return None
    return live.with_token(tokens, added, sums)


def _step(task: Task, live: LiveHypotheses, choice: Choice) -> Step:
    """Record the round: the candidates, the chosen ones among them, and what is finished."""
    A, width = live.sums.shape
    columns = choice.tokens.shape[1]

    def by_sentence(x: np.ndarray) -> np.ndarray:
        """(A · width, C) to (A, C · width): the chosen tokens first, hypothesis by hypothesis."""
        return x.reshape(A, width, columns).transpose(0, 2, 1).reshape(A, columns * width)

    tokens, log_probabilities = by_sentence(choice.tokens), by_sentence(choice.log_probabilities)
    parents = np.broadcast_to(np.arange(columns * width) % width, tokens.shape)
    sums = np.take_along_axis(live.sums, parents, axis=1) + log_probabilities
    scores = task.normalised(sums, live.length + 1)
    exists = sums > -np.inf
    chosen = exists & (np.arange(columns * width) < width)
    last = (task.limit_table[live.sentences] == live.length + 1)[:, None]
    ends = chosen & ((tokens == task.special.end) | last)
    fates = np.where(exists, PRUNED, NONE)
    fates[chosen] = KEPT
    fates[ends] = FINISHED

    finished = []
    for row, column in np.argwhere(ends).tolist():
        final = (int(tokens[row, column]), float(log_probabilities[row, column]))
        score = float(scores[row, column])
        hypothesis = live.finished(task, row, column, final, score)
        finished.append((int(live.sentences[row]), hypothesis))
    for row, column in np.argwhere((live.sums > -np.inf) & ~chosen[:, :width]).tolist():
        score = float(task.normalised(live.sums[row, column], live.length))
        hypothesis = live.finished(task, row, column, None, score)
        finished.append((int(live.sentences[row]), hypothesis))
    done = live.sentences[~(fates == KEPT).any(axis=1)].tolist()
    return Step(
        live.length + 1,
        live.sentences,
        parents,
        tokens,
        log_probabilities,
        sums,
        scores,
        fates,
        tuple(finished),
        tuple(done),
    )


def _advance(live: LiveHypotheses, step: Step, predictor: Predictor) -> LiveHypotheses:
    """Return the hypotheses of the sentences that are not done, each with its chosen token."""
    A, width = live.sums.shape
    rows = step.open_rows
    parents = np.broadcast_to(np.arange(width), (len(rows), width))
    kept = step.fates[rows, :width] == KEPT
    added = np.where(kept, step.log_probabilities[rows, :width], 0.0)
    sums = np.where(kept, step.sums[rows, :width], -np.inf)
    extended = live.extended(rows, parents, step.tokens[rows, :width], added, sums)
    if len(rows) and len(rows) < A:
        predictor.reorder((rows[:, None] * width + parents).reshape(-1), rows)
    return extended
