"""The hypotheses under way, shared by all ways of searching."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pellucid.decoding.search.predictor import Banned, Predictor
from pellucid.decoding.search.task import Task
from pellucid.decoding.steps import Ended, Hypothesis


@dataclass
class Beams:
    """A open sentences with `width` hypotheses each, all of the same length.

    Where a sentence has fewer than `width` hypotheses, the others have a sum of -inf.
    """

    sentences: np.ndarray
    """(A,) which sentences of the task these are."""
    tokens: np.ndarray
    """(A, width, 1 + length), the start symbol first."""
    log_probabilities: np.ndarray
    """(A, width, length) of each token."""
    sums: np.ndarray
    """(A, width) what hypotheses are ranked by before the length penalty."""

    @property
    def length(self) -> int:
        """How many tokens each hypothesis has."""
        return int(self.log_probabilities.shape[2])

    @property
    def history(self) -> np.ndarray:
        """(A · width, 1 + length) as a predictor reads it."""
        return self.tokens.reshape(-1, self.tokens.shape[2])

    def hypothesis(
        self, task: Task, row: int, parent: int, added: tuple[int, float] | None, score: float
    ) -> Hypothesis:
        """Hypothesis `parent` of a row, with one token and its log-probability added, ended."""
        tokens = self.tokens[row, parent, 1:].tolist()
        log_probabilities = self.log_probabilities[row, parent].tolist()
        ended: Ended = "blocked"
        if added is not None:
            log_probabilities.append(added[1])
            ended = "eos" if added[0] == task.special.end else "length"
            if ended == "length":
                tokens.append(added[0])
        return Hypothesis(
            tuple(tokens),
            len(log_probabilities),
            float(sum(log_probabilities)),
            score,
            ended,
            tuple(log_probabilities),
        )

    def longer(self, tokens: np.ndarray, added: np.ndarray, sums: np.ndarray) -> Beams:
        """The same hypotheses, each with its token of `tokens (A · width,)`; see `grown`."""
        shape = (*self.sums.shape, 1)
        return Beams(
            self.sentences,
            np.concatenate([self.tokens, tokens.reshape(shape)], axis=2),
            np.concatenate([self.log_probabilities, added.reshape(shape)], axis=2),
            sums,
        )

    def grown(
        self,
        rows: np.ndarray,
        parents: np.ndarray,
        tokens: np.ndarray,
        added: np.ndarray,
        sums: np.ndarray,
    ) -> Beams:
        """Sentences `rows (A',)`, each going on from `parents (A', width)` with `tokens`.

        added: the log-probabilities of these tokens. sums: the sums that follow.
        """
        at = rows[:, None]
        return Beams(
            self.sentences[rows],
            np.concatenate([self.tokens[at, parents], tokens[:, :, None]], axis=2),
            np.concatenate([self.log_probabilities[at, parents], added[:, :, None]], axis=2),
            sums,
        )


def open_beams(task: Task, sentences: np.ndarray, predictor: Predictor, width: int) -> Beams:
    """The first hypotheses: the start symbol, and the prefix tokens that all sentences have.

    At least one token is left for the first step of the search.
    """
    count = len(sentences)
    known = min(task.common_prefix_length(sentences), int(task.limit_table[sentences].min()) - 1)
    tokens = np.full((count, width, 1 + known), task.special.start, dtype=np.int64)
    log_probabilities = np.zeros((count, width, known))
    if known:
        tokens[:, :, 1:] = np.array([task.prefixes[s][:known] for s in sentences])[:, None]
        read = predictor.prime(tokens.reshape(count * width, -1))
        log_probabilities = read.reshape(count, width, known)
    return Beams(sentences, tokens, log_probabilities, log_probabilities.sum(axis=2))


def banned_tokens(task: Task, beams: Beams) -> Banned | None:
    """What single rows may not produce now: an end too early, an n-gram once more."""
    rows, tokens = [], []
    width = beams.tokens.shape[1]
    if beams.length + 1 < task.options.min_length:
        early = np.repeat(beams.length + 1 < task.minimum_table[beams.sentences], width)
        found = np.flatnonzero(early)
        rows += found.tolist()
        tokens += [task.special.end] * len(found)
    n = task.options.no_repeat_ngram_size
    if n and beams.length + 1 > n:
        for row, history in enumerate(beams.history[:, 1:].tolist()):
            repeated = ngram_repeats(history, n)
            rows += [row] * len(repeated)
            tokens += repeated
    return Banned(np.array(rows), np.array(tokens)) if rows else None


def ngram_repeats(history: list[int], n: int) -> list[int]:
    """The tokens that would complete an n-gram that the history already has."""
    last = history[len(history) - n + 1 :]
    starts = range(len(history) - n + 1)
    return sorted({history[i + n - 1] for i in starts if history[i : i + n - 1] == last})
