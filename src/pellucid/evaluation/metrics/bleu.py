"""BLEU: precision of word n-grams with a brevity penalty (Papineni et al., 2002)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pellucid.errors import InputError, PellucidError, nearest
from pellucid.evaluation.metrics.sacrebleu import SacreBleuMetric, import_sacrebleu


class Bleu(SacreBleuMetric):
    """sacreBLEU's BLEU.

    language: of the references; it chooses the tokenizer unless `tokenize` does (13a, but for
    Chinese, Japanese and Korean).
    """

    def __init__(
        self,
        references: Sequence[Sequence[str]],
        *,
        language: str = "",
        tokenize: str | None = None,
        lowercase: bool = False,
    ) -> None:
        tokenizer = bleu_tokenizer(tokenize, language)
        try:
            # force: `find_warnings` reports text that looks tokenized, and sacreBLEU need not
            metric = import_sacrebleu().BLEU(lowercase=lowercase, tokenize=tokenizer, force=True)
        except (RuntimeError, ImportError, AttributeError, OSError) as error:
            raise _unusable(tokenizer, error) from None
        super().__init__("bleu", "BLEU", metric, references)

    def detail(self, summed: NDArray[np.float64]) -> dict[str, Any]:
        """Return n-gram precisions, brevity penalty and lengths."""
        score = self._metric._compute_score_from_stats(summed)
        return {
            "precisions": [float(p) for p in score.precisions],
            "brevity_penalty": float(score.bp),
            "length_ratio": float(score.ratio),
            "translation_words": int(score.sys_len),
            "reference_words": int(score.ref_len),
        }


def bleu_tokenizer(name: str | None, language: str = "") -> str:
    """Return the name of BLEU's tokenizer, by default that of the language; nothing is loaded.

    An unknown name is an `InputError`.
    """
    bleu = import_sacrebleu().BLEU
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
