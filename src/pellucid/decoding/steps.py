"""What a search tells about itself: a Step each round, a Result at the end.

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
"""Two alternatives closer than this (in log-probability) could swap by rounding alone.

Measured: the sum over 41 tokens of a base-sized model differs by up to 1.4e-5 between one sentence
alone and the same in a batch (fp32), so a difference of two sums by up to 3e-5."""

Ended = Literal["eos", "length", "blocked", "empty"]


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One output for one source."""

    tokens: tuple[int, ...]
    """Token ids, a forced prefix included, the start and the end symbol left out."""

    length: int
    """Number of tokens, the end symbol counted if it came."""

    log_probability: float
    """The sum over all tokens: the log-probability of the output given the source."""

    score: float
    """The log-probability sum over the length penalty, by which hypotheses are ranked."""

    ended: Ended
    """eos: the end symbol came. length: cut at the longest allowed. blocked: nothing that is
    allowed could follow. empty: the source was empty, and so is the output."""

    token_log_probabilities: tuple[float, ...] | None = None
    """The model's log-probability of each token, and last that of the end symbol if it came. The
    ct2 engine gives them only where asked for."""

    attention: np.ndarray | None = None
    """Where asked for: which source tokens each output token looked at, `(length, S)`."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came out for one source."""

    hypotheses: tuple[Hypothesis, ...]
    """Best first, at least one, at most n_best; all different unless they were sampled."""

    near_tie: bool | None = False
    """Some choice on the way was closer than NEAR_TIE, so that rounding (another batch, another
    machine) may give another output of practically the same score. None: the engine cannot tell."""

    prefix_length: int = 0
    """How many of the first tokens were given by the caller."""

    @property
    def best(self) -> Hypothesis:
        """The hypothesis with the highest score."""
        return self.hypotheses[0]


class Fate(IntEnum):
    """What became of a candidate."""

    NONE = -1
    """No candidate: there were not that many."""
    PRUNED = 0
    KEPT = 1
    ENDED = 2


NONE, PRUNED, KEPT, ENDED = map(int, Fate)
"""The same as plain numbers, which numpy compares several times faster."""


class Candidate(NamedTuple):
    """A way to go on: hypothesis `parent` of the round before, and one token more."""

    parent: int
    token: int
    log_probability: float
    sum: float
    score: float
    fate: Fate


@dataclass(frozen=True, slots=True)
class Step:
    """One round of a search over the sentences that are still open.

    Arrays have a row for each of `sentences` and a column for each candidate, best first. The
    i-th KEPT candidate of a row is hypothesis (`parent`) i of the next round.
    """

    length: int
    """The length that the hypotheses have after this round."""
    sentences: np.ndarray
    parents: np.ndarray
    tokens: np.ndarray
    log_probabilities: np.ndarray
    sums: np.ndarray
    scores: np.ndarray
    fates: np.ndarray
    ended: tuple[tuple[int, Hypothesis], ...]
    """Hypotheses that ended in this round, each with the number of its sentence."""
    done: tuple[int, ...]
    """Sentences whose search is over with this round."""

    @property
    def open_rows(self) -> np.ndarray:
        """The rows of the sentences that go on after this round."""
        import numpy as np

        if not self.done:
            return np.arange(len(self.sentences))
        over = set(self.done)
        return np.array([i for i, s in enumerate(self.sentences.tolist()) if s not in over], int)

    def candidates(self, sentence: int) -> list[Candidate]:
        """The candidates of one sentence, best first; none if it is not open in this round."""
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


def drained(search: Generator[Step, None, Found]) -> tuple[list[Step], Found]:
    """All steps of a search, and what it found in the end."""
    steps = []
    while True:
        try:
            steps.append(next(search))
        except StopIteration as stop:
            return steps, stop.value
