"""Beam search: keep the best few hypotheses, let each go on in every way, keep the best few.

One round is three functions over one state: `expand` asks the model for ways to go on, `select`
decides what becomes of each, `finish` collects what has ended and says which sentences are done.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

import numpy as np

from pellucid.decoding.options import best_attainable
from pellucid.decoding.search.hypotheses import Beams, banned_tokens, open_beams
from pellucid.decoding.search.predictor import Predictor
from pellucid.decoding.search.task import Task
from pellucid.decoding.steps import ENDED, KEPT, NEAR_TIE, NONE, PRUNED, Hypothesis, Result, Step


@dataclass
class Candidates:
    """Ways to go on, `(A, C)` each, best first; equal ones by lower parent, then lower token.

    A sum of -inf stands for no candidate.
    """

    parents: np.ndarray
    tokens: np.ndarray
    log_probabilities: np.ndarray
    sums: np.ndarray
    """What they are ordered by, as all have the same length."""
    scores: np.ndarray


@dataclass
class Search:
    """The state of a search: hypotheses under way, and those of each sentence that have ended."""

    beams: Beams
    ended: dict[int, list[Hypothesis]] = field(default_factory=dict)
    near_ties: set[int] = field(default_factory=set)


def beam_search(
    task: Task, sentences: np.ndarray, predictor: Predictor
) -> Generator[Step, None, dict[int, Result]]:
    """Search for the given sentences of a task; a Step each round, the results at the end."""
    search = Search(open_beams(task, sentences, predictor, width=1))
    results: dict[int, Result] = {}
    while len(search.beams.sentences):
        beams = search.beams
        candidates = expand(task, beams, predictor)
        fates = select(task, beams, candidates)
        close = close_calls(task, candidates, fates)
        search.near_ties.update(beams.sentences[close].tolist())
        step = finish(task, search, candidates, fates)
        for sentence in step.done:
            near = sentence in search.near_ties
            results[sentence] = task.result(sentence, search.ended.pop(sentence), near)
        advance(task, search, step, predictor)
        yield step
    return results


def expand(task: Task, beams: Beams, predictor: Predictor) -> Candidates:
    """The best ways to go on, at least so many that `select` cannot miss one.

    Of the first 2 · beam candidates at most `beam` end, as each parent ends in one way only; one
    more shows how close the choice was.
    """
    options = task.options
    A, width = beams.sums.shape
    columns = max(2 * options.beam_size + 1, options.record_candidates)
    forced = task.forced(beams.sentences, beams.length)
    ranked = predictor.rank(
        beams.history,
        columns,
        banned=banned_tokens(task, beams),
        wanted=None if forced is None else np.repeat(forced, width),
    )
    top = ranked.tokens.shape[1]
    tokens = ranked.tokens.reshape(A, width * top)
    log_probabilities = ranked.log_probabilities.reshape(A, width * top)
    sums = np.repeat(beams.sums, top, axis=1) + log_probabilities
    if forced is not None and ranked.wanted is not None:
        held = np.flatnonzero(forced >= 0)
        given = ranked.wanted.reshape(A, width)[held, 0]  # a forced sentence has one hypothesis
        sums[held] = -np.inf
        tokens[held, 0], log_probabilities[held, 0] = forced[held], given
        sums[held, 0] = beams.sums[held, 0] + given

    # Rows come best first and parents in order, so a stable sort breaks ties as promised.
    order = np.argsort(-sums, axis=1, kind="stable")[:, :columns]
    at = np.arange(A)[:, None]
    sums = sums[at, order]
    return Candidates(
        order // top,
        tokens[at, order],
        log_probabilities[at, order],
        sums,
        task.normalised(sums, beams.length + 1),
    )


def select(task: Task, beams: Beams, candidates: Candidates) -> np.ndarray:
    """What becomes of each candidate: a Fate, `(A, C)`.

    A candidate with the end symbol ends if it is among the first `beam`. The first `beam` others
    are kept. Where the longest length is reached, the first `beam` end, whatever they are.
    """
    beam = task.options.beam_size
    exists = candidates.sums > -np.inf
    last = (task.limit_table[beams.sentences] == beams.length + 1)[:, None]
    first = np.arange(exists.shape[1]) < beam
    is_end = candidates.tokens == task.special.end
    ends = exists & first & (is_end | last)
    goes_on = exists & ~is_end & ~last
    kept = goes_on & (goes_on.cumsum(axis=1) <= beam)
    fates = np.where(exists, PRUNED, NONE)
    fates[kept] = KEPT
    fates[ends] = ENDED
    return fates


def close_calls(task: Task, candidates: Candidates, fates: np.ndarray) -> np.ndarray:
    """Rows `(A,)` in which some fate hangs on less than NEAR_TIE.

    Two candidates on the same side may swap without harm, so only the borders count: between the
    last kept and the first pruned that could have gone on, and between the first `beam` and the
    others where an end, or the end of all, hangs on it.
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
        ended, missed = fates == ENDED, pruned & is_end
        outside = np.where(fates[:, beam] == NONE, -np.inf, sums[:, beam])
        lowest_ended = np.where(ended, sums, np.inf).min(axis=1)
        close |= outside > lowest_ended - NEAR_TIE
        best_missed = np.where(missed, sums, -np.inf).max(axis=1)
        close |= best_missed > sums[:, beam - 1] - NEAR_TIE
    return close


def finish(task: Task, search: Search, candidates: Candidates, fates: np.ndarray) -> Step:
    """Collect the hypotheses that ended, and see which sentences are done."""
    beams = search.beams
    ended = []
    for row, column in np.argwhere(fates == ENDED).tolist():
        parent = int(candidates.parents[row, column])
        added = (
            int(candidates.tokens[row, column]),
            float(candidates.log_probabilities[row, column]),
        )
        score = float(candidates.scores[row, column])
        sentence = int(beams.sentences[row])
        ended.append((sentence, beams.hypothesis(task, row, parent, added, score)))
    for row in np.flatnonzero(fates[:, 0] == NONE).tolist():  # the best comes first
        if int(beams.sentences[row]) not in search.ended:
            ended += _blocked(task, beams, row)
    for sentence, hypothesis in ended:
        search.ended.setdefault(sentence, []).append(hypothesis)
    return Step(
        beams.length + 1,
        beams.sentences,
        candidates.parents,
        candidates.tokens,
        candidates.log_probabilities,
        candidates.sums,
        candidates.scores,
        fates,
        tuple(ended),
        tuple(_done(task, search, candidates, fates)),
    )


def _blocked(task: Task, beams: Beams, row: int) -> list[tuple[int, Hypothesis]]:
    """Hypotheses of a sentence for which nothing was allowed, as they stand."""
    scores = task.normalised(beams.sums[row], beams.length)
    return [
        (int(beams.sentences[row]), beams.hypothesis(task, row, parent, None, float(score)))
        for parent, score in enumerate(scores)
        if beams.sums[row, parent] > -np.inf
    ]


def _done(task: Task, search: Search, candidates: Candidates, fates: np.ndarray) -> list[int]:
    """The sentences whose search is over."""
    kept = fates == KEPT
    goes_on = kept.any(axis=1)
    if not search.ended and goes_on.all():
        return []
    done = []
    for row, sentence in enumerate(search.beams.sentences.tolist()):
        if not goes_on[row]:
            done.append(sentence)
        elif search.ended.get(sentence):
            sums = candidates.sums[row][kept[row]]
            if _may_stop(task, search, sentence, sums):
                done.append(sentence)
    return done


def _may_stop(task: Task, search: Search, sentence: int, unfinished: np.ndarray) -> bool:
    """Whether a sentence with these unfinished sums need not go on."""
    options, length = task.options, search.beams.length + 1
    ended = search.ended[sentence]
    if options.stop == "full" and len(ended) >= options.enough_ended:
        return True
    if options.early_exit and len(ended) >= options.n_best:
        scores = sorted((h.score for h in ended), reverse=True)
        bound = best_attainable(options, unfinished, length, task.limits[sentence]).max()
        return bool(scores[options.n_best - 1] >= bound)
    return False


def advance(task: Task, search: Search, step: Step, predictor: Predictor) -> None:
    """Go on with the kept candidates of the sentences that are not done."""
    beams, beam = search.beams, task.options.beam_size
    A, width = beams.sums.shape
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
    search.beams = beams.grown(open_rows, parents, tokens, added, sums)
    if len(open_rows):
        rows = (at * width + parents).reshape(-1)
        predictor.reorder(rows, None if len(open_rows) == A else open_rows)
