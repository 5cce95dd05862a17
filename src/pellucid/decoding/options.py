"""Decoding options, validated, and the length penalty.

`length` is the number of output tokens everywhere here: a forced prefix and the end token count,
the start token does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from pellucid.config import Settings

if TYPE_CHECKING:
    import numpy as np

LengthNormalization = Literal["none", "gnmt", "average"]
Stop = Literal["full", "proven"]


class DecodingOptions(Settings):
    """How to decode: beam search with a beam of 4, unless asked otherwise."""

    section: ClassVar[str] = "decoding"

    beam_size: int = Field(default=4, ge=1, le=1024)
    """Number of hypotheses followed at the same time; 1 is greedy search."""

    n_best: int = Field(default=1, ge=1, le=1024)
    """Number of hypotheses to return; with sampling, number of samples to draw."""

    length_normalization: LengthNormalization = "average"
    """What a hypothesis's log-probability is divided by, so that short outputs do not win for
    being short: none: nothing; gnmt: ((5 + length) / 6)^length_penalty (the paper); average:
    length^length_penalty (Marian, Hugging Face)."""

    length_penalty: float = Field(default=1.0, ge=-10, le=10)
    """Exponent of the length normalization (alpha). Above 0 favours longer outputs; the paper uses
    0.6 with gnmt; 1 with average is the mean log-probability of a token."""

    max_length: int | None = Field(default=None, ge=0)
    """Output length at which to cut, whatever the source."""

    max_length_ratio: float = Field(default=1.0, ge=0, le=1000)
    """Output length at which to cut: this many tokens for each source token ..."""

    max_length_extra: int = Field(default=50, ge=0, le=100_000)
    """... and this many more. The paper uses the source length plus 50."""

    min_length: int = Field(default=0, ge=0)
    """Shortest output length: no end token before it is reached."""

    stop: Stop = "full"
    """When the search of a sentence stops. full: patience times beam_size hypotheses have finished
    (fairseq, CTranslate2). proven: no unfinished hypothesis can still become one of the n best."""

    patience: float = Field(default=2.0, gt=0, le=1000)
    """With stop = full: wait for this many times beam_size finished hypotheses. With 1, as usual
    elsewhere, short and worse ones may fill the list before the best has finished: of 200
    sentences 10 got a worse output than `proven` finds; with 2 none did, for 13% more time (ct2:
    20 to 45%)."""

    early_exit: bool = True
    """Stop as soon as going on provably cannot change the result. Never changes it."""

    no_repeat_ngram_size: int = Field(default=0, ge=0)
    """No n-gram of this size occurs twice in an output; 0 allows repetition."""

    suppress_tokens: frozenset[int] = frozenset()
    """Token ids that are never generated; a forced prefix may still contain them."""

    sample: bool = False
    """Sample tokens by their probability instead of searching for the best output."""

    temperature: float = Field(default=1.0, gt=0, le=1000)
    """Sampling: divides the logits; below 1 sharpens the distribution, above 1 flattens it."""

    top_k: int = Field(default=0, ge=0)
    """Sampling: draw from the k most probable tokens only; 0 for all."""

    top_p: float = Field(default=1.0, gt=0, le=1)
    """Sampling: draw from the fewest tokens whose probabilities reach this sum (nucleus)."""

    seed: int = 0
    """Sampling: the same seed draws the same tokens for the same sentence."""

    record_candidates: int = Field(default=0, ge=0, le=10_000)
    """Record at least this many candidates of each sentence in each step, for looking inside."""

    use_cache: bool = True
    """KV cache. Off: compute all positions again at each step; slower, same result, for tests and
    teaching."""

    token_log_probabilities: bool = False
    """Give each hypothesis the log-probability of each token. The torch engine always does; ct2
    needs one more pass over the output."""

    attention: bool = False
    """Give each hypothesis its cross-attention, (length, source length)."""

    attention_layer: int | None = -1
    """Decoder layer of that cross-attention; negative counts from the top, None is the mean."""

    attention_head: int | None = None
    """Head of that cross-attention; None is the mean."""

    @model_validator(mode="after")
    def _choices_fit(self) -> Self:
        if self.sample and "beam_size" in self.model_fields_set and self.beam_size != 1:
            raise ValueError(
                f"sample draws without a beam, and beam_size = {self.beam_size}: set beam_size to 1"
            )
        if not self.sample and self.n_best > self.beam_size:
            raise ValueError(
                f"n_best = {self.n_best} is more than beam_size = {self.beam_size}: a beam of n "
                "finds n hypotheses, so raise beam_size or lower n_best"
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
    def enough_finished(self) -> int:
        """Number of finished hypotheses that end a search with stop = full."""
        return max(self.n_best, round(self.patience * self.beam_size))

    def limit(self, source_length: int) -> int:
        """Return the longest output length for a source of this length."""
        relative = int(source_length * self.max_length_ratio) + self.max_length_extra
        return relative if self.max_length is None else min(relative, self.max_length)


def penalty(kind: LengthNormalization, alpha: float, length: int) -> float:
    """Return the divisor of the log-probability of an output of this length; always above 0."""
    if kind == "none":
        return 1.0
    if kind == "gnmt":
        return float(((5 + length) / 6) ** alpha)
    return float(max(length, 1) ** alpha)


def best_attainable(
    options: DecodingOptions, sums: np.ndarray, length: int, limit: int
) -> np.ndarray:
    """Return an upper bound on the scores of all continuations of these hypotheses.

    sums: log-probabilities of unfinished hypotheses of this length.

    A finished hypothesis has the score sum / penalty(length). Each further token adds a
    log-probability, which is at most 0, so the final sum is at most the present sum s; and s <= 0.
    Dividing s <= 0 by the penalty p > 0 gives the largest value for the largest p that a final
    length in length + 1 .. limit can have. Each penalty is monotonic in the length:

    - none: p is 1, the bound is s.
    - gnmt, average: p rises with the length for alpha >= 0, so its largest value is at `limit`;
      it falls for alpha < 0, so its largest value is at length + 1.

    So the bound is s / p(limit) or s / p(length + 1). A search may stop when n finished
    hypotheses have at least the bound of every unfinished one: of equal scores the hypothesis that
    finished first wins, so even a tie changes nothing.
    """
    longest_is_best = options.length_normalization == "none" or options.length_penalty >= 0
    final = limit if longest_is_best else min(length + 1, limit)
    return sums / penalty(options.length_normalization, options.length_penalty, final)
