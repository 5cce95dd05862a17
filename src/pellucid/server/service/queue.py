"""The queue of sentences in front of a model: dynamic batching over all requests.

`BatchingEngine` is an engine around an engine: any number of threads call it at the same time, and
each gets the results that it would get alone. While the workers are busy, sentences wait; the next
free worker takes as many as fit into a batch, one of each request in turn, so that a long document
does not starve a short text. An idle worker starts after a few milliseconds, in which others may
join.

There is no second queue in front of it that groups short texts: with one, the texts of a group wait
for each other, and 32 clients got about two thirds of the throughput.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pellucid.decoding.engine import Engine, SpecialIds
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.steps import Result
from pellucid.errors import PellucidError

if TYPE_CHECKING:
    from pellucid.model import Transformer

BATCH_TOKENS = 1024
"""Size of a batch in source tokens times beam size; larger ones are hardly faster."""

ALONE_BELOW = 8
"""Number of queued sentences below which a worker waits a moment for more."""


class OverloadedError(PellucidError):
    """The queue is full: try again later."""


class DeadlineError(PellucidError):
    """The deadline has passed."""


class AbandonedError(PellucidError):
    """The client has gone."""


@dataclass
class Deadline:
    """When a request has to be answered, and whether its client is still there."""

    until: float = float("inf")
    """Time by time.monotonic()."""
    abandoned: bool = False

    def check(self) -> None:
        """Raise if the time is over or the client has gone."""
        if self.abandoned:
            raise AbandonedError("the client has closed the connection")
        if time.monotonic() > self.until:
            raise DeadlineError("the translation took too long: send less text at once")


_current: ContextVar[Deadline] = ContextVar("deadline")


@contextmanager
def applied(deadline: Deadline) -> Iterator[None]:
    """Apply a deadline to every call of an engine inside the block."""
    token = _current.set(deadline)
    try:
        yield
    finally:
        _current.reset(token)


class BatchKey(NamedTuple):
    """What sentences must have in common to be decoded in one batch."""

    options: DecodingOptions
    with_prefixes: bool


@dataclass
class QueuedRequest:
    """The sentences of one call: those still queued, and the results so far."""

    key: BatchKey
    sources: Sequence[Sequence[int]]
    prefixes: Sequence[Sequence[int]] | None
    queued: deque[int]
    results: dict[int, Result] = field(default_factory=dict)
    error: BaseException | None = None
    done: threading.Event = field(default_factory=threading.Event)


class DecodingBatch(NamedTuple):
    """Sentences that are decoded together, each as its request and its index there."""

    key: BatchKey
    items: list[tuple[QueuedRequest, int]]


class BatchingEngine:
    """An engine that batches the sentences of concurrent calls.

    workers: batches decoded in parallel. max_delay: seconds that a batch that is not full waits for
    more sentences. max_queued: maximum number of queued sentences; more are refused at once.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        workers: int = 1,
        batch_tokens: int = BATCH_TOKENS,
        max_delay: float = 0.002,
        max_queued: int = 4096,
    ) -> None:
        self.engine, self.workers, self.batch_tokens = engine, workers, batch_tokens
        self.max_delay, self.max_queued = max_delay, max_queued
        self.on_batch: Callable[[int], None] | None = None
        """Called with the number of sentences of each batch."""
        self._requests: deque[QueuedRequest] = deque()
        self._changed = threading.Condition()
        self._queued = 0
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"decoding-{number}", daemon=True)
            for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def name(self) -> str:
        """Return the name of the engine inside; see `Engine`."""
        return self.engine.name

    @property
    def device(self) -> str:
        """Return where it computes."""
        return self.engine.device

    @property
    def threads(self) -> int:
        """Return the number of batches decoded in parallel."""
        return self.workers

    @property
    def special(self) -> SpecialIds:
        """Return the ids of the special tokens."""
        return self.engine.special

    @property
    def model(self) -> Transformer | None:
        """Return the model in PyTorch, if the engine inside has it."""
        return self.engine.model

    @property
    def queued(self) -> int:
        """Return the number of sentences that no worker has taken yet."""
        return self._queued

    def translate_ids(
        self,
        sources: Sequence[Sequence[int]],
        options: DecodingOptions,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[Result]:
        """Return one result for each source, in order; see `Engine`."""
        if not sources or options.sample:  # a draw depends on the sentence's index in its batch
            return self.engine.translate_ids(sources, options, prefixes)
        deadline = _current.get(Deadline())
        key = BatchKey(options, prefixes is not None and any(prefixes))
        request = QueuedRequest(key, sources, prefixes, deque(range(len(sources))))
        with self._changed:
            if self._closed:
                raise OverloadedError("the server is stopping")
            # A request that is larger than the whole queue gets its turn when the queue is empty.
            if self._queued and self._queued + len(sources) > self.max_queued:
                raise OverloadedError("too many sentences are queued: try again shortly")
            self._requests.append(request)
            self._queued += len(sources)
            self._changed.notify()
        while not request.done.wait(timeout=0.1):
            try:
                deadline.check()
            except PellucidError:
                self._drop(request)
                raise
        if request.error is not None:
            raise request.error
        return [request.results[index] for index in range(len(sources))]

    def next_tokens(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        count: int,
    ) -> list[list[tuple[int, float]]]:
        """Return the `count` most probable tokens after each prefix; not batched with others."""
        return self.engine.next_tokens(sources, prefixes, count)

    def close(self) -> None:
        """Decode what is queued, then stop the workers."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _drop(self, request: QueuedRequest) -> None:
        """Take the rest of a request out of the queue."""
        with self._changed:
            self._queued -= len(request.queued)
            request.queued.clear()
            if request in self._requests:
                self._requests.remove(request)

    def _work(self) -> None:
        while (batch := self._next_batch()) is not None:
            self._decode(batch)

    def _next_batch(self) -> DecodingBatch | None:
        """Wait for the next batch; None once the engine is closed and the queue is empty."""
        with self._changed:
            while True:
                while not self._requests:
                    if self._closed:
                        return None
                    self._changed.wait()
                if self.max_delay and self._queued < ALONE_BELOW and not self._closed:
                    self._changed.wait(self.max_delay)
                if self._requests:  # another worker may have been faster
                    return self._take_batch()

    def _take_batch(self) -> DecodingBatch:
        """Take sentences with one key, one of each request in turn, until the batch is full."""
        key = self._requests[0].key
        rows = key.options.n_best if key.options.sample else key.options.beam_size
        budget, items = self.batch_tokens, []
        others: list[QueuedRequest] = []
        while self._requests and budget > 0:
            request = self._requests.popleft()
            if request.key != key:
                others.append(request)
                continue
            index = request.queued.popleft()
            items.append((request, index))
            budget -= rows * len(request.sources[index])
            if request.queued:
                self._requests.append(request)
        self._requests.extendleft(reversed(others))
        self._queued -= len(items)
        if self._requests:
            self._changed.notify()
        return DecodingBatch(key, items)

    def _decode(self, batch: DecodingBatch) -> None:
        """Decode a batch; if that fails, decode each sentence alone, so that only its own
        request fails."""
        try:
            self._run(batch)
        except Exception as error:
            if len(batch.items) > 1:
                for item in batch.items:
                    self._decode(DecodingBatch(batch.key, [item]))
            else:
                for request, _ in batch.items:
                    request.error = error
                    self._drop(request)
                    request.done.set()

    def _run(self, batch: DecodingBatch) -> None:
        items = [item for item in batch.items if item[0].error is None]
        if not items:
            return
        prefixes = None
        if batch.key.with_prefixes:
            prefixes = [list(r.prefixes[index]) if r.prefixes else [] for r, index in items]
        if self.on_batch is not None:
            self.on_batch(len(items))
        sources = [request.sources[index] for request, index in items]
        results = self.engine.translate_ids(sources, batch.key.options, prefixes)
        for (request, index), result in zip(items, results, strict=True):
            with self._changed:
                request.results[index] = result
                if len(request.results) == len(request.sources):
                    request.done.set()
