"""Beam search: extend each of the best few hypotheses by every token, keep the best few.

One round is three functions over one state: `expand` asks the model for candidates, `select`
keeps, finishes or prunes each, `finish` collects the finished hypotheses and tells which sentences
are done.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

import numpy as np

from pellucid.decoding.options import best_attainable
from pellucid.decoding.search.hypotheses import LiveHypotheses, banned_tokens, first_hypotheses
from pellucid.decoding.search.predictor import Predictor
from pellucid.decoding.search.task import Task
from pellucid.decoding.steps import FINISHED, KEPT, NEAR_TIE, NONE, PRUNED, Hypothesis, Result, Step


@dataclass
class Candidates:
    """Continuations, `(A, C)` each, best first; equal ones by lower parent, then lower token.

    A sum of -inf means no candidate.
    """

    parents: np.ndarray
    tokens: np.ndarray
    log_probabilities: np.ndarray
    sums: np.ndarray
    """Log-probabilities, which order them, as all have the same length."""
    scores: np.ndarray


@dataclass
class BeamState:
    """State of a search: the live hypotheses, and each sentence's finished ones."""

    live: LiveHypotheses
    finished: dict[int, list[Hypothesis]] = field(default_factory=dict)
    near_ties: set[int] = field(default_factory=set)


def beam_search(
    task: Task, sentences: np.ndarray, predictor: Predictor
) -> Generator[Step, None, dict[int, Result]]:
    """BeamState for the given sentences of a task: yield a Step each round, return the results."""
    state = BeamState(first_hypotheses(task, sentences, predictor, width=1))
    results: dict[int, Result] = {}
    while len(state.live.sentences):
        live = state.live
        candidates = expand(task, live, predictor)
        fates = select(task, live, candidates)
        close = close_calls(task, candidates, fates)
        state.near_ties.update(live.sentences[close].tolist())
        step = finish(task, state, candidates, fates)
        for sentence in step.done:
            near = sentence in state.near_ties
            results[sentence] = task.result(sentence, state.finished.pop(sentence), near)
        advance(task, state, step, predictor)
        yield step
    return results


def expand(task: Task, live: LiveHypotheses, predictor: Predictor) -> Candidates:
    """Return the best candidates, enough that `select` cannot miss one.

    Of the first 2 · beam candidates at most `beam` take the end token, as each parent has only one
    such candidate; one more shows how close the choice was.
    """
    options = task.options
    A, width = live.sums.shape
    columns = max(2 * options.beam_size + 1, options.record_candidates)
    forced = task.forced(live.sentences, live.length)
    ranked = predictor.rank(
        live.history,
        columns,
        banned=banned_tokens(task, live),
        wanted=None if forced is None else np.repeat(forced, width),
    )
    top = ranked.tokens.shape[1]
    tokens = ranked.tokens.reshape(A, width * top)
    log_probabilities = ranked.log_probabilities.reshape(A, width * top)
    sums = np.repeat(live.sums, top, axis=1) + log_probabilities
    if forced is not None and ranked.wanted is not None:
        rows = np.flatnonzero(forced >= 0)
        given = ranked.wanted.reshape(A, width)[rows, 0]  # a forced sentence has one hypothesis
        sums[rows] = -np.inf
        tokens[rows, 0], log_probabilities[rows, 0] = forced[rows], given
        sums[rows, 0] = live.sums[rows, 0] + given

    # Rows are best first and parents in order, so a stable sort breaks ties as promised.
    order = np.argsort(-sums, axis=1, kind="stable")[:, :columns]
    at = np.arange(A)[:, None]
    sums = sums[at, order]
    return Candidates(
        order // top,
        tokens[at, order],
        log_probabilities[at, order],
        sums,
        task.normalised(sums, live.length + 1),
    )


def select(task: Task, live: LiveHypotheses, candidates: Candidates) -> np.ndarray:
    """Return the Fate of each candidate, `(A, C)`.

    A candidate with the end token is finished if it is among the first `beam`. The first `beam`
    others are kept. At the maximum length the first `beam` are finished, whatever their token.
    """
    beam = task.options.beam_size
    exists = candidates.sums > -np.inf
    last = (task.limit_table[live.sentences] == live.length + 1)[:, None]
    first = np.arange(exists.shape[1]) < beam
    is_end = candidates.tokens == task.special.end
    finished = exists & first & (is_end | last)
    goes_on = exists & ~is_end & ~last
    kept = goes_on & (goes_on.cumsum(axis=1) <= beam)
    fates = np.where(exists, PRUNED, NONE)
    fates[kept] = KEPT
    fates[finished] = FINISHED
    return fates


def close_calls(task: Task, candidates: Candidates, fates: np.ndarray) -> np.ndarray:
    """Return the rows `(A,)` in which some fate is decided by less than NEAR_TIE.

    Two candidates with the same fate may swap without harm, so only the borders count: between the
    last kept and the first pruned that could have gone on, and between the first `beam` and the
    others where it decides what is finished.
    """
    sums, beam = candidates.sums, task.options.beam_size
    if not (sums[:, 1:] > sums[:, :-1] - NEAR_TIE).any():  # no two neighbours are close
        return np.zeros(len(sums), dtype=bool)
    is_end = candidates.tokens == task.special.end
    kept, pruned = fates == KEPT, fates == PRUNED
    lowest_kept = np.where(kept, sums, np.inf).min(axis=1)
    goes_on = kept.any(axis=1)
    rival = np.where(pruned & ~(is_end & goes_on[:, None]), sums, -np.inf).max(axis=1)
    close: np.ndarray = goes_on & (rival > lowest_kept - NEAR_TIE)
    if sums.shape[1] > beam:
        finished, missed = fates == FINISHED, pruned & is_end
        outside = np.where(fates[:, beam] == NONE, -np.inf, sums[:, beam])
        lowest_finished = np.where(finished, sums, np.inf).min(axis=1)
        close |= outside > lowest_finished - NEAR_TIE
        best_missed = np.where(missed, sums, -np.inf).max(axis=1)
        close |= best_missed > sums[:, beam - 1] - NEAR_TIE
    return close


def finish(task: Task, state: BeamState, candidates: Candidates, fates: np.ndarray) -> Step:
    """Collect the finished hypotheses, and find which sentences are done."""
    live = state.live
    finished = []
    for row, column in np.argwhere(fates == FINISHED).tolist():
        parent = int(candidates.parents[row, column])
        last = (
            int(candidates.tokens[row, column]),
            float(candidates.log_probabilities[row, column]),
        )
        score = float(candidates.scores[row, column])
        sentence = int(live.sentences[row])
        finished.append((sentence, live.finished(task, row, parent, last, score)))
    for row in np.flatnonzero(fates[:, 0] == NONE).tolist():  # the best comes first
        if int(live.sentences[row]) not in state.finished:
            finished += _blocked(task, live, row)
    for sentence, hypothesis in finished:
        state.finished.setdefault(sentence, []).append(hypothesis)
    return Step(
        live.length + 1,
        live.sentences,
        candidates.parents,
        candidates.tokens,
        candidates.log_probabilities,
        candidates.sums,
        candidates.scores,
        fates,
        tuple(finished),
        tuple(_done(task, state, candidates, fates)),
    )


def _blocked(task: Task, live: LiveHypotheses, row: int) -> list[tuple[int, Hypothesis]]:
    """Finish the hypotheses of a sentence that no allowed token can follow, as they are."""
    scores = task.normalised(live.sums[row], live.length)
    return [
        (int(live.sentences[row]), live.finished(task, row, parent, None, float(score)))
        for parent, score in enumerate(scores)
        if live.sums[row, parent] > -np.inf
    ]


def _done(task: Task, state: BeamState, candidates: Candidates, fates: np.ndarray) -> list[int]:
    """Return the sentences whose search is over."""
    kept = fates == KEPT
    goes_on = kept.any(axis=1)
    if not state.finished and goes_on.all():
        return []
    done = []
    for row, sentence in enumerate(state.live.sentences.tolist()):
        if not goes_on[row]:
            done.append(sentence)
        elif state.finished.get(sentence):
            sums = candidates.sums[row][kept[row]]
            if _may_stop(task, state, sentence, sums):
                done.append(sentence)
    return done


def _may_stop(task: Task, state: BeamState, sentence: int, live_sums: np.ndarray) -> bool:
    """Tell whether the search of a sentence with these live log-probabilities may stop."""
    options, length = task.options, state.live.length + 1
    finished = state.finished[sentence]
    if options.stop == "full" and len(finished) >= options.enough_finished:
        return True
    if options.early_exit and len(finished) >= options.n_best:
        scores = sorted((h.score for h in finished), reverse=True)
        bound = best_attainable(options, live_sums, length, task.limits[sentence]).max()
        return bool(scores[options.n_best - 1] >= bound)
    return False


def advance(task: Task, state: BeamState, step: Step, predictor: Predictor) -> None:
    """Continue with the kept candidates of the sentences that are not done."""
    live, beam = state.live, task.options.beam_size
    A, width = live.sums.shape
    open_rows = step.open_rows
    kept = step.fates[open_rows] == KEPT
    # The kept ones first, in their order; a row with fewer than `beam` is filled up with others,
    # whose sums are set to -inf.
    columns = np.argsort(~kept, axis=1, kind="stable")[:, :beam]
    at = open_rows[:, None]
    parents, tokens = step.parents[at, columns], step.tokens[at, columns]
    alive = np.take_along_axis(kept, columns, axis=1)
    added = np.where(alive, step.log_probabilities[at, columns], 0.0)
    sums = np.where(alive, step.sums[at, columns], -np.inf)
    state.live = live.extended(open_rows, parents, tokens, added, sums)
    if len(open_rows):
        rows = (at * width + parents).reshape(-1)
        predictor.reorder(rows, None if len(open_rows) == A else open_rows)
