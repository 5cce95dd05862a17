"""The translator: texts in, translations out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from math import exp
from typing import TYPE_CHECKING, Any

from pellucid.bundle import Bundle
from pellucid.decoding.engine import Engine
from pellucid.decoding.engine_selection import open_torch
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.steps import Hypothesis
from pellucid.errors import InputError
from pellucid.text.casing import lowered
from pellucid.text.segmentation import Passage, cut, mended, with_stand_ins, without_protected
from pellucid.tokenizers.base import Side
from pellucid.translator.directions import Direction, choose_direction
from pellucid.translator.translation import Alternative, Sentence, Translation, Variant
from pellucid.translator.translation_report import Outcome, TranslatedUnit, TranslationReport

if TYPE_CHECKING:
    from pellucid.inspection.trace import Trace

SHORTEST, LONGEST = 20, 250
"""Tokens of a sentence that are the most a model gets at once: as many as the longest that it
learned from, within these bounds. A longer sentence is cut into parts."""

FIRST_WINDOW, WINDOW = 32, 2048
"""Lines that are sorted and batched together: few at first, so that results appear soon."""


class Translator:
    """Translates texts with a bundle and an engine; `pellucid.load` makes one.

    Several threads may share a translator and call any of its methods at the same time: nothing
    in it changes after it is made. An iterator from `translate_lines` belongs to one thread.
    """

    def __init__(self, bundle: Bundle, engine: Engine) -> None:
        self.bundle = bundle
        self.engine = engine
        self.tokenizer = bundle.tokenizer

    @property
    def directions(self) -> tuple[str, ...]:
        """Which ways it translates, e.g. ("fr-en", "en-fr"); the default one is the bundle's."""
        return self.bundle.directions

    def direction(self, source: str | None = None, target: str | None = None) -> Direction:
        """The direction that is meant, or an InputError that says what this model offers."""
        return choose_direction(self.bundle.settings, source, target)

    def __call__(
        self, text: str, *, source: str | None = None, target: str | None = None, **options: Any
    ) -> str:
        """The translation of a text, and nothing but its text."""
        return self.translate([text], source, target, **options)[0].text

    def translate(
        self,
        texts: Sequence[str],
        source: str | None = None,
        target: str | None = None,
        beam_size: int = 4,
        n_best: int = 1,
        prefix: str | Sequence[str | None] | None = None,
        alternatives: bool | int = False,
        **options: Any,
    ) -> list[Translation]:
        """One Translation for each text, in order.

        prefix: what the first sentence of the translation must begin with, for all texts or one
        for each. alternatives: True, or how many, for what else could stand at each position.
        options: any of `DecodingOptions`, e.g. attention=True for the alignment.
        """
        if isinstance(texts, str):
            raise InputError("translate takes a list of texts: write translate([text])")
        way, chosen = self.direction(source, target), self._options(beam_size, n_best, options)
        passages = [self._passage(text, way) for text in texts]
        prefixes = [prefix] * len(texts) if prefix is None or isinstance(prefix, str) else prefix
        if len(prefixes) != len(texts):
            raise InputError(f"{len(prefixes)} prefixes for {len(texts)} texts: give one for each")
        forced: list[str] = []
        for passage, begin in zip(passages, prefixes, strict=True):
            forced += [begin or "" if i == 0 else "" for i in range(len(passage.units))]
        flat = [unit.text for passage in passages for unit in passage.units]
        rest = iter(self._outcomes(flat, way, chosen, forced))
        made = []
        for text, passage in zip(texts, passages, strict=True):
            outcomes = list(islice(rest, len(passage.units)))
            made.append(self._translation(text, passage, outcomes, way, chosen))
        if alternatives:
            count = 5 if alternatives is True else int(alternatives)
            made = [self._with_alternatives(t, way, chosen, count) for t in made]
        return made

    def translate_lines(
        self,
        lines: Iterable[str | None],
        source: str | None = None,
        target: str | None = None,
        beam_size: int = 4,
        report: TranslationReport | None = None,
        first_window: int = FIRST_WINDOW,
        **options: Any,
    ) -> Iterator[str]:
        """The translation of each line, in order, as they are ready; memory stays flat.

        Lines are read in windows, which are sorted by length, cut into batches and spread over the
        cores; while one is translated, the next is made ready. A line's line breaks stay in it, and
        none are added. `report` counts what a caller should know. A None among the lines says that
        the next may be long in coming: those before it are answered first.
        """
        way, chosen = self.direction(source, target), self._options(beam_size, 1, options)
        report = report if report is not None else TranslationReport()
        return self._stream(iter(lines), way, chosen, report, first_window)

    def _stream(
        self,
        lines: Iterator[str | None],
        way: Direction,
        options: DecodingOptions,
        report: TranslationReport,
        size: int,
    ) -> Iterator[str]:
        waiting: list[Future[list[tuple[Passage, list[Outcome]]]]] = []
        with ThreadPoolExecutor(max_workers=2) as pool:
            while True:
                window, more = _read_window(lines, size)
                if window:
                    waiting.append(pool.submit(self._window, window, way, options))
                while waiting and (len(window) < size or len(waiting) == 2):
                    for passage, outcomes in waiting.pop(0).result():
                        report.add(passage, outcomes)
                        texts = [outcome.texts[0] for outcome in outcomes]
                        yield passage.joined(texts, way.target)
                if not more:
                    return
                size = min(2 * size, WINDOW)

    def _window(
        self, lines: list[str], way: Direction, options: DecodingOptions
    ) -> list[tuple[Passage, list[Outcome]]]:
        passages = [self._passage(line, way) for line in lines]
        flat = [unit.text for passage in passages for unit in passage.units]
        rest = iter(self._outcomes(flat, way, options))
        return [(passage, list(islice(rest, len(passage.units)))) for passage in passages]

    def alternatives(
        self,
        text: str,
        position: int,
        count: int = 5,
        source: str | None = None,
        target: str | None = None,
        beam_size: int = 4,
        begin: Sequence[int] = (),
        **options: Any,
    ) -> list[Alternative]:
        """What else could stand at a token of the translation of one sentence, best first.

        The token that stands there is the first of them, if it is the most probable. Each is
        completed to a whole sentence. begin: ids that the translation has to begin with, as an
        earlier alternative gave them.
        """
        way, chosen = self.direction(source, target), self._options(beam_size, 1, options)
        passage = self._passage(text, way)
        if len(passage.units) != 1:
            raise InputError(f"alternatives are for one sentence, and this is {len(passage.units)}")
        text = self._read(passage.units[0].text, way)
        ids = self.tokenizer.encode(text, target_language=way.target)
        forced = [list(begin)] if begin else None
        unit = TranslatedUnit(text, ids, self.engine.translate_ids([ids], chosen, forced)[0])
        tokens = unit.result.best.tokens
        if not 0 <= position <= len(tokens):
            raise InputError(f"position {position} is outside of the {len(tokens)} tokens")
        return self._alternatives(unit, [position], chosen, count)

    def look(
        self,
        text: str,
        source: str | None = None,
        target: str | None = None,
        beam_size: int = 4,
        **options: Any,
    ) -> Trace:
        """What happens inside for one sentence: every tensor by name, the rounds of the search.

        Needs PyTorch (`pip install 'pellucid[train]'`).
        """
        way, chosen = self.direction(source, target), self._options(beam_size, 1, options)
        engine: Any = getattr(self.engine, "torch", self.engine)
        if not hasattr(engine, "model"):
            engine = open_torch(self.bundle)
        from pellucid.inspection.tracing import look_inside

        return look_inside(engine.model, self.tokenizer, engine.special, text, way.name, chosen)

    def passage(self, text: str, source: str | None = None, target: str | None = None) -> Passage:
        """The text cut into the units that the model reads, and what stands between them."""
        return self._passage(text, self.direction(source, target))

    def _options(self, beam_size: int, n_best: int, options: dict[str, Any]) -> DecodingOptions:
        layer, head = self.bundle.settings.attention_place
        options = {"attention_layer": layer, "attention_head": head, **options}
        if options.get("sample"):
            return DecodingOptions(n_best=n_best, **options)
        return DecodingOptions(beam_size=max(beam_size, n_best), n_best=n_best, **options)

    def _passage(self, text: str, way: Direction) -> Passage:
        config = self.bundle.config
        limit = min(LONGEST, max(SHORTEST, self.bundle.settings.longest or LONGEST))
        if config.position_encoding == "learned":
            limit = max(1, min(limit, config.max_length - 2))
        return cut(
            text, way.source, limit=limit, length=lambda part: self._length(self._read(part, way))
        )

    def _length(self, text: str) -> int:
        return len(self.tokenizer.encode(text))

    def _read(self, text: str, way: Direction) -> str:
        """A unit as the model reads it: capitals that it does not know become small letters."""
        return lowered(text, way.source, self._length) or text

    def _pieces(self, ids: Iterable[int], side: Side = "target") -> tuple[str, ...]:
        return tuple(self.tokenizer.piece(token, side) for token in ids)

    def _decoded(
        self,
        texts: Sequence[str],
        way: Direction,
        options: DecodingOptions,
        prefixes: Sequence[str] | None = None,
    ) -> list[TranslatedUnit]:
        """Units through the engine as they are."""
        ids = self.tokenizer.encode_batch(texts, target_language=way.target)
        forced = None
        if prefixes is not None and any(prefixes):
            forced = self.tokenizer.encode_batch(prefixes, side="target")
        results = self.engine.translate_ids(ids, options, forced)
        return [TranslatedUnit(*parts) for parts in zip(texts, ids, results, strict=True)]

    def _outcomes(
        self,
        texts: Sequence[str],
        way: Direction,
        options: DecodingOptions,
        prefixes: Sequence[str] | None = None,
    ) -> list[Outcome]:
        """Units translated; those that lost what must survive, translated around it."""
        begun = prefixes or [""] * len(texts)  # what begins as forced stays as it was typed
        read = [t if b else self._read(t, way) for t, b in zip(texts, begun, strict=True)]
        units = self._decoded(read, way, options, prefixes)
        outputs = iter(
            self.tokenizer.decode_batch(
                [h.tokens for unit in units for h in unit.result.hypotheses]
            )
        )
        outcomes, lost = [], []
        for place, (unit, text) in enumerate(zip(units, texts, strict=True)):
            written = [next(outputs) for _ in unit.result.hypotheses]
            if unit.text != text:
                written = [one.upper() for one in written]
            found = [mended(text, one) for one in written]
            if found[0] is None and not (prefixes and prefixes[place]):
                lost.append(place)
            outcomes.append(Outcome([one for one in found if one is not None], [unit]))
        lost = self._with_stand_ins(texts, lost, outcomes, way, options)
        around = [without_protected(texts[place]) for place in lost]
        flat = [self._read(unit.text, way) for passage in around for unit in passage.units]
        again = iter(self._decoded(flat, way, options) if flat else [])
        for place, passage in zip(lost, around, strict=True):
            parts = list(islice(again, len(passage.units)))
            written = self.tokenizer.decode_batch([part.result.best.tokens for part in parts])
            if outcomes[place].units[0].text != texts[place]:
                written = [one.upper() for one in written]
            outcomes[place] = Outcome([passage.joined(written, way.target)], parts, rescued=True)
        for outcome in outcomes:
            if not outcome.texts:  # a forced beginning, and something lost: as it came
                outcome.texts = [self.tokenizer.decode(outcome.units[0].result.best.tokens)]
        return outcomes

    def _with_stand_ins(
        self,
        texts: Sequence[str],
        lost: Sequence[int],
        outcomes: list[Outcome],
        way: Direction,
        options: DecodingOptions,
    ) -> list[int]:
        """Units that lost something, translated with a common word in its place.

        Sets the outcomes of those where that helped, and gives the places of the others.
        """
        found = {place: with_stand_ins(texts[place]) for place in lost}
        tried = {place: one for place, one in found.items() if one is not None}
        read = [self._read(one.text, way) for one in tried.values()]
        units = self._decoded(read, way, options) if tried else []
        written = self.tokenizer.decode_batch([unit.result.best.tokens for unit in units])
        for (place, one), unit, text in zip(tried.items(), units, written, strict=True):
            whole = one.restored(text)
            whole = None if whole is None else mended(texts[place], whole)
            if whole is not None and unit.text == one.text:  # and so not in capitals
                outcomes[place] = Outcome([whole], [unit], rescued=True)
        return [place for place in lost if not outcomes[place].rescued]

    def _translation(
        self,
        text: str,
        passage: Passage,
        outcomes: list[Outcome],
        way: Direction,
        options: DecodingOptions,
    ) -> Translation:
        most = max((len(outcome.texts) for outcome in outcomes), default=1)
        n_best = dict.fromkeys(
            passage.joined([o.texts[min(rank, len(o.texts) - 1)] for o in outcomes], way.target)
            for rank in range(min(most, options.n_best))
        )
        return Translation(
            text,
            next(iter(n_best)),
            way.source,
            way.target,
            tuple(self._sentence(unit) for outcome in outcomes for unit in outcome.units),
            tuple(n_best),
            passage.split,
            sum(outcome.rescued for outcome in outcomes),
        )

    def _sentence(self, unit: TranslatedUnit) -> Sentence:
        best = unit.result.best
        alignment = attention = None
        if best.attention is not None:
            # The tag and the end are no words of the source.
            inner = best.attention[: len(best.tokens), self.tokenizer.lead : len(unit.ids) - 1]
            alignment = tuple(int(place) for place in inner.argmax(axis=1))
            attention = tuple(map(tuple, inner.tolist()))
        return Sentence(
            unit.text,
            tuple(self._variant(h) for h in unit.result.hypotheses),
            self._pieces(unit.ids[self.tokenizer.lead : -1], "source"),
            unit.result.near_tie,
            best.token_log_probabilities,
            alignment,
            attention=attention,
        )

    def _variant(self, h: Hypothesis) -> Variant:
        text = self.tokenizer.decode(h.tokens)
        return Variant(text, h.score, h.log_probability, h.length, self._pieces(h.tokens), h.ended)

    def _with_alternatives(
        self, translation: Translation, way: Direction, options: DecodingOptions, count: int
    ) -> Translation:
        sentences = []
        units = self._decoded([s.source for s in translation.sentences], way, options)
        for sentence, unit in zip(translation.sentences, units, strict=True):
            positions = range(len(unit.result.best.tokens))
            found = self._alternatives(unit, positions, options, count)
            sentences.append(replace(sentence, alternatives=tuple(found)))
        return replace(translation, sentences=tuple(sentences))

    def _alternatives(
        self, unit: TranslatedUnit, positions: Sequence[int], options: DecodingOptions, count: int
    ) -> list[Alternative]:
        tokens = list(unit.result.best.tokens)
        begun = [tokens[:position] for position in positions]
        choices = self.engine.next_tokens([unit.ids] * len(begun), begun, count + 4)
        special = {*self.engine.special, self.tokenizer.unk_id}
        places, prefixes, logs = [], [], []
        for position, begin, following in zip(positions, begun, choices, strict=True):
            usable = [(token, log) for token, log in following if token not in special]
            for token, log in usable[:count]:
                places.append(position)
                prefixes.append([*begin, token])
                logs.append(log)
        plain = options.changed(n_best=1, attention=False)
        results = self.engine.translate_ids([unit.ids] * len(prefixes), plain, prefixes)
        texts = self.tokenizer.decode_batch([result.best.tokens for result in results])
        return [
            Alternative(
                position,
                self.tokenizer.piece(prefix[-1]),
                exp(log),
                text,
                result.best.score,
                self._pieces(result.best.tokens),
                tuple(prefix),
            )
            for position, prefix, log, text, result in zip(
                places, prefixes, logs, texts, results, strict=True
            )
        ]


def _read_window(lines: Iterator[str | None], size: int) -> tuple[list[str], bool]:
    """Up to so many lines, fewer before a None; and whether there may be more."""
    window: list[str] = []
    for line in lines:
        if line is None:
            return window, True
        window.append(line)
        if len(window) == size:
            return window, True
    return window, False
