"""The fast engine: a model that `ct2_export` wrote, run by CTranslate2. PyTorch is not needed.

Same options, same answers as the torch engine, with these limits: what CTranslate2 does otherwise
than the torch engine is refused (`unsupported` says what), and its near-ties are not known.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.config import ModelConfig
from pellucid.decoding.engine import SpecialIds
from pellucid.decoding.options import DecodingOptions, penalty
from pellucid.decoding.search.task import Task, plan
from pellucid.decoding.steps import NEAR_TIE, Ended, Hypothesis, Result
from pellucid.errors import InputError, PellucidError

if TYPE_CHECKING:
    import numpy as np

LONGEST = 1024
"""Rows of the table of positions of a model for CTranslate2; a longer sequence is an error."""

DEFAULT_BATCH_TOKENS = 1024
"""Source tokens of a batch, padding counted; `benchmarks/translate.py` compares sizes."""

_DEFAULTS = DecodingOptions()


def unsupported(options: DecodingOptions) -> str | None:
    """The first setting that this engine cannot do as the torch engine does, or None."""
    if options.sample:
        return "sample (CTranslate2 cannot draw the same tokens again for a sentence)"
    if options.length_normalization == "gnmt" and options.length_penalty:
        return "length_penalty = 'gnmt'"
    if options.stop != "full":
        return f"stop = {options.stop!r}"
    if options.patience < 1:
        return f"patience = {options.patience} (CTranslate2 takes 1 or more)"
    for name in ("watch", "use_cache"):
        if getattr(options, name) != getattr(_DEFAULTS, name):
            return f"{name} = {getattr(options, name)}"
    return None


@dataclass(frozen=True)
class _Batch:
    """Sentences that go through CTranslate2 together, and how."""

    sentences: list[int]
    limit: int
    minimum: int
    hypotheses: int
    suppressed: frozenset[int]


class Ct2Engine:
    """Translates token ids with CTranslate2, batches side by side on all cores.

    folder: what `ct2_export.export` wrote. pieces: the vocabulary it was written with.
    alignment: the layer and head it was written for. threads: batches that run at the same time,
    one core each (all cores, unless given): on a CPU that beats several cores for one batch.
    Several threads may share one engine; their batches wait in one queue.
    """

    def __init__(
        self,
        folder: Path | str,
        config: ModelConfig,
        special: SpecialIds,
        pieces: Sequence[str],
        *,
        source_pieces: Sequence[str] | None = None,
        alignment: tuple[int, int | None] = (-1, None),
        threads: int | None = None,
        batch_tokens: int = DEFAULT_BATCH_TOKENS,
    ) -> None:
        import ctranslate2  # type: ignore[import-untyped]

        self.config, self._special = config, special
        self._pieces, self._source_pieces = list(pieces), list(source_pieces or pieces)
        self._ids = {piece: token for token, piece in enumerate(self._pieces)}
        self._alignment = alignment
        self.threads = threads or available_cores()
        self.batch_tokens = batch_tokens
        try:
            self._translator: Any = ctranslate2.Translator(
                str(folder), inter_threads=self.threads, intra_threads=1, max_queued_batches=-1
            )
        except (RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise PellucidError(f"CTranslate2 cannot load {folder}: {reason}") from None

    @property
    def special(self) -> SpecialIds:
        """The ids with a meaning of their own."""
        return self._special

    @property
    def longest(self) -> int | None:
        """The most tokens that a source or an output may have; None: any number."""
        if self.config.position_encoding == "rotary":
            return None
        return self.config.max_length if self.config.position_encoding == "learned" else LONGEST

    def obstacle(
        self, options: DecodingOptions, sources: Sequence[Sequence[int]] = ()
    ) -> str | None:
        """What of these options and sources this engine cannot do, or None if it can do all."""
        reason = unsupported(options)
        if reason is not None:
            return reason
        asked = (options.attention_layer, options.attention_head)
        if options.attention and self._place(*asked) != self._place(*self._alignment):
            return (
                f"attention_layer, attention_head = {asked}: it was written for {self._alignment}"
            )
        for number, source in enumerate(sources):
            if self.longest is not None and len(source) > self.longest:
                return f"source {number}: {len(source)} tokens for {self.longest} positions"
            if len(source) == 1 and source[0] == self._special.end:  # CTranslate2 passes it over
                return f"source {number}: nothing but the end symbol"
        return None

    def translate_ids(
        self,
        sources: Sequence[Sequence[int]],
        options: DecodingOptions,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[Result]:
        """One result for each source, in order; see `Engine`."""
        reason = self.obstacle(options, sources)
        if reason is not None:
            raise InputError(f"the ct2 engine cannot do {reason}: use the torch engine")
        task = plan(
            sources,
            options,
            self._special,
            vocab_size=self.config.vocab_size,
            source_vocab_size=self.config.source_vocab_size,
            prefixes=prefixes,
            longest=None if self.longest is None else self.longest - 1,  # room for the end
        )
        results = {i: r for i in range(len(task.sources)) if (r := task.trivial(i)) is not None}
        rest = [i for i in range(len(task.sources)) if i not in results]
        again: list[int] = []
        for batch, found in self._run(task, self._batches(task, rest)):
            for i, hypotheses in zip(batch.sentences, found, strict=True):
                limit = task.limits[i]
                if limit < batch.limit and any(h.length >= limit for h in hypotheses):
                    again.append(i)  # with a limit of its own, the search might have gone elsewhere
                else:
                    results[i] = self._result(task, i, hypotheses)
        for batch, found in self._run(task, self._batches(task, again, exact=True)):
            for i, hypotheses in zip(batch.sentences, found, strict=True):
                results[i] = self._result(task, i, hypotheses)
        mended = self._mend(task, results)
        if mended or options.token_log_probabilities or self._moves_scores(task):
            self._read_again(task, results)
        return [
            replace(r, hypotheses=r.hypotheses[: options.n_best])
            for r in (results[i] for i in range(len(task.sources)))
        ]

    def score_ids(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[np.ndarray]:
        """The log-probability of each token of given outputs, and last of the end symbol."""
        import numpy as np

        if not sources:
            return []
        read = self._translator.score_batch(
            [self._source(s) for s in sources],
            [[self._pieces[t] for t in target] for target in targets],
            max_batch_size=2 * self.batch_tokens,
            batch_type="tokens",
            max_input_length=0,
        )
        return [np.array(r.log_probs, dtype=np.float64) for r in read]

    def next_tokens(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        count: int,
    ) -> list[list[tuple[int, float]]]:
        """The `count` most probable tokens after each prefix, with their log-probabilities."""
        import numpy as np

        found = []
        for source, prefix in zip(sources, prefixes, strict=True):
            read = self._translator.translate_batch(
                [self._source(source)],
                [[self._pieces[t] for t in prefix] or None],
                beam_size=1,
                max_input_length=0,
                min_decoding_length=0,
                max_decoding_length=len(prefix) + 1,
                return_logits_vocab=True,
            )
            logits = np.array(read[0].logits[0][len(prefix)]).reshape(-1).astype(np.float64)
            logs = logits - logits.max()
            logs -= np.log(np.exp(logs).sum())
            order = np.argsort(-logs, kind="stable")[:count]
            found.append([(int(token), float(logs[token])) for token in order])
        return found

    def _place(self, layer: int | None, head: int | None) -> tuple[int | None, int | None]:
        """A layer and head with the layer counted from the bottom."""
        return (None if layer is None else layer % self.config.decoder_layers, head)

    def _source(self, ids: Sequence[int]) -> list[str]:
        return [self._source_pieces[token] for token in ids]

    def _batches(
        self, task: Task, sentences: Sequence[int], *, exact: bool = False
    ) -> Iterator[_Batch]:
        """Sentences of similar length together, longest first.

        A batch has one limit, the highest of its sentences. Where limits differ, all hypotheses
        that ended are asked for: if none has reached its sentence's own limit, the search has
        ended before it, and the limit made no difference. CTranslate2 4.8 mixes up the first
        attention of sentences in a batch, so where that is asked for, each is alone.
        """
        options = task.options
        budget = self.batch_tokens * 4 // options.beam_size

        def key(i: int) -> tuple[int, ...]:
            limit = task.limits[i] if exact else 0
            return (limit, task.minimums[i])

        order = sorted(sentences, key=lambda i: (-len(task.sources[i]), -task.limits[i], i))
        if exact:
            order.sort(key=key, reverse=True)
        at = 0
        while at < len(order):
            most = 1 if options.attention else max(1, budget // len(task.sources[order[at]]))
            stop = at + 1
            while stop < min(at + most, len(order)) and key(order[stop]) == key(order[at]):
                stop += 1
            batch = order[at:stop]
            limits = {task.limits[i] for i in batch}
            all_of_them = len(limits) > 1 or self._moves_scores(task)  # then they are ranked again
            asked = options.n_best
            if (
                all_of_them and options.beam_size > 1
            ):  # greedy search has one, whatever the patience
                asked = options.enough_ended
            minimum = task.minimums[batch[0]]
            yield _Batch(batch, max(limits), minimum, asked, options.suppress_tokens)
            at = stop

    def _run(
        self, task: Task, batches: Iterator[_Batch]
    ) -> Iterator[tuple[_Batch, list[list[Hypothesis]]]]:
        """Every batch with the hypotheses of its sentences; all are in the queue at once."""
        waiting = [(batch, self._submit(task, batch)) for batch in batches]
        for batch, futures in waiting:
            try:
                read = [future.result() for future in futures]
            except RuntimeError as error:
                reason = " ".join(str(error).split())[:200]
                raise PellucidError(f"CTranslate2 failed: {reason}") from None
            yield (
                batch,
                [self._hypotheses(task, i, r) for i, r in zip(batch.sentences, read, strict=True)],
            )

    def _submit(self, task: Task, batch: _Batch) -> Any:
        options = task.options
        prefixes = None
        if any(task.prefixes[i] for i in batch.sentences):
            prefixes = [
                [self._pieces[t] for t in task.prefixes[i]] or None for i in batch.sentences
            ]
        return self._translator.translate_batch(
            [self._source(task.sources[i]) for i in batch.sentences],
            prefixes,
            asynchronous=True,
            beam_size=options.beam_size,
            patience=options.patience,
            num_hypotheses=batch.hypotheses,
            length_penalty=0.0
            if options.length_normalization == "none"
            else options.length_penalty,
            no_repeat_ngram_size=options.no_repeat_ngram_size,
            suppress_sequences=[[self._pieces[t]] for t in sorted(batch.suppressed)] or None,
            return_end_token=True,
            max_input_length=0,
            max_decoding_length=batch.limit,
            min_decoding_length=max(0, batch.minimum - 1),  # there, the end is not counted
            return_scores=True,
            return_attention=options.attention,
        )

    def _hypotheses(self, task: Task, sentence: int, read: Any) -> list[Hypothesis]:
        options, end = task.options, self._pieces[self._special.end]
        found = []
        for number, (pieces, score) in enumerate(zip(read.hypotheses, read.scores, strict=True)):
            ended: Ended = "eos" if pieces and pieces[-1] == end else "length"
            ids = [self._ids[piece] for piece in pieces]
            length = len(ids)
            divisor = penalty(options.length_normalization, options.length_penalty, length)
            attention = None
            if options.attention:
                import numpy as np

                attention = np.array(read.attention[number], dtype=np.float32)
            tokens = tuple(ids[:-1] if ended == "eos" else ids)
            found.append(Hypothesis(tokens, length, score * divisor, score, ended, None, attention))
        return found

    def _result(self, task: Task, sentence: int, found: list[Hypothesis]) -> Result:
        """Near-ties are known only as far as the scores show them."""
        known = found[: task.options.n_best + 1]
        close = any(a.score - b.score < NEAR_TIE for a, b in pairwise(known))
        return Result(tuple(found), close or None, len(task.prefixes[sentence]))

    def _mend(self, task: Task, results: dict[int, Result]) -> bool:
        """Do again what holds a symbol that may not be produced; cut where nothing else could come.

        The pad and start symbols are suppressed only where they come up: CTranslate2 shares out
        the probability of what it suppresses, so the scores are no longer the model's own. Tells
        whether that was done.
        """
        never = {self._special.pad, self._special.start} - {self._special.end}
        again = [
            i
            for i, result in results.items()
            if any(never.intersection(h.tokens[result.prefix_length :]) for h in result.hypotheses)
        ]
        batches = (
            replace(b, suppressed=b.suppressed | never)
            for b in self._batches(task, again, exact=True)
        )
        for batch, found in self._run(task, batches):
            for i, hypotheses in zip(batch.sentences, found, strict=True):
                results[i] = self._result(task, i, hypotheses)
        forbidden = task.options.suppress_tokens | (never if again else set())
        for i, result in results.items() if forbidden else ():
            cut = [self._cut(h, forbidden, result.prefix_length) for h in result.hypotheses]
            if any(new is not old for new, old in zip(cut, result.hypotheses, strict=True)):
                results[i] = replace(result, hypotheses=tuple(cut[:1]))
        return bool(again)

    def _cut(self, h: Hypothesis, forbidden: frozenset[int] | set[int], start: int) -> Hypothesis:
        """A hypothesis up to the first forbidden token: where all were, CTranslate2 takes one."""
        tokens = (*h.tokens, self._special.end) if h.ended == "eos" else h.tokens
        for place in range(start, len(tokens)):
            if tokens[place] in forbidden:
                attention = None if h.attention is None else h.attention[:place]
                return Hypothesis(h.tokens[:place], place, 0.0, 0.0, "blocked", None, attention)
        return h

    def _moves_scores(self, task: Task) -> bool:
        """Whether CTranslate2's scores are not the model's own.

        It leaves a forced prefix out of the sum, and shares out the probability of tokens that may
        not come.
        """
        options = task.options
        return bool(
            any(task.prefixes)
            or options.suppress_tokens
            or options.min_length > 0
            or options.no_repeat_ngram_size
        )

    def _read_again(self, task: Task, results: dict[int, Result]) -> None:
        """Give hypotheses the model's own log-probabilities, and order them by these."""
        options = task.options
        rows = [(i, h) for i, r in results.items() for h in r.hypotheses if h.length]
        read = iter(self.score_ids([task.sources[i] for i, _ in rows], [h.tokens for _, h in rows]))
        for i, result in results.items():
            scored = []
            for h in result.hypotheses:
                logs = tuple(next(read)[: h.length].tolist()) if h.length else ()
                total = float(sum(logs))
                score = total / penalty(
                    options.length_normalization, options.length_penalty, h.length
                )
                scored.append(
                    replace(h, log_probability=total, score=score, token_log_probabilities=logs)
                )
            scored.sort(key=lambda h: -h.score)
            results[i] = replace(result, hypotheses=tuple(scored))


def available_cores() -> int:
    """The cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1
