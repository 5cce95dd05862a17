"""chrF: F-score of character n-grams (Popović, 2015)."""

from __future__ import annotations

from collections.abc import Sequence

from pellucid.evaluation.metrics.sacrebleu import SacreBleuMetric, import_sacrebleu


class Chrf(SacreBleuMetric):
    """sacreBLEU's chrF. words: word n-gram order; 2 is chrF++ (Popović, 2017)."""

    def __init__(
        self, references: Sequence[Sequence[str]], *, words: int = 0, lowercase: bool = False
    ) -> None:
        metric = import_sacrebleu().CHRF(word_order=words, lowercase=lowercase)
        super().__init__("chrf", "chrF" + "+" * words, metric, references)
