"""Units of text through tokenizer and engine, and back to text that has lost nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from pellucid.bundle import Bundle
from pellucid.decoding.engine import Engine
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.steps import Hypothesis, Result
from pellucid.text.casing import lowered
from pellucid.text.passage import Passage
from pellucid.text.preserve import Preserved, Rewritten
from pellucid.text.segmentation import cut
from pellucid.tokenizers.base import Side
from pellucid.translator.directions import Direction
from pellucid.translator.translation import Sentence, Variant

MIN_LIMIT, MAX_LIMIT = 20, 250
"""Bounds of the tokens that a model gets at once: the longest sentence that it was trained on,
within these bounds. A longer sentence is cut into parts."""


class DecodedUnit(NamedTuple):
    """One unit as the model read it, and what the engine returned for it."""

    text: str
    ids: list[int]
    result: Result


@dataclass
class TranslatedUnit:
    """The translation of a unit of a passage."""

    texts: list[str]
    """The n best."""
    decoded: list[DecodedUnit]
    """What went through the model for it."""
    rescued: bool = False
    """Whether it lost something at first, and was translated again in another form."""


class Pipeline:
    """Segments, tokenizes, decodes and detokenizes, with a bundle's tokenizer and an engine."""

    def __init__(self, bundle: Bundle, engine: Engine) -> None:
        self.engine, self.tokenizer = engine, bundle.tokenizer
        config = bundle.config
        self._limit = min(MAX_LIMIT, max(MIN_LIMIT, bundle.settings.longest or MAX_LIMIT))
        if config.position_encoding == "learned":
            self._limit = max(1, min(self._limit, config.max_length - 2))

    def segmented(self, text: str, direction: Direction) -> Passage:
        """Cut a text into units that the model can read."""

        def length(part: str) -> int:
            return self._length(self.as_read(part, direction))

        return cut(text, direction.source, limit=self._limit, length=length)

    def as_read(self, text: str, direction: Direction) -> str:
        """Return a unit as the model reads it: in small letters, if it does not know capitals."""
        return lowered(text, direction.source, self._length) or text

    def _length(self, text: str) -> int:
        return len(self.tokenizer.encode(text))

    def decode(
        self,
        texts: Sequence[str],
        direction: Direction,
        options: DecodingOptions,
        prefixes: Sequence[str] | None = None,
    ) -> list[DecodedUnit]:
        """Put texts through the engine as they are."""
        if not texts:
            return []
        ids = self.tokenizer.encode_batch(texts, target_language=direction.target)
        forced = None
        if prefixes is not None and any(prefixes):
            forced = self.tokenizer.encode_batch(prefixes, side="target")
        results = self.engine.translate_ids(ids, options, forced)
        return [DecodedUnit(*parts) for parts in zip(texts, ids, results, strict=True)]

    def translate(
        self,
        texts: Sequence[str],
        direction: Direction,
        options: DecodingOptions,
        prefixes: Sequence[str] | None = None,
    ) -> list[TranslatedUnit]:
        """Translate units; those that lost what must survive are translated again without it."""
        forced = prefixes or [""] * len(texts)  # with a forced prefix, the text stays as typed
        read = [t if p else self.as_read(t, direction) for t, p in zip(texts, forced, strict=True)]
        decoded = self.decode(read, direction, options, prefixes)
        capitals = {i for i, text in enumerate(texts) if read[i] != text}
        hypotheses = [h.tokens for one in decoded for h in one.result.hypotheses]
        outputs = iter(self.tokenizer.decode_batch(hypotheses))
        translated: list[TranslatedUnit] = []
        lost: dict[int, Preserved] = {}
        for i, one in enumerate(decoded):
            written = [next(outputs) for _ in one.result.hypotheses]
            preserved = Preserved(texts[i])
            repaired = [
                preserved.repaired(text.upper() if i in capitals else text) for text in written
            ]
            if repaired[0] is None and not forced[i]:
                lost[i] = preserved
            translated.append(TranslatedUnit([t for t in repaired if t is not None], [one]))
        for rewrite in (Preserved.with_stand_ins, Preserved.without_protected):
            again = self._translate_rewritten(lost, rewrite, capitals, direction, options)
            for i, unit in again:
                translated[i] = unit
                del lost[i]
        for unit in translated:
            if not unit.texts:  # a forced prefix, and something lost: the output as it is
                unit.texts = [self.tokenizer.decode(unit.decoded[0].result.best.tokens)]
        return translated

    def _translate_rewritten(
        self,
        lost: dict[int, Preserved],
        rewrite: Callable[[Preserved], Rewritten | None],
        capitals: set[int],
        direction: Direction,
        options: DecodingOptions,
    ) -> list[tuple[int, TranslatedUnit]]:
        """Translate texts that lost something in another form; return those where that helped."""
        forms = {i: form for i, one in lost.items() if (form := rewrite(one)) is not None}
        units = [unit.text for form in forms.values() for unit in form.passage.units]
        read = [self.as_read(text, direction) for text in units]
        rest = iter(zip(units, self.decode(read, direction, options), strict=True))
        found = []
        for i, form in forms.items():
            parts = list(islice(rest, len(form.passage.units)))
            decoded = [part for _, part in parts]
            if form.stand_ins and any(text != part.text for text, part in parts):
                continue  # in small letters, the stand-ins would not come back as they are
            written = self.tokenizer.decode_batch([part.result.best.tokens for part in decoded])
            if i in capitals and not form.stand_ins:
                written = [text.upper() for text in written]
            restored = form.restored(written, direction.target)
            if restored is not None:
                found.append((i, TranslatedUnit([restored], decoded, rescued=True)))
        return found

    def pieces(self, ids: Iterable[int], side: Side = "target") -> tuple[str, ...]:
        """Return the pieces of token ids."""
        return tuple(self.tokenizer.piece(token, side) for token in ids)

    def sentence(self, unit: DecodedUnit) -> Sentence:
        """Describe a decoded unit for the caller: texts, scores, tokens, alignment."""
        best = unit.result.best
        alignment = attention = None
        if best.attention is not None:
            # without the columns of the language tag and the end token, which are no words
            inner = best.attention[: len(best.tokens), self.tokenizer.lead : len(unit.ids) - 1]
            alignment = tuple(int(position) for position in inner.argmax(axis=1))
            attention = tuple(map(tuple, inner.tolist()))
        return Sentence(
            unit.text,
            tuple(self._variant(h) for h in unit.result.hypotheses),
            self.pieces(unit.ids[self.tokenizer.lead : -1], "source"),
            unit.result.near_tie,
            best.token_log_probabilities,
            alignment,
            attention=attention,
        )

    def _variant(self, h: Hypothesis) -> Variant:
        text = self.tokenizer.decode(h.tokens)
        return Variant(text, h.score, h.log_probability, h.length, self.pieces(h.tokens), h.ended)
