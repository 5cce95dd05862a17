"""The result of a translation: texts, scores, tokens, alignment, alternatives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pellucid.decoding.steps import EndReason


@dataclass(frozen=True, slots=True)
class Variant:
    """One of the n best outputs for a sentence."""

    text: str
    score: float
    """Log-probability divided by the length penalty (by default the mean of its tokens)."""
    log_probability: float
    length: int
    """Number of tokens, the end token counted."""
    tokens: tuple[str, ...]
    ended: EndReason
    """eos; length: cut at the maximum length; blocked: no allowed token could follow."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another token at a position, and the sentence it leads to."""

    position: int
    """Position in the translation's tokens."""
    token: str
    probability: float
    text: str
    """The whole sentence: the same up to the position, then this token, then the best rest."""
    score: float
    tokens: tuple[str, ...] = ()
    """Tokens of the whole sentence."""
    begin: tuple[int, ...] = ()
    """Token ids up to and including this token, to continue from them."""


@dataclass(frozen=True)
class Sentence:
    """What the model read at once, and its outputs for it."""

    source: str
    n_best: tuple[Variant, ...]
    source_tokens: tuple[str, ...]
    near_tie: bool | None
    """Whether another output was practically as good; None: not known (ct2)."""
    token_log_probabilities: tuple[float, ...] | None = None
    """Of each token and of the end token, if asked for (always with the torch engine)."""
    alignment: tuple[int, ...] | None = None
    """For each token, the source token with the highest attention; if asked for."""
    alternatives: tuple[Alternative, ...] = ()
    attention: tuple[tuple[float, ...], ...] | None = None
    """For each token, its attention weights over the source tokens; if asked for."""

    @property
    def best(self) -> Variant:
        """The output with the highest score."""
        return self.n_best[0]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        best = self.best
        values: dict[str, Any] = {
            "source": self.source,
            "text": best.text,
            "score": best.score,
            "log_probability": best.log_probability,
            "length": best.length,
            "ended": best.ended,
            "near_tie": self.near_tie,
            "source_tokens": list(self.source_tokens),
            "tokens": list(best.tokens),
        }
        if self.token_log_probabilities is not None:
            values["probabilities"] = [math.exp(log) for log in self.token_log_probabilities]
        if self.alignment is not None:
            values["alignment"] = list(self.alignment)
        if len(self.n_best) > 1:
            values["n_best"] = [
                {
                    "text": v.text,
                    "score": v.score,
                    "log_probability": v.log_probability,
                    "length": v.length,
                    "ended": v.ended,
                }
                for v in self.n_best
            ]
        if self.alternatives:
            values["alternatives"] = [
                {
                    "position": a.position,
                    "token": a.token,
                    "probability": a.probability,
                    "text": a.text,
                    "score": a.score,
                }
                for a in self.alternatives
            ]
        return values


@dataclass(frozen=True)
class Translation:
    """The translation of one text, however many sentences it has."""

    source: str
    text: str
    source_language: str
    target_language: str
    sentences: tuple[Sentence, ...]
    """The sentences that went through the model; what was copied as it is (a line that is only an
    address, a number, an emoji) is not among them."""
    n_best: tuple[str, ...]
    """The n best texts, the first of which is `text`: the k-th takes each sentence's k-th best."""
    split: int = 0
    """Number of sentences that were too long and were translated in parts."""
    rescued: int = 0
    """Number of sentences whose first translation lost an address, a number or the like."""

    @property
    def log_probability(self) -> float:
        """Sum over all sentences."""
        return sum(s.best.log_probability for s in self.sentences)

    @property
    def length(self) -> int:
        """Number of tokens of all sentences, their end tokens counted."""
        return sum(s.best.length for s in self.sentences)

    @property
    def score(self) -> float:
        """Mean of the sentences' scores, weighted by their lengths."""
        total = sum(s.best.score * s.best.length for s in self.sentences)
        return total / self.length if self.length else 0.0

    @property
    def ended(self) -> EndReason:
        """Why the sentences end: eos, or the first other reason among them."""
        reasons = [s.best.ended for s in self.sentences]
        return next((one for one in reasons if one != "eos"), "eos" if reasons else "empty")

    @property
    def near_tie(self) -> bool | None:
        """Whether any sentence had another output practically as good; None: not known."""
        ties = [s.near_tie for s in self.sentences]
        return True if any(ties) else None if None in ties else False

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """Tokens of all sentences."""
        return tuple(token for s in self.sentences for token in s.best.tokens)

    @property
    def alternatives(self) -> tuple[Alternative, ...]:
        """Alternatives of all sentences."""
        return tuple(a for s in self.sentences for a in s.alternatives)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON; docs/translate.md explains each field."""
        return {
            "source": self.source,
            "text": self.text,
            "from": self.source_language,
            "to": self.target_language,
            "score": self.score,
            "log_probability": self.log_probability,
            "length": self.length,
            "ended": self.ended,
            "near_tie": self.near_tie,
            "split": self.split,
            "rescued": self.rescued,
            "n_best": list(self.n_best),
            "sentences": [sentence.as_dict() for sentence in self.sentences],
        }
