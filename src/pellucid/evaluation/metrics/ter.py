"""TER: translation edit rate, edits and shifts for each word (Snover et al., 2006)."""

from __future__ import annotations

from collections.abc import Sequence

from pellucid.evaluation.metrics.sacrebleu import SacreBleuMetric, import_sacrebleu


class Ter(SacreBleuMetric):
    """sacreBLEU's TER, case-insensitive as in the original; lower is better.

    In languages that put no spaces between words (Chinese, Japanese), characters are edited. The
    signature says both.
    """

    def __init__(self, references: Sequence[Sequence[str]], *, language: str = "") -> None:
        unspaced = language[:2] in ("zh", "ja")
        metric = import_sacrebleu().TER(normalized=unspaced, asian_support=unspaced)
        super().__init__("ter", "TER", metric, references, higher_is_better=False)
