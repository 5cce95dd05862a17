"""What comes out of a translation, for a program and for a person."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pellucid.decoding.steps import Ended


@dataclass(frozen=True, slots=True)
class Variant:
    """One of the n best outputs for a sentence."""

    text: str
    score: float
    """The log-probability over the length penalty (by default the mean of a token)."""
    log_probability: float
    length: int
    """Tokens, the end symbol counted."""
    tokens: tuple[str, ...]
    ended: Ended
    """eos; length: cut at the longest allowed; blocked: nothing allowed could follow."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """What else could stand at a position, and the sentence it leads to."""

    position: int
    """Which token it would be in place of."""
    token: str
    probability: float
    text: str
    """A whole sentence that begins alike up to the position, and goes on with this token."""
    score: float
    tokens: tuple[str, ...] = ()
    """Those of the whole sentence."""
    begin: tuple[int, ...] = ()
    """The token ids up to and with this token, for whoever wants to go on from them."""


@dataclass(frozen=True)
class Sentence:
    """What the model read at once, and what it made of it."""

    source: str
    n_best: tuple[Variant, ...]
    source_tokens: tuple[str, ...]
    near_tie: bool | None
    """Whether another output was nearly as good; None: the engine cannot tell."""
    token_log_probabilities: tuple[float, ...] | None = None
    """Of each token, and of the end symbol; where asked for (always with the torch engine)."""
    alignment: tuple[int, ...] | None = None
    """For each token, the source token it looked at most; where asked for."""
    alternatives: tuple[Alternative, ...] = ()
    attention: tuple[tuple[float, ...], ...] | None = None
    """For each token, how much it looked at each source token; where asked for."""

    @property
    def best(self) -> Variant:
        """The output with the highest score."""
        return self.n_best[0]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        best = self.best
        found: dict[str, Any] = {
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
            found["probabilities"] = [math.exp(log) for log in self.token_log_probabilities]
        if self.alignment is not None:
            found["alignment"] = list(self.alignment)
        if len(self.n_best) > 1:
            found["n_best"] = [
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
            found["alternatives"] = [
                {
                    "position": a.position,
                    "token": a.token,
                    "probability": a.probability,
                    "text": a.text,
                    "score": a.score,
                }
                for a in self.alternatives
            ]
        return found


@dataclass(frozen=True)
class Translation:
    """The translation of one text, however many sentences it has."""

    source: str
    text: str
    source_language: str
    target_language: str
    sentences: tuple[Sentence, ...]
    """What went through the model; what was copied as it is (a line that is only an address, a
    number, an emoji) is not among them."""
    n_best: tuple[str, ...]
    """The n best texts, the first of which is `text`: the k-th takes each sentence's k-th best."""
    split: int = 0
    """How many sentences were too long and were translated in parts."""
    rescued: int = 0
    """How many sentences lost an address, a number or the like, and were translated around it."""

    @property
    def log_probability(self) -> float:
        """The sum over all sentences."""
        return sum(s.best.log_probability for s in self.sentences)

    @property
    def length(self) -> int:
        """Tokens of all sentences, their end symbols counted."""
        return sum(s.best.length for s in self.sentences)

    @property
    def score(self) -> float:
        """The sentences' scores, weighed by their lengths."""
        total = sum(s.best.score * s.best.length for s in self.sentences)
        return total / self.length if self.length else 0.0

    @property
    def ended(self) -> Ended:
        """How the sentences ended: eos, or the first other way of any of them."""
        ways = [s.best.ended for s in self.sentences]
        return next((way for way in ways if way != "eos"), "eos" if ways else "empty")

    @property
    def near_tie(self) -> bool | None:
        """Whether any sentence had another output nearly as good; None: not known."""
        ties = [s.near_tie for s in self.sentences]
        return True if any(ties) else None if None in ties else False

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """The tokens of all sentences."""
        return tuple(token for s in self.sentences for token in s.best.tokens)

    @property
    def alternatives(self) -> tuple[Alternative, ...]:
        """Those of all sentences."""
        return tuple(a for s in self.sentences for a in s.alternatives)

    def as_dict(self) -> dict[str, Any]:
        """For JSON; docs/translate.md says what each field means."""
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
