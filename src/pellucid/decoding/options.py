"""How to search: every choice, validated, and how a length is weighed.

`length` means the number of output tokens everywhere here: a forced prefix and the end symbol
count, the start symbol does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from pellucid.config import Settings

if TYPE_CHECKING:
    import numpy as np

LengthNormalization = Literal["none", "gnmt", "average"]
Stop = Literal["full", "proven"]


class DecodingOptions(Settings):
    """Beam search with a beam of 4 unless something else is asked for."""

    beam_size: int = Field(default=4, ge=1, le=1024)
    """Hypotheses followed side by side; 1 takes the best token each time (greedy)."""

    n_best: int = Field(default=1, ge=1, le=1024)
    """How many hypotheses to return; with sampling, how many to draw."""

    length_normalization: LengthNormalization = "average"
    """What a log-probability sum is divided by, so that short outputs do not win for being short:
    nothing; ((5 + length) / 6)^alpha (GNMT, the paper); length^alpha (Marian, Hugging Face)."""

    length_penalty: float = Field(default=1.0, ge=-10, le=10)
    """Strength of the length penalty. Above 0 helps longer outputs; the paper takes 0.6 with
    gnmt; 1 with average is the mean log-probability of a token."""

    max_length: int | None = Field(default=None, ge=0)
    """Output length at which to cut, whatever the source."""

    max_length_ratio: float = Field(default=1.0, ge=0, le=1000)
    """Output length at which to cut: this many tokens for each source token ..."""

    max_length_extra: int = Field(default=50, ge=0, le=100_000)
    """... and this many more. The paper takes the source length plus 50."""

    min_length: int = Field(default=0, ge=0)
    """The end symbol may not come before the output has this length."""

    stop: Stop = "full"
    """When a sentence is done. full: patience · beam hypotheses have ended (fairseq, CTranslate2).
    proven: no unfinished hypothesis can still become one of the n best."""

    patience: float = Field(default=2.0, gt=0, le=1000)
    """With stop = full: wait for this many times `beam` ended hypotheses. With 1, as elsewhere
    usual, short and worse ones may fill the list before the best has ended: of 200 sentences 10
    got a worse output than `proven` finds; with 2 none did, for 13% more time (ct2: 20 to 45%)."""

    early_exit: bool = True
    """Stop as soon as it is proven that going on cannot change the result. Never changes it."""

    no_repeat_ngram_size: int = Field(default=0, ge=0)
    """No n tokens in a row come twice in an output; 0 allows it."""

    suppress_tokens: frozenset[int] = frozenset()
    """Token ids that may not be produced; a forced prefix may still contain them."""

    sample: bool = False
    """Draw tokens by their probability in place of searching."""

    temperature: float = Field(default=1.0, gt=0, le=1000)
    """Sampling: below 1 sharpens the distribution, above 1 flattens it."""

    top_k: int = Field(default=0, ge=0)
    """Sampling: draw among the k most probable tokens only; 0 for all."""

    top_p: float = Field(default=1.0, gt=0, le=1)
    """Sampling: draw among the fewest tokens whose probabilities reach this sum."""

    seed: int = 0
    """Sampling: the same seed draws the same tokens for the same sentence."""

    record_candidates: int = Field(default=0, ge=0, le=10_000)
    """Show at least this many candidates of each sentence in each step."""

    use_cache: bool = True
    """Off: compute everything again at each step. Slower, same result; for tests and teaching."""

    token_log_probabilities: bool = False
    """Give each hypothesis the log-probability of each token. The torch engine always does; with
    ct2 it takes one more reading of the output."""

    attention: bool = False
    """Give each hypothesis its cross-attention, (length, source length)."""

    attention_layer: int | None = -1
    """Which decoder layer's cross-attention; negative counts from the top, None is the mean."""

    attention_head: int | None = None
    """Which head's; None is the mean."""

    @model_validator(mode="after")
    def _choices_fit(self) -> Self:
        if self.sample and "beam" in self.model_fields_set and self.beam_size != 1:
            raise ValueError(
                f"sample draws without a beam, and beam = {self.beam_size}: set beam to 1"
            )
        if not self.sample and self.n_best > self.beam_size:
            raise ValueError(
                f"n_best = {self.n_best} is more than beam = {self.beam_size}: a beam of n finds n "
                "hypotheses, so raise beam or lower n_best"
            )
        if self.max_length is not None and self.min_length > self.max_length:
            raise ValueError(
                f"min_length = {self.min_length} is more than max_length = {self.max_length}: "
                "lower one or raise the other"
            )
        if not self.sample:
            for name in ("temperature", "top_k", "top_p"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} is a setting of sampling: set sample to true as well")
        return self

    @property
    def enough_ended(self) -> int:
        """How many ended hypotheses end a search with stop = full."""
        return max(self.n_best, round(self.patience * self.beam_size))

    def limit(self, source_length: int) -> int:
        """The longest output for a source of this length."""
        relative = int(source_length * self.max_length_ratio) + self.max_length_extra
        return relative if self.max_length is None else min(relative, self.max_length)


def penalty(kind: LengthNormalization, alpha: float, length: int) -> float:
    """What the log-probability sum of an output of this length is divided by; always above 0."""
    if kind == "none":
        return 1.0
    if kind == "gnmt":
        return float(((5 + length) / 6) ** alpha)
    return float(max(length, 1) ** alpha)


def best_attainable(
    options: DecodingOptions, sums: np.ndarray, length: int, limit: int
) -> np.ndarray:
    """No way to go on from log-probability sums at a length can give a better score than this.

    A finished hypothesis has the score sum / penalty(length). Going on adds log-probabilities,
    which are at most 0, so the final sum is at most today's sum s; and s <= 0. Dividing s <= 0 by
    the penalty p > 0 gives the largest value for the largest p that a final length in
    length + 1 .. limit can have. Each penalty is monotonic in the length:

    - none: p is 1, the bound is s.
    - gnmt, average: p rises with the length for alpha >= 0, so its largest value is at `limit`;
      it falls for alpha < 0, so its largest value is at length + 1.

    So the bound is s / p(limit) or s / p(length + 1). A search may stop when n finished
    hypotheses have at least the bound of every unfinished one: equal scores go to the hypothesis
    that ended first, so even a tie changes nothing.
    """
    longest_wins = options.length_normalization == "none" or options.length_penalty >= 0
    final = limit if longest_wins else min(length + 1, limit)
    return sums / penalty(options.length_normalization, options.length_penalty, final)
