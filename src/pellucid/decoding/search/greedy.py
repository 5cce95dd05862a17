"""One token at a time, no way back: the best one (greedy), or one drawn (sampling)."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, Protocol

import numpy as np

from pellucid.decoding.search.hypotheses import Beams, banned_tokens, open_beams
from pellucid.decoding.search.predictor import Banned, Predictor
from pellucid.decoding.search.task import Task
from pellucid.decoding.steps import ENDED, KEPT, NEAR_TIE, NONE, PRUNED, Hypothesis, Result, Step


class Choice(NamedTuple):
    """The token taken by each of R rows, first in a list of those considered, `(R, C)` each."""

    tokens: np.ndarray
    log_probabilities: np.ndarray
    """-inf in the first column if nothing is allowed."""
    close: np.ndarray
    """(R,) whether another token was nearly taken."""


class Chooser(Protocol):
    """How the next token is taken."""

    def __call__(
        self,
        task: Task,
        beams: Beams,
        predictor: Predictor,
        banned: Banned | None,
        forced: np.ndarray | None,
    ) -> Choice:
        """The next token of each row; of a forced row (not -1) that token."""
        ...


def take_best(
    task: Task,
    beams: Beams,
    predictor: Predictor,
    banned: Banned | None,
    forced: np.ndarray | None,
) -> Choice:
    """The most probable token; equal ones by lower id."""
    top = max(2, task.options.record_candidates)
    ranked = predictor.rank(beams.history, top, banned=banned, wanted=forced)
    logs = ranked.log_probabilities
    if logs.shape[1] > 1:
        close = logs[:, 1] > logs[:, 0] - NEAR_TIE
    else:
        close = np.zeros(len(logs), dtype=bool)
    choice = Choice(ranked.tokens, logs, close)
    return choice if forced is None else force(choice, forced, ranked.wanted)


def force(choice: Choice, forced: np.ndarray, wanted: np.ndarray | None) -> Choice:
    """The choice with forced tokens in place of chosen ones."""
    assert wanted is not None
    held = np.flatnonzero(forced >= 0)
    tokens, logs, close = (column.copy() for column in choice)
    logs[held], close[held] = -np.inf, False
    tokens[held, 0], logs[held, 0] = forced[held], wanted[held]
    return Choice(tokens, logs, close)


def walk(
    task: Task,
    sentences: np.ndarray,
    predictor: Predictor,
    choose: Chooser,
    width: int = 1,
    *,
    watched: bool = True,
) -> Generator[Step, None, dict[int, Result]]:
    """Follow `width` hypotheses of each sentence, each for itself, until all have ended.

    watched: whether anyone looks at the steps; else those in which nothing ends are left out.
    """
    beams = open_beams(task, sentences, predictor, width)
    if width > 1 and not beams.length:  # a beginning that was read has its rows already
        predictor.reorder(np.repeat(np.arange(len(sentences)), width), None)
    ended: dict[int, list[Hypothesis]] = {int(s): [] for s in sentences}
    close: set[int] = set()
    results: dict[int, Result] = {}
    while len(beams.sentences):
        forced = task.forced(beams.sentences, beams.length)
        wanted = None if forced is None else np.repeat(forced, width)
        choice = choose(task, beams, predictor, banned_tokens(task, beams), wanted)
        if choice.close.any():
            near = choice.close.reshape(-1, width) & (beams.sums > -np.inf)
            close.update(beams.sentences[near.any(axis=1)].tolist())
        if not watched and (longer := _all_longer(task, beams, choice)) is not None:
            beams = longer
            continue
        step = _step(task, beams, choice)
        for sentence, hypothesis in step.ended:
            ended[sentence].append(hypothesis)
        for s in step.done:
            results[s] = task.result(s, ended.pop(s), s in close)
        beams = _advance(beams, step, predictor)
        yield step
    return results


def _all_longer(task: Task, beams: Beams, choice: Choice) -> Beams | None:
    """Each hypothesis with the token it took; None if one of them has ended."""
    tokens = choice.tokens[:, 0]
    added = choice.log_probabilities[:, 0]
    sums = beams.sums + added.reshape(beams.sums.shape)
    if (
        beams.length + 1 >= task.limit_table[beams.sentences].min()
        or (tokens == task.special.end).any()
        or not sums.min() > -np.inf
    ):
        return None
    return beams.longer(tokens, added, sums)


def _step(task: Task, beams: Beams, choice: Choice) -> Step:
    """The round as a record: what each hypothesis took, and which ones it ended."""
    A, width = beams.sums.shape
    columns = choice.tokens.shape[1]

    def wide(x: np.ndarray) -> np.ndarray:
        """(A · width, C) to (A, C · width): what was taken first, hypothesis by hypothesis."""
        return x.reshape(A, width, columns).transpose(0, 2, 1).reshape(A, columns * width)

    tokens, log_probabilities = wide(choice.tokens), wide(choice.log_probabilities)
    parents = np.broadcast_to(np.arange(columns * width) % width, tokens.shape)
    sums = np.take_along_axis(beams.sums, parents, axis=1) + log_probabilities
    scores = task.normalised(sums, beams.length + 1)
    exists = sums > -np.inf
    taken = exists & (np.arange(columns * width) < width)
    last = (task.limit_table[beams.sentences] == beams.length + 1)[:, None]
    ends = taken & ((tokens == task.special.end) | last)
    fates = np.where(exists, PRUNED, NONE)
    fates[taken] = KEPT
    fates[ends] = ENDED

    found = []
    for row, column in np.argwhere(ends).tolist():
        added = (int(tokens[row, column]), float(log_probabilities[row, column]))
        score = float(scores[row, column])
        found.append((int(beams.sentences[row]), beams.hypothesis(task, row, column, added, score)))
    for row, column in np.argwhere((beams.sums > -np.inf) & ~taken[:, :width]).tolist():
        score = float(task.normalised(beams.sums[row, column], beams.length))
        found.append((int(beams.sentences[row]), beams.hypothesis(task, row, column, None, score)))
    done = beams.sentences[~(fates == KEPT).any(axis=1)].tolist()
    return Step(
        beams.length + 1,
        beams.sentences,
        parents,
        tokens,
        log_probabilities,
        sums,
        scores,
        fates,
        tuple(found),
        tuple(done),
    )


def _advance(beams: Beams, step: Step, predictor: Predictor) -> Beams:
    """Each hypothesis with the token it took, for the sentences that are not done."""
    A, width = beams.sums.shape
    rows = step.open_rows
    parents = np.broadcast_to(np.arange(width), (len(rows), width))
    kept = step.fates[rows, :width] == KEPT
    added = np.where(kept, step.log_probabilities[rows, :width], 0.0)
    sums = np.where(kept, step.sums[rows, :width], -np.inf)
    grown = beams.grown(rows, parents, step.tokens[rows, :width], added, sums)
    if len(rows) and len(rows) < A:
        predictor.reorder((rows[:, None] * width + parents).reshape(-1), rows)
    return grown
