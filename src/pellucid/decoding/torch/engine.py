"""The reference engine: a Transformer in PyTorch and the searches over it."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace

import numpy as np

from pellucid.decoding.engine import SpecialIds
from pellucid.decoding.forced import Forced, force_decode
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.search.beam import beam_search
from pellucid.decoding.search.greedy import choose_best, token_by_token
from pellucid.decoding.search.sampling import choose_sampled
from pellucid.decoding.search.task import Task, plan
from pellucid.decoding.steps import Result, Step
from pellucid.decoding.torch.predictor import TorchPredictor
from pellucid.decoding.torch.step_decoder import StepDecoder
from pellucid.model import Transformer

DEFAULT_BATCH_TOKENS = 4096
"""Source tokens of a batch, padding included, times beams."""


def search(
    model: Transformer,
    special: SpecialIds,
    sources: Sequence[Sequence[int]],
    options: DecodingOptions,
    prefixes: Sequence[Sequence[int]] | None = None,
    *,
    keys: Sequence[int] | None = None,
    decoder: StepDecoder | None = None,
    every_step: bool = True,
) -> Generator[Step, None, list[Result]]:
    """Decode sentences as one batch: yield a Step each round, return the results.

    `run` returns the results alone. The model should be in evaluation mode. keys: identify the
    sentences in the random draws of sampling (default: their indices). decoder: the model's
    StepDecoder, if there is one already. every_step: if False, some steps are left out, which is
    faster.
    """
    task = plan_for(model, special, sources, options, prefixes, keys)
    results = {i: r for i in range(len(task.sources)) if (r := task.trivial(i)) is not None}
    sentences = np.array([i for i in range(len(task.sources)) if i not in results])
    if len(sentences):
        rows = [task.sources[i] for i in sentences]
        predictor = TorchPredictor(model, special, rows, options, decoder)
        results.update((yield from _chosen_search(task, sentences, predictor, every_step)))
        if options.attention:
            results = _with_attention(model, task, results)
    return [results[i] for i in range(len(task.sources))]


def plan_for(
    model: Transformer,
    special: SpecialIds,
    sources: Sequence[Sequence[int]],
    options: DecodingOptions,
    prefixes: Sequence[Sequence[int]] | None,
    keys: Sequence[int] | None,
) -> Task:
    """Return the checked task for a model's vocabulary and positions."""
    config = model.config
    return plan(
        sources,
        options,
        special,
        vocab_size=config.vocab_size,
        source_vocab_size=config.source_vocab_size,
        prefixes=prefixes,
        keys=keys,
        longest=config.max_length if config.position_encoding == "learned" else None,
    )


def _chosen_search(
    task: Task, sentences: np.ndarray, predictor: TorchPredictor, every_step: bool
) -> Generator[Step, None, dict[int, Result]]:
    """Return the search that the options ask for."""
    options = task.options
    if options.sample:
        return token_by_token(
            task, sentences, predictor, choose_sampled, options.n_best, every_step=every_step
        )
    if options.beam_size == 1:
        return token_by_token(task, sentences, predictor, choose_best, every_step=every_step)
    return beam_search(task, sentences, predictor)


def _with_attention(
    model: Transformer, task: Task, results: dict[int, Result]
) -> dict[int, Result]:
    """Return the results with each hypothesis's cross-attention, from one teacher-forced pass."""
    options = task.options
    flat = [(s, h) for s, result in results.items() for h in result.hypotheses if h.length]
    read = force_decode(
        model,
        task.special,
        [task.sources[s] for s, _ in flat],
        [h.tokens for _, h in flat],
        layer=options.attention_layer,
        head=options.attention_head,
        attention=True,
    )
    weights = iter(forced.attention for forced in read)
    found = {}
    for s, result in results.items():
        seen = [
            replace(h, attention=cut(next(weights), h.length)) if h.length else h
            for h in result.hypotheses
        ]
        found[s] = replace(result, hypotheses=tuple(seen))
    return found


def cut(attention: np.ndarray | None, length: int) -> np.ndarray | None:
    """Return the first `length` rows, without the position after a hypothesis that was cut."""
    return None if attention is None else attention[:length]


def run(
    model: Transformer,
    special: SpecialIds,
    sources: Sequence[Sequence[int]],
    options: DecodingOptions,
    prefixes: Sequence[Sequence[int]] | None = None,
    *,
    keys: Sequence[int] | None = None,
    decoder: StepDecoder | None = None,
) -> list[Result]:
    """Return the results of `search` without its steps."""
    steps = search(
        model, special, sources, options, prefixes, keys=keys, decoder=decoder, every_step=False
    )
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


class TorchEngine:
    """Translates token ids with a Transformer, in batches of sentences of similar length.

    Several threads may share one engine: decoding changes nothing in the model. The engine holds
    copies of the decoder's matrices, so make a new one after changing the weights. batch_tokens:
    most source tokens of a batch, padding included, times beams; more is faster up to a point and
    takes more memory.
    """

    name = "torch"
    threads = 1
    """One batch at a time: PyTorch itself spreads it over the cores."""

    def __init__(
        self,
        model: Transformer,
        special: SpecialIds,
        *,
        batch_tokens: int = DEFAULT_BATCH_TOKENS,
    ) -> None:
        self.model = model.eval()
        self.special = special
        self.batch_tokens = batch_tokens
        self._decoder = StepDecoder(self.model)

    @property
    def device(self) -> str:
        """Where it computes; see `Engine`."""
        return self.model.output.weight.device.type

    def translate_ids(
        self,
        sources: Sequence[Sequence[int]],
        options: DecodingOptions,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[Result]:
        """Return one result for each source, in order; see `Engine`."""
        plan_for(self.model, self.special, sources, options, prefixes, None)  # all or nothing
        results: dict[int, Result] = {}
        rows = options.n_best if options.sample else options.beam_size
        for batch in batches([len(s) for s in sources], self.batch_tokens // rows):
            found = run(
                self.model,
                self.special,
                [sources[i] for i in batch],
                options,
                None if prefixes is None else [prefixes[i] for i in batch],
                keys=batch,
                decoder=self._decoder,
            )
            results.update(zip(batch, found, strict=True))
        return [results[i] for i in range(len(sources))]

    def steps(
        self,
        sources: Sequence[Sequence[int]],
        options: DecodingOptions,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> Generator[Step, None, list[Result]]:
        """Decode these sentences as one batch: yield each Step, return the results."""
        return search(self.model, self.special, sources, options, prefixes, decoder=self._decoder)

    def score_ids(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[Forced]:
        """Return the log-probability of each token of given outputs (teacher forcing)."""
        found: dict[int, Forced] = {}
        lengths = [max(len(s), len(t) + 1) for s, t in zip(sources, targets, strict=True)]
        for batch in batches(lengths, self.batch_tokens):
            read = force_decode(
                self.model,
                self.special,
                [sources[i] for i in batch],
                [targets[i] for i in batch],
            )
            found.update(zip(batch, read, strict=True))
        return [found[i] for i in range(len(sources))]

    def next_tokens(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        count: int,
    ) -> list[list[tuple[int, float]]]:
        """Return the `count` most probable tokens after each prefix and their log-probabilities."""
        found = []
        for source, prefix in zip(sources, prefixes, strict=True):
            options = DecodingOptions(
                beam_size=1, record_candidates=count, max_length=len(prefix) + 1
            )
            options = options.changed(max_length_extra=len(prefix) + 1)
            last = deque(self.steps([source], options, [prefix]), maxlen=1)[0]
            found.append([(c.token, c.log_probability) for c in last.candidates(0)[:count]])
        return found


def batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield batches of indices of at most `budget` tokens, padding included, longest first.

    A sentence that is longer than the budget is a batch by itself.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    at = 0
    while at < len(order):
        count = max(1, budget // max(1, lengths[order[at]]))
        yield order[at : at + count]
        at += count
