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
from pellucid.errors import InputError
from pellucid.text.passage import Passage
from pellucid.translator.directions import Direction, choose_direction
from pellucid.translator.pipeline import DecodedUnit, Pipeline, TranslatedUnit
from pellucid.translator.translation import Alternative, Translation
from pellucid.translator.translation_report import TranslationReport

if TYPE_CHECKING:
    from pellucid.inspection.trace import Trace

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
        self._pipeline = Pipeline(bundle, engine)

    @property
    def directions(self) -> tuple[str, ...]:
        """Directions that it translates, e.g. ("fr-en", "en-fr"); the bundle names the default."""
        return self.bundle.directions

    def direction(self, source: str | None = None, target: str | None = None) -> Direction:
        """Return the direction that is meant, or raise an InputError with those of this model."""
        return choose_direction(self.bundle.settings, source, target)

    def __call__(
        self, text: str, *, source: str | None = None, target: str | None = None, **options: Any
    ) -> str:
        """Return the translation of a text as a string."""
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
        """Return one Translation for each text, in order.

        prefix: what the translation of the first sentence must begin with, for all texts or one
        for each. alternatives: True, or how many, for other tokens at each position.
        options: any of `DecodingOptions`, e.g. attention=True for the alignment.
        """
        if isinstance(texts, str):
            raise InputError("translate takes a list of texts: write translate([text])")
        way, chosen = self.direction(source, target), self._options(beam_size, n_best, options)
        passages = [self._pipeline.segmented(text, way) for text in texts]
        prefixes = [prefix] * len(texts) if prefix is None or isinstance(prefix, str) else prefix
        if len(prefixes) != len(texts):
            raise InputError(f"{len(prefixes)} prefixes for {len(texts)} texts: give one for each")
        forced: list[str] = []
        for passage, first in zip(passages, prefixes, strict=True):
            forced += [first or "" if i == 0 else "" for i in range(len(passage.units))]
        flat = [unit.text for passage in passages for unit in passage.units]
        rest = iter(self._pipeline.translate(flat, way, chosen, forced))
        translations = [
            self._translation(text, passage, list(islice(rest, len(passage.units))), way, chosen)
            for text, passage in zip(texts, passages, strict=True)
        ]
        if alternatives:
            count = 5 if alternatives is True else int(alternatives)
            translations = [self._with_alternatives(t, way, chosen, count) for t in translations]
        return translations

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
        """Yield the translation of each line, in order, as they are ready, in constant memory.

        Lines are read in windows, which are sorted by length, cut into batches and spread over the
        cores; while one is translated, the next is prepared. A line's line breaks stay in it, and
        none are added. `report` counts what a caller should know. A None among the lines says that
        the next may be long in coming: those before it are translated first.
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
        pending: list[Future[list[tuple[Passage, list[TranslatedUnit]]]]] = []
        with ThreadPoolExecutor(max_workers=2) as pool:
            while True:
                window, more = _read_window(lines, size)
                if window:
                    pending.append(pool.submit(self._window, window, way, options))
                while pending and (len(window) < size or len(pending) == 2):
                    for passage, units in pending.pop(0).result():
                        report.add_units(passage, units)
                        yield passage.joined([unit.texts[0] for unit in units], way.target)
                if not more:
                    return
                size = min(2 * size, WINDOW)

    def _window(
        self, lines: list[str], way: Direction, options: DecodingOptions
    ) -> list[tuple[Passage, list[TranslatedUnit]]]:
        passages = [self._pipeline.segmented(line, way) for line in lines]
        flat = [unit.text for passage in passages for unit in passage.units]
        rest = iter(self._pipeline.translate(flat, way, options))
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
        """Return the most probable tokens at a position of one sentence's translation, best first.

        The translation's own token is the first of them, if it is the most probable. Each is
        completed to a whole sentence. begin: token ids that the translation must begin with, as an
        earlier alternative gave them.
        """
        way, chosen = self.direction(source, target), self._options(beam_size, 1, options)
        passage = self._pipeline.segmented(text, way)
        if len(passage.units) != 1:
            raise InputError(f"alternatives are for one sentence, and this is {len(passage.units)}")
        text = self._pipeline.as_read(passage.units[0].text, way)
        ids = self.tokenizer.encode(text, target_language=way.target)
        forced = [list(begin)] if begin else None
        unit = DecodedUnit(text, ids, self.engine.translate_ids([ids], chosen, forced)[0])
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
        """Translate one sentence and record everything: every tensor by name, each search step.

        Needs PyTorch (`pip install 'pellucid[train]'`).
        """
        way, chosen = self.direction(source, target), self._options(beam_size, 1, options)
        model = self.engine.model or open_torch(self.bundle).model
        from pellucid.inspection.tracing import look_inside

        return look_inside(model, self.tokenizer, self.engine.special, text, way.name, chosen)

    def passage(self, text: str, source: str | None = None, target: str | None = None) -> Passage:
        """Return the text cut into the units that the model reads and what is between them."""
        return self._pipeline.segmented(text, self.direction(source, target))

    def _options(self, beam_size: int, n_best: int, options: dict[str, Any]) -> DecodingOptions:
        layer, head = self.bundle.settings.alignment_head
        options = {"attention_layer": layer, "attention_head": head, **options}
        if options.get("sample"):
            return DecodingOptions(n_best=n_best, **options)
        return DecodingOptions(beam_size=max(beam_size, n_best), n_best=n_best, **options)

    def _translation(
        self,
        text: str,
        passage: Passage,
        units: list[TranslatedUnit],
        way: Direction,
        options: DecodingOptions,
    ) -> Translation:
        most = max((len(unit.texts) for unit in units), default=1)
        n_best = dict.fromkeys(
            passage.joined([u.texts[min(rank, len(u.texts) - 1)] for u in units], way.target)
            for rank in range(min(most, options.n_best))
        )
        return Translation(
            text,
            next(iter(n_best)),
            way.source,
            way.target,
            tuple(self._pipeline.sentence(decoded) for unit in units for decoded in unit.decoded),
            tuple(n_best),
            passage.split,
            sum(unit.rescued for unit in units),
        )

    def _with_alternatives(
        self, translation: Translation, way: Direction, options: DecodingOptions, count: int
    ) -> Translation:
        sentences = []
        units = self._pipeline.decode([s.source for s in translation.sentences], way, options)
        for sentence, unit in zip(translation.sentences, units, strict=True):
            positions = range(len(unit.result.best.tokens))
            found = self._alternatives(unit, positions, options, count)
            sentences.append(replace(sentence, alternatives=tuple(found)))
        return replace(translation, sentences=tuple(sentences))

    def _alternatives(
        self, unit: DecodedUnit, positions: Sequence[int], options: DecodingOptions, count: int
    ) -> list[Alternative]:
        tokens = list(unit.result.best.tokens)
        before = [tokens[:position] for position in positions]
        choices = self.engine.next_tokens([unit.ids] * len(before), before, count + 4)
        special = {*self.engine.special, self.tokenizer.unk_id}
        found = [  # position, forced prefix, log-probability of its last token
            (position, [*start, token], log)
            for position, start, following in zip(positions, before, choices, strict=True)
            for token, log in [one for one in following if one[0] not in special][:count]
        ]
        prefixes = [prefix for _, prefix, _ in found]
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
                self._pipeline.pieces(result.best.tokens),
                tuple(prefix),
            )
            for (position, prefix, log), text, result in zip(found, texts, results, strict=True)
        ]


def _read_window(lines: Iterator[str | None], size: int) -> tuple[list[str], bool]:
    """Read up to so many lines, fewer before a None; tell whether there may be more."""
    window: list[str] = []
    for line in lines:
        if line is None:
            return window, True
        window.append(line)
        if len(window) == size:
            return window, True
    return window, False
