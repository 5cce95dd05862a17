"""What quality is measured with: BLEU, chrF and TER, all of them sacreBLEU's, and COMET.

A measure counts each sentence once (sacreBLEU's own counts: matching n-grams, edits, lengths).
Whatever is asked later, the score of the whole, of the short sentences, of one sentence, of a
thousand resamples, is made of sums of these counts, so that nothing is counted twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pellucid.errors import InputError, MissingExtraError, PellucidError, nearest

Counts = NDArray[np.float64]
"""(sentences, counts of the measure)"""

AT_ONCE = 1000
"""Sentences that are counted together; the n-grams of a reference take some 30 KB of memory."""


class Measure(Protocol):
    """What the rest of the evaluation asks of a measure."""

    key: str
    """Its name in JSON."""
    name: str
    """Its name for a person."""
    higher_is_better: bool
    digits: int
    """How many digits after the point are worth showing."""

    def counts(self, sources: Sequence[str], translations: Sequence[str]) -> Counts:
        """A row for each sentence."""
        ...

    def score(self, summed: NDArray[np.float64]) -> float:
        """The score of a set of sentences, from the sum of their rows."""
        ...

    def signature(self, resamples: int, seed: int) -> str:
        """What must be said with a score so that another can be compared with it."""
        ...

    def detail(self, summed: NDArray[np.float64]) -> dict[str, Any]:
        """What else is known of a score, for JSON."""
        ...


class SacreBleu:
    """One of sacreBLEU's metrics with its references.

    sacreBLEU computes counts and scores in methods whose names begin with an underscore; they
    have been the same since its version 2.0, and tests/parity/test_sacrebleu.py binds what comes
    out here to its public functions.
    """

    digits = 1

    def __init__(
        self,
        key: str,
        name: str,
        metric: Any,
        references: Sequence[Sequence[str]],
        higher_is_better: bool = True,
    ) -> None:
        self.key, self.name, self.higher_is_better = key, name, higher_is_better
        self._metric, self._references = metric, references

    def counts(self, sources: Sequence[str], translations: Sequence[str]) -> Counts:
        """A row for each sentence; the references are those it was made with."""
        rows: list[Any] = []
        for start in range(0, len(translations), AT_ONCE):
            some = slice(start, start + AT_ONCE)
            rows += self._metric._extract_corpus_statistics(
                translations[some], [reference[some] for reference in self._references]
            )
        return np.array(rows, dtype=np.float64)

    def score(self, summed: NDArray[np.float64]) -> float:
        """The score of a set of sentences, from the sum of their rows."""
        return float(self._metric._compute_score_from_stats(summed).score)

    def signature(self, resamples: int, seed: int) -> str:
        """sacreBLEU's own, once something was counted; with resamples, how many and the seed."""
        signature = self._metric.get_signature()
        if resamples:
            signature.update("bs", resamples)
            signature.update("seed", seed)
        return str(signature)

    def detail(self, summed: NDArray[np.float64]) -> dict[str, Any]:
        """What a BLEU score is made of; nothing for the others."""
        score = self._metric._compute_score_from_stats(summed)
        if self.key != "bleu":
            return {}
        return {
            "precisions": [float(p) for p in score.precisions],
            "brevity_penalty": float(score.bp),
            "length_ratio": float(score.ratio),
            "translation_words": int(score.sys_len),
            "reference_words": int(score.ref_len),
        }


def sacrebleu_measures(
    references: Sequence[Sequence[str]],
    *,
    language: str = "",
    tokenize: str | None = None,
    lowercase: bool = False,
    chrf_words: int = 0,
    ter: bool = True,
) -> list[SacreBleu]:
    """BLEU, chrF and TER against references.

    language: of the references; it chooses the tokenizer of BLEU where `tokenize` does not (13a,
    but for Chinese, Japanese and Korean). chrf_words = 2 makes chrF++.
    """
    metrics = sacrebleu()
    tokenizer = check_tokenizer(tokenize, language)
    try:
        # force: what looks tokenized is told by `cautions`, in our words
        bleu = metrics.BLEU(lowercase=lowercase, tokenize=tokenizer, force=True)
    except (RuntimeError, ImportError, AttributeError, OSError) as error:
        raise _unusable(tokenizer, error) from None
    chrf = metrics.CHRF(word_order=chrf_words, lowercase=lowercase)
    made = [
        SacreBleu("bleu", "BLEU", bleu, references),
        SacreBleu("chrf", "chrF" + "+" * chrf_words, chrf, references),
    ]
    if ter:
        # Case-blind, in sacreBLEU as in the original; where words have no spaces between them,
        # characters are edited. Its signature says both.
        unspaced = language[:2] in ("zh", "ja")
        blind = metrics.TER(normalized=unspaced, asian_support=unspaced)
        made.append(SacreBleu("ter", "TER", blind, references, higher_is_better=False))
    return made


def check_tokenizer(name: str | None, language: str = "") -> str:
    """The tokenizer of BLEU that is meant, or an InputError; nothing is loaded."""
    bleu = sacrebleu().BLEU
    if name is None:
        return str(bleu._TOKENIZER_MAP.get(language[:2], bleu.TOKENIZER_DEFAULT))
    known = list(bleu.TOKENIZERS)
    if name not in known:
        raise InputError(
            f"sacreBLEU has no tokenizer {name!r} ({nearest(name, known)}); it has "
            f"{', '.join(known)}"
        )
    return name


def _unusable(tokenizer: str, error: Exception) -> PellucidError:
    reason = " ".join(str(error).split())[:160]
    if tokenizer in ("ja-mecab", "ko-mecab"):
        language = tokenizer[:2]
        return InputError(
            f"BLEU for this language needs MeCab: pip install 'sacrebleu[{language}]', or count "
            "characters with --tokenize char"
        )
    return PellucidError(
        f"sacreBLEU cannot use its tokenizer {tokenizer} ({reason}): choose another with --tokenize"
    )


def sacrebleu() -> Any:
    """sacreBLEU's metrics, imported when they are needed."""
    try:
        from sacrebleu import metrics
    except ImportError:
        raise MissingExtraError("evaluating", "evaluate") from None
    return metrics
