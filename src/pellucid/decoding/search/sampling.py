"""Reproducible sampling with temperature, top-k and top-p.

A draw depends on the seed, the sentence's key, the number of the sample and the position, and on
nothing else: not on the other sentences of the batch, nor on how many came before.
"""

from __future__ import annotations

import hashlib

import numpy as np

from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.search.greedy import Choice, force
from pellucid.decoding.search.hypotheses import LiveHypotheses
from pellucid.decoding.search.predictor import Banned, Predictor
from pellucid.decoding.search.task import Task
from pellucid.decoding.steps import NEAR_TIE


def uniform(seed: int, key: int, sample: int, position: int) -> float:
    """Return a pseudo-random number in [0, 1), the same for the same arguments."""
    name = f"{seed} {key} {sample} {position}".encode()
    digest = hashlib.blake2b(name, digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53


def choose_sampled(
    task: Task,
    live: LiveHypotheses,
    predictor: Predictor,
    banned: Banned | None,
    forced: np.ndarray | None,
) -> Choice:
    """Draw one token for each row."""
    ranked = predictor.distribution(live.history, banned=banned, wanted=forced)
    rows, width = len(ranked.tokens), live.tokens.shape[1]
    tokens = np.zeros((rows, 1), dtype=np.int64)
    close = np.zeros(rows, dtype=bool)
    for row in range(rows):
        key = task.keys[live.sentences[row // width]]
        u = uniform(task.options.seed, key, row % width, live.length)
        tokens[row, 0], close[row] = draw(ranked.log_probabilities[row], task.options, u)
    log_probabilities = np.take_along_axis(ranked.log_probabilities, tokens, 1).astype(np.float64)
    choice = Choice(tokens, log_probabilities, close)
    return choice if forced is None else force(choice, forced, ranked.wanted)


def draw(scores: np.ndarray, options: DecodingOptions, u: float) -> tuple[int, bool]:
    """Return the token that `u` in [0, 1) selects, and whether it nearly selects another.

    scores: `(V,)` log-probabilities, -inf where a token is not allowed. The tokens keep the order
    of their ids, so that two nearly equal ones do not swap by rounding.
    """
    allowed, close = filtered(scores.astype(np.float64) / options.temperature, options)
    if not len(allowed):
        return 0, False
    values = scores[allowed].astype(np.float64) / options.temperature
    weights = np.exp(values - values.max())
    borders = np.cumsum(weights / weights.sum())
    index = min(int(np.searchsorted(borders, u, side="right")), len(allowed) - 1)
    below = borders[index - 1] if index else -1.0
    above = borders[index] if index < len(allowed) - 1 else 2.0
    return int(allowed[index]), close or min(u - below, above - u) < NEAR_TIE / 10


def filtered(scores: np.ndarray, options: DecodingOptions) -> tuple[np.ndarray, bool]:
    """Return the ids that top_k and top_p keep, ascending, and whether the cut was close."""
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
