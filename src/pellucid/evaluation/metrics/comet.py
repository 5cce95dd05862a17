"""COMET: a neural metric (Rei et al., 2020), if its package and a checkpoint are there."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pellucid.errors import InputError, PellucidError
from pellucid.evaluation.metrics.corpus_metric import Statistics


class Comet:
    """A COMET checkpoint and the first reference of each sentence.

    The checkpoint's file is checked now and loaded when it is first used, so that a missing one is
    an error before anything is translated. Nothing is downloaded. A checkpoint is a pickle, which
    can run code when it is loaded: give only one that you trust.
    """

    key, name, higher_is_better, digits = "comet", "COMET", True, 4

    def __init__(self, checkpoint: Path, references: Sequence[str]) -> None:
        if not checkpoint.is_file():
            raise InputError(
                f"there is no COMET checkpoint {checkpoint}: name the .ckpt file of a model that "
                "you have (nothing is downloaded)"
            )
        if not _installed():
            raise InputError(
                "--comet needs the COMET package, which is not installed: pip install unbabel-comet"
            )
        self.checkpoint = checkpoint
        self._references = references
        self._model: Any = None

    def statistics(self, sources: Sequence[str], translations: Sequence[str]) -> Statistics:
        """Return the score of each sentence, and 1 to count it."""
        rows = [
            {"src": source, "mt": translation, "ref": reference}
            for source, translation, reference in zip(
                sources, translations, self._references, strict=True
            )
        ]
        try:
            if self._model is None:
                comet = importlib.import_module("comet")
                self._model = comet.load_from_checkpoint(str(self.checkpoint))
            made = self._model.predict(rows, batch_size=16, gpus=0, progress_bar=False)
            scores = np.array([float(score) for score in made.scores])
        except Exception as error:
            # anything: torch, transformers and Lightning are all in its package
            reason = " ".join(str(error).split())[:200]
            raise PellucidError(f"COMET failed with {self.checkpoint}: {reason}") from error
        if len(scores) != len(rows):
            raise PellucidError(f"COMET gave {len(scores):,} scores for {len(rows):,} sentences")
        return np.stack([scores, np.ones(len(rows))], axis=1)

    def score(self, summed: NDArray[np.float64]) -> float:
        """Return the mean of the sentence scores."""
        return float(summed[0] / summed[1])

    def signature(self, resamples: int, seed: int) -> str:
        """Return the checkpoint's name, the number of references and the bootstrap's settings."""
        bootstrap = f"|bs:{resamples}|seed:{seed}" if resamples else ""
        named = self.checkpoint.stem
        if self.checkpoint.parent.name == "checkpoints":  # .../NAME/checkpoints/model.ckpt
            named = self.checkpoint.parents[1].name
        return f"nrefs:1{bootstrap}|checkpoint:{named}"

    def detail(self, summed: NDArray[np.float64]) -> dict[str, Any]:
        """Return nothing more."""
        return {}


def _installed() -> bool:
    try:
        return find_spec("comet") is not None
    except ValueError:  # in sys.modules without a spec
        return True
