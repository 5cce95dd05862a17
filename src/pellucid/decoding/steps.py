"""What a search reports: a Step each round, a Result at the end.

Plain Python and numpy, so that every engine can use them. Scores are natural logarithms.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator

    import numpy as np

Found = TypeVar("Found")

NEAR_TIE = 1e-4
"""Two alternatives closer than this (in log-probability) may swap by rounding alone.

Measured: the sum over 41 tokens of a base-sized model differs by up to 1.4e-5 between one sentence
alone and the same in a batch (fp32), so a difference of two sums by up to 3e-5."""

EndReason = Literal["eos", "length", "blocked", "empty"]
"""Why an output ends. eos: with the end token. length: cut at the maximum length. blocked: no
allowed token could follow. empty: the source was empty, and so is the output."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One output for one source."""

    tokens: tuple[int, ...]
    """Token ids with a forced prefix, without the start and end tokens."""

    length: int
    """Number of tokens, the end token counted if there is one."""

    log_probability: float
    """Log-probability of the output given the source: the sum over all tokens."""

    score: float
    """Log-probability divided by the length penalty; hypotheses are ranked by it."""

    ended: EndReason
    """Why it ends."""

    token_log_probabilities: tuple[float, ...] | None = None
    """The model's log-probability of each token and of the end token. The ct2 engine gives them
    only if asked (DecodingOptions.token_log_probabilities)."""

    attention: np.ndarray | None = None
    """If asked for: the cross-attention of each output token, `(length, S)`."""


@dataclass(frozen=True, slots=True)
class Result:
    """The outputs for one source."""

    hypotheses: tuple[Hypothesis, ...]
    """Best first, at least one, at most n_best; all different unless they were sampled."""

    near_tie: bool | None = False
    """Whether some choice of the search was closer than NEAR_TIE, so that rounding (another batch,
    another machine) may give another output of practically the same score. None: not known."""

    prefix_length: int = 0
    """Number of tokens that were forced as a prefix."""

    @property
    def best(self) -> Hypothesis:
        """The hypothesis with the highest score."""
        return self.hypotheses[0]


class Fate(IntEnum):
    """What the search did with a candidate."""

    NONE = -1
    """No candidate: the row has fewer."""
    PRUNED = 0
    KEPT = 1
    FINISHED = 2


NONE, PRUNED, KEPT, FINISHED = map(int, Fate)
"""The same as plain integers, which numpy compares several times faster."""


class Candidate(NamedTuple):
    """A continuation: hypothesis `parent` of the round before and one more token."""

    parent: int
    token: int
    log_probability: float
    sum: float
    score: float
    fate: Fate


@dataclass(frozen=True, slots=True)
class Step:
    """One round of a search over the sentences that are not done.

    Arrays have a row for each of `sentences` and a column for each candidate, best first. The
    i-th KEPT candidate of a row is hypothesis (`parent`) i of the next round.
    """

    length: int
    """Length of the hypotheses after this round."""
    sentences: np.ndarray
    parents: np.ndarray
    tokens: np.ndarray
    log_probabilities: np.ndarray
    sums: np.ndarray
    scores: np.ndarray
    fates: np.ndarray
    finished: tuple[tuple[int, Hypothesis], ...]
    """Hypotheses that finished in this round, each with the number of its sentence."""
    done: tuple[int, ...]
    """Sentences whose search ends with this round."""

    @property
    def open_rows(self) -> np.ndarray:
        """Rows of the sentences that go on after this round."""
        import numpy as np

        if not self.done:
            return np.arange(len(self.sentences))
        done = set(self.done)
        return np.array([i for i, s in enumerate(self.sentences.tolist()) if s not in done], int)

    def candidates(self, sentence: int) -> list[Candidate]:
        """Return the candidates of one sentence, best first; none if it was done before."""
        import numpy as np

        found = []
        for row in np.flatnonzero(self.sentences == sentence):
            for column in np.flatnonzero(self.fates[row] != Fate.NONE):
                at = (row, column)
                found.append(
                    Candidate(
                        int(self.parents[at]),
                        int(self.tokens[at]),
                        float(self.log_probabilities[at]),
                        float(self.sums[at]),
                        float(self.scores[at]),
                        Fate(int(self.fates[at])),
                    )
                )
        return found


def run_to_end(search: Generator[Step, None, Found]) -> tuple[list[Step], Found]:
    """Run a search to its end; return all its steps and what it returns."""
    steps = []
    while True:
        try:
            steps.append(next(search))
        except StopIteration as stop:
            return steps, stop.value
