"""What a search needs of a model: which tokens may come next, best first."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np


class Banned(NamedTuple):
    """Tokens that single rows may not produce now: pairs of a row and a token."""

    rows: np.ndarray
    tokens: np.ndarray


class Ranked(NamedTuple):
    """The best next tokens of R rows, sorted: most probable first, equal ones by lower id."""

    tokens: np.ndarray
    """(R, top)"""
    log_probabilities: np.ndarray
    """(R, top) float64, -inf where a token is not allowed."""
    wanted: np.ndarray | None
    """(R,) log-probability of the token that was asked for, whether allowed or not."""


class Predictor(Protocol):
    """A model with some sentences loaded, each with the same number of rows (beams).

    Rows stand in the order of their sentences. `history (R, T)` holds all tokens of each row so
    far, the start symbol first.
    """

    def prime(self, history: np.ndarray) -> np.ndarray:
        """Read a beginning at once; the log-probabilities `(R, T - 1)` of all but its first."""
        ...

    def rank(
        self,
        history: np.ndarray,
        top: int,
        *,
        banned: Banned | None = None,
        wanted: np.ndarray | None = None,
    ) -> Ranked:
        """The `top` best next tokens of each row (fewer if the vocabulary is smaller).

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
        """All tokens of each row, in the order of their ids, `(R, V)`; float32. See `rank`."""
        ...

    def reorder(self, rows: np.ndarray, sentences: np.ndarray | None) -> None:
        """Go on with these rows, which may repeat, of these sentences (None: all of them)."""
        ...
