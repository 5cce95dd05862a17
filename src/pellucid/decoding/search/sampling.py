"""Drawing tokens by their probability, so that every draw can be repeated.

A draw depends on the seed, the sentence's key, the number of the sample and the position, and on
nothing else: not on the other sentences of the batch, nor on how many there were before.
"""

from __future__ import annotations

import hashlib

import numpy as np

from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.search.greedy import Choice, force
from pellucid.decoding.search.hypotheses import Beams
from pellucid.decoding.search.predictor import Banned, Predictor
from pellucid.decoding.search.task import Task
from pellucid.decoding.steps import NEAR_TIE


def uniform(seed: int, key: int, sample: int, position: int) -> float:
    """A number in [0, 1) that looks random and is the same each time."""
    name = f"{seed} {key} {sample} {position}".encode()
    digest = hashlib.blake2b(name, digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53


def take_drawn(
    task: Task,
    beams: Beams,
    predictor: Predictor,
    banned: Banned | None,
    forced: np.ndarray | None,
) -> Choice:
    """One token drawn for each row."""
    ranked = predictor.distribution(beams.history, banned=banned, wanted=forced)
    rows, width = len(ranked.tokens), beams.tokens.shape[1]
    tokens = np.zeros((rows, 1), dtype=np.int64)
    close = np.zeros(rows, dtype=bool)
    for row in range(rows):
        key = task.keys[beams.sentences[row // width]]
        u = uniform(task.options.seed, key, row % width, beams.length)
        tokens[row, 0], close[row] = draw(ranked.log_probabilities[row], task.options, u)
    log_probabilities = np.take_along_axis(ranked.log_probabilities, tokens, 1).astype(np.float64)
    choice = Choice(tokens, log_probabilities, close)
    return choice if forced is None else force(choice, forced, ranked.wanted)


def draw(scores: np.ndarray, options: DecodingOptions, u: float) -> tuple[int, bool]:
    """The token that `u` in [0, 1) falls on, and whether it fell close to a border.

    scores: `(V,)` log-probabilities, -inf for what is not allowed. The tokens keep the order of
    their ids, so that two that are nearly equal do not change places.
    """
    allowed, close = filtered(scores.astype(np.float64) / options.temperature, options)
    if not len(allowed):
        return 0, False
    values = scores[allowed].astype(np.float64) / options.temperature
    weights = np.exp(values - values.max())
    borders = np.cumsum(weights / weights.sum())
    place = min(int(np.searchsorted(borders, u, side="right")), len(allowed) - 1)
    below = borders[place - 1] if place else -1.0
    above = borders[place] if place < len(allowed) - 1 else 2.0
    return int(allowed[place]), close or min(u - below, above - u) < NEAR_TIE / 10


def filtered(scores: np.ndarray, options: DecodingOptions) -> tuple[np.ndarray, bool]:
    """The ids that top_k and top_p leave, ascending; and whether one nearly stayed or went."""
    allowed = np.flatnonzero(scores > -np.inf)
    close = False
    if 0 < options.top_k < len(allowed):
        order = allowed[np.argsort(-scores[allowed], kind="stable")]
        close = bool(scores[order[options.top_k - 1]] - scores[order[options.top_k]] < NEAR_TIE)
        allowed = np.sort(order[: options.top_k])
    if options.top_p < 1 and len(allowed):
        order = allowed[np.argsort(-scores[allowed], kind="stable")]
        weights = np.exp(scores[order] - scores[order[0]])
        reached = np.cumsum(weights / weights.sum())
        count = int(np.searchsorted(reached, options.top_p, side="left")) + 1
        near = np.abs(reached[max(count - 2, 0) : count] - options.top_p) < NEAR_TIE / 10
        if count < len(order):
            close |= bool(scores[order[count - 1]] - scores[order[count]] < NEAR_TIE)
        close |= bool(near.any())
        allowed = np.sort(order[:count])
    return allowed, close
