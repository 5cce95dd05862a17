"""The fast engine: CTranslate2 with a model that `specification.export` wrote, without PyTorch.

Same options and same answers as the torch engine, with two limits: options that CTranslate2
handles differently are refused (`unsupported` names them), and near-ties are not known.
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
from pellucid.decoding.steps import NEAR_TIE, EndReason, Hypothesis, Result
from pellucid.errors import InputError, PellucidError

if TYPE_CHECKING:
    import numpy as np

LONGEST = 1024
"""Rows of the position table of a converted model; a longer sequence is an error."""

DEFAULT_BATCH_TOKENS = 1024
"""Source tokens of a batch, padding included; `benchmarks/translate.py` compares sizes."""


def unsupported(options: DecodingOptions) -> str | None:
    """Return the first option that this engine handles unlike the torch engine, or None."""
    if options.sample:
        return "sample (CTranslate2 cannot draw the same tokens again for a sentence)"
    if options.length_normalization == "gnmt" and options.length_penalty:
        return "length_normalization = 'gnmt'"
    if options.stop != "full":
        return f"stop = {options.stop!r}"
    if options.patience < 1:
        return f"patience = {options.patience} (CTranslate2 takes 1 or more)"
    if options.record_candidates:
        return f"record_candidates = {options.record_candidates}"
    if not options.use_cache:
        return "use_cache = False"
    return None


@dataclass(frozen=True)
class _Batch:
    """Sentences that CTranslate2 decodes together, and their common options."""

    sentences: list[int]
    max_length: int
    min_length: int
    num_hypotheses: int
    suppress_tokens: frozenset[int]


class Ct2Engine:
    """Translates token ids with CTranslate2, one batch on each core.

    folder: as `specification.export` wrote it. pieces: the vocabulary it was written with.
    alignment: the layer and head it was written for. threads: batches decoded at the same time,
    one core each (default: all cores): on a CPU that beats several cores for one batch. Several
    threads may share one engine; their batches wait in one queue.
    """

    name = "ct2"
    model = None
    """No model in PyTorch: this engine works without it."""

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

        self.config, self.special = config, special
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
    def device(self) -> str:
        """Where it computes; see `Engine`."""
        return str(self._translator.device)

    @property
    def longest(self) -> int | None:
        """Most tokens that a source or an output may have; None: any number."""
        if self.config.position_encoding == "rotary":
            return None
        return self.config.max_length if self.config.position_encoding == "learned" else LONGEST

    def obstacle(
        self, options: DecodingOptions, sources: Sequence[Sequence[int]] = ()
    ) -> str | None:
        """Return why this engine cannot decode these sources with these options, or None."""
        reason = unsupported(options)
        if reason is not None:
            return reason
        asked = (options.attention_layer, options.attention_head)
        if options.attention and self._counted(*asked) != self._counted(*self._alignment):
            return (
                f"attention_layer, attention_head = {asked}: it was written for {self._alignment}"
            )
        for number, source in enumerate(sources):
            if self.longest is not None and len(source) > self.longest:
                return f"source {number}: {len(source)} tokens for {self.longest} positions"
            if len(source) == 1 and source[0] == self.special.end:  # CTranslate2 skips it
                return f"source {number}: nothing but the end token"
        return None

    def translate_ids(
        self,
        sources: Sequence[Sequence[int]],
        options: DecodingOptions,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[Result]:
        """Return one result for each source, in order; see `Engine`."""
        reason = self.obstacle(options, sources)
        if reason is not None:
            raise InputError(f"the ct2 engine cannot do {reason}: use the torch engine")
        task = plan(
            sources,
            options,
            self.special,
            vocab_size=self.config.vocab_size,
            source_vocab_size=self.config.source_vocab_size,
            prefixes=prefixes,
            longest=None if self.longest is None else self.longest - 1,  # room for the end token
        )
        results = {i: r for i in range(len(task.sources)) if (r := task.trivial(i)) is not None}
        rest = [i for i in range(len(task.sources)) if i not in results]
        again: list[int] = []
        for batch, found in self._run(task, self._batches(task, rest)):
            for i, hypotheses in zip(batch.sentences, found, strict=True):
                limit = task.limits[i]
                if limit < batch.max_length and any(h.length >= limit for h in hypotheses):
                    again.append(
                        i
                    )  # with a limit of its own, the search might have ended otherwise
                else:
                    results[i] = self._result(task, i, hypotheses)
        for batch, found in self._run(task, self._batches(task, again, exact=True)):
            for i, hypotheses in zip(batch.sentences, found, strict=True):
                results[i] = self._result(task, i, hypotheses)
        repeated = self._without_reserved(task, results)
        if repeated or options.token_log_probabilities or self._changes_scores(task):
            self._rescore(task, results)
        return [
            replace(r, hypotheses=r.hypotheses[: options.n_best])
            for r in (results[i] for i in range(len(task.sources)))
        ]

    def score_ids(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[np.ndarray]:
        """Return the log-probabilities of each given output's tokens and its end token.

        One teacher-forced pass over source and output.
        """
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
        """Return the `count` most probable tokens after each prefix and their log-probabilities."""
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

    def _counted(self, layer: int | None, head: int | None) -> tuple[int | None, int | None]:
        """Return a layer and head with the layer counted from the bottom."""
        return (None if layer is None else layer % self.config.decoder_layers, head)

    def _source(self, ids: Sequence[int]) -> list[str]:
        return [self._source_pieces[token] for token in ids]

    def _batches(
        self, task: Task, sentences: Sequence[int], *, exact: bool = False
    ) -> Iterator[_Batch]:
        """Batch sentences of similar length, longest first.

        A batch has one maximum length, the largest of its sentences. Where these differ, all
        finished hypotheses are asked for: if none has reached its sentence's own maximum, the
        search finished before it, and the maximum made no difference. CTranslate2 4.8 mixes up the
        first attention of sentences in a batch, so with attention each sentence is a batch.
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
            reranked = len(limits) > 1 or self._changes_scores(task)
            count = options.n_best
            if reranked and options.beam_size > 1:  # greedy search has one, whatever the patience
                count = options.enough_finished
            minimum = task.minimums[batch[0]]
            yield _Batch(batch, max(limits), minimum, count, options.suppress_tokens)
            at = stop

    def _run(
        self, task: Task, batches: Iterator[_Batch]
    ) -> Iterator[tuple[_Batch, list[list[Hypothesis]]]]:
        """Decode batches, all queued at once; yield each with its sentences' hypotheses."""
        waiting = [(batch, self._submit(task, batch)) for batch in batches]
        for batch, futures in waiting:
            try:
                read = [future.result() for future in futures]
            except RuntimeError as error:
                reason = " ".join(str(error).split())[:200]
                raise PellucidError(f"CTranslate2 failed: {reason}") from None
            yield (
                batch,
                [self._hypotheses(task, r) for r in read],
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
            num_hypotheses=batch.num_hypotheses,
            length_penalty=0.0
            if options.length_normalization == "none"
            else options.length_penalty,
            no_repeat_ngram_size=options.no_repeat_ngram_size,
            suppress_sequences=[[self._pieces[t]] for t in sorted(batch.suppress_tokens)] or None,
            return_end_token=True,
            max_input_length=0,
            max_decoding_length=batch.max_length,
            min_decoding_length=max(0, batch.min_length - 1),  # it does not count the end token
            return_scores=True,
            return_attention=options.attention,
        )

    def _hypotheses(self, task: Task, read: Any) -> list[Hypothesis]:
        options, end = task.options, self._pieces[self.special.end]
        found = []
        for number, (pieces, score) in enumerate(zip(read.hypotheses, read.scores, strict=True)):
            ended: EndReason = "eos" if pieces and pieces[-1] == end else "length"
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
        """Return a sentence's result; near-ties are known only as far as the scores show them."""
        known = found[: task.options.n_best + 1]
        close = any(a.score - b.score < NEAR_TIE for a, b in pairwise(known))
        return Result(tuple(found), close or None, len(task.prefixes[sentence]))

    def _without_reserved(self, task: Task, results: dict[int, Result]) -> bool:
        """Decode again what contains a reserved token; cut where only suppressed ones could follow.

        The pad and start tokens are suppressed only where they come up: CTranslate2 renormalizes
        over the tokens that are left, so the scores are no longer the model's own. Returns whether
        any sentence was decoded again.
        """
        never = {self.special.pad, self.special.start} - {self.special.end}
        again = [
            i
            for i, result in results.items()
            if any(never.intersection(h.tokens[result.prefix_length :]) for h in result.hypotheses)
        ]
        batches = (
            replace(b, suppress_tokens=b.suppress_tokens | never)
            for b in self._batches(task, again, exact=True)
        )
        for batch, found in self._run(task, batches):
            for i, hypotheses in zip(batch.sentences, found, strict=True):
                results[i] = self._result(task, i, hypotheses)
        suppressed = task.options.suppress_tokens | (never if again else set())
        for i, result in results.items() if suppressed else ():
            cut = [self._cut(h, suppressed, result.prefix_length) for h in result.hypotheses]
            if any(new is not old for new, old in zip(cut, result.hypotheses, strict=True)):
                results[i] = replace(result, hypotheses=tuple(cut[:1]))
        return bool(again)

    def _cut(self, h: Hypothesis, suppressed: frozenset[int] | set[int], start: int) -> Hypothesis:
        """Cut a hypothesis before the first suppressed token.

        Where all tokens are suppressed, CTranslate2 takes one of them.
        """
        tokens = (*h.tokens, self.special.end) if h.ended == "eos" else h.tokens
        for position in range(start, len(tokens)):
            if tokens[position] in suppressed:
                attention = None if h.attention is None else h.attention[:position]
                return Hypothesis(
                    h.tokens[:position], position, 0.0, 0.0, "blocked", None, attention
                )
        return h

    def _changes_scores(self, task: Task) -> bool:
        """Tell whether CTranslate2's scores are not the model's own.

        It leaves a forced prefix out of the sum, and renormalizes over the tokens that are allowed.
        """
        options = task.options
        return bool(
            any(task.prefixes)
            or options.suppress_tokens
            or options.min_length > 0
            or options.no_repeat_ngram_size
        )

    def _rescore(self, task: Task, results: dict[int, Result]) -> None:
        """Rank hypotheses by the model's own log-probabilities, from a teacher-forced pass."""
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
    """Return how many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1
