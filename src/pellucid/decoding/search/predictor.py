"""What a search needs of a model: the most probable next tokens."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np


class Banned(NamedTuple):
    """Tokens that some rows may not take now: pairs of a row and a token."""

    rows: np.ndarray
    tokens: np.ndarray


class Ranked(NamedTuple):
    """The best next tokens of R rows: most probable first, equal ones by lower id."""

    tokens: np.ndarray
    """(R, top)"""
    log_probabilities: np.ndarray
    """(R, top) float64, -inf where a token is not allowed."""
    wanted: np.ndarray | None
    """(R,) log-probability of the token that was asked for, allowed or not."""


class Predictor(Protocol):
    """A model that has read some sentences, each with the same number of rows (hypotheses).

    Rows are in the order of their sentences. `history (R, T)` holds all tokens of each row so far,
    the start token first.
    """

    def prefill(self, history: np.ndarray) -> np.ndarray:
        """Read the first tokens at once; return log-probabilities `(R, T - 1)` of all but one."""
        ...

    def rank(
        self,
        history: np.ndarray,
        top: int,
        *,
        banned: Banned | None = None,
        wanted: np.ndarray | None = None,
    ) -> Ranked:
        """Return the `top` best next tokens of each row (fewer if the vocabulary is smaller).

        wanted: (R,) a token for each row whose log-probability is needed too.
        """
        ...

    def distribution(
        self,
        history: np.ndarray,
        *,
        banned: Banned | None = None,
        wanted: np.ndarray | None = None,
    ) -> Ranked:
        """Return all tokens of each row, by id, `(R, V)`, float32; see `rank`."""
        ...

    def reorder(self, rows: np.ndarray, sentences: np.ndarray | None) -> None:
        """Continue with these rows, which may repeat, of these sentences (None: all of them)."""
        ...
