"""The unfinished hypotheses of a search."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pellucid.decoding.search.predictor import Banned, Predictor
from pellucid.decoding.search.task import Task
from pellucid.decoding.steps import EndReason, Hypothesis


@dataclass
class LiveHypotheses:
    """The unfinished hypotheses of A sentences: `width` each, all of the same length.

    Where a sentence has fewer than `width` hypotheses, the others have a sum of -inf.
    """

    sentences: np.ndarray
    """(A,) numbers of these sentences in the task."""
    tokens: np.ndarray
    """(A, width, 1 + length), the start token first."""
    log_probabilities: np.ndarray
    """(A, width, length) of each token."""
    sums: np.ndarray
    """(A, width) log-probabilities of the hypotheses."""

    @property
    def length(self) -> int:
        """Number of tokens of each hypothesis."""
        return int(self.log_probabilities.shape[2])

    @property
    def history(self) -> np.ndarray:
        """(A · width, 1 + length) token ids as a predictor reads them."""
        return self.tokens.reshape(-1, self.tokens.shape[2])

    def finished(
        self, task: Task, row: int, parent: int, last: tuple[int, float] | None, score: float
    ) -> Hypothesis:
        """Return hypothesis `parent` of a row, finished with a last token and its log-probability.

        last: None for a hypothesis that no allowed token could follow.
        """
        tokens = self.tokens[row, parent, 1:].tolist()
        log_probabilities = self.log_probabilities[row, parent].tolist()
        ended: EndReason = "blocked"
        if last is not None:
            log_probabilities.append(last[1])
            ended = "eos" if last[0] == task.special.end else "length"
            if ended == "length":
                tokens.append(last[0])
        return Hypothesis(
            tuple(tokens),
            len(log_probabilities),
            float(sum(log_probabilities)),
            score,
            ended,
            tuple(log_probabilities),
        )

    def with_token(self, tokens: np.ndarray, added: np.ndarray, sums: np.ndarray) -> LiveHypotheses:
        """Return all hypotheses, each with its next token of `tokens (A · width,)`.

        added: log-probabilities of these tokens. sums: log-probabilities with them.
        """
        shape = (*self.sums.shape, 1)
        return LiveHypotheses(
            self.sentences,
            np.concatenate([self.tokens, tokens.reshape(shape)], axis=2),
            np.concatenate([self.log_probabilities, added.reshape(shape)], axis=2),
            sums,
        )

    def extended(
        self,
        rows: np.ndarray,
        parents: np.ndarray,
        tokens: np.ndarray,
        added: np.ndarray,
        sums: np.ndarray,
    ) -> LiveHypotheses:
        """Return the sentences `rows (A',)`, with `parents (A', width)` extended by `tokens`.

        added: log-probabilities of these tokens. sums: log-probabilities with them.
        """
        at = rows[:, None]
        return LiveHypotheses(
            self.sentences[rows],
            np.concatenate([self.tokens[at, parents], tokens[:, :, None]], axis=2),
            np.concatenate([self.log_probabilities[at, parents], added[:, :, None]], axis=2),
            sums,
        )


def first_hypotheses(
    task: Task, sentences: np.ndarray, predictor: Predictor, width: int
) -> LiveHypotheses:
    """Return the hypotheses to begin with: the start token and the prefix that all sentences share.

    At least one token is left for the first step of the search.
    """
    count = len(sentences)
    known = min(task.common_prefix_length(sentences), int(task.limit_table[sentences].min()) - 1)
    tokens = np.full((count, width, 1 + known), task.special.start, dtype=np.int64)
    log_probabilities = np.zeros((count, width, known))
    if known:
        tokens[:, :, 1:] = np.array([task.prefixes[s][:known] for s in sentences])[:, None]
        read = predictor.prefill(tokens.reshape(count * width, -1))
        log_probabilities = read.reshape(count, width, known)
    return LiveHypotheses(sentences, tokens, log_probabilities, log_probabilities.sum(axis=2))


def banned_tokens(task: Task, live: LiveHypotheses) -> Banned | None:
    """Return the tokens that some rows may not take now: an early end, a repeated n-gram."""
    rows, tokens = [], []
    width = live.tokens.shape[1]
    if live.length + 1 < task.options.min_length:
        too_short = np.repeat(live.length + 1 < task.minimum_table[live.sentences], width)
        found = np.flatnonzero(too_short)
        rows += found.tolist()
        tokens += [task.special.end] * len(found)
    n = task.options.no_repeat_ngram_size
    if n and live.length + 1 > n:
        for row, history in enumerate(live.history[:, 1:].tolist()):
            repeated = ngram_repeats(history, n)
            rows += [row] * len(repeated)
            tokens += repeated
    return Banned(np.array(rows), np.array(tokens)) if rows else None


def ngram_repeats(history: list[int], n: int) -> list[int]:
    """Return the tokens that would complete an n-gram that the history already contains."""
    last = history[len(history) - n + 1 :]
    starts = range(len(history) - n + 1)
    return sorted({history[i + n - 1] for i in starts if history[i : i + n - 1] == last})
