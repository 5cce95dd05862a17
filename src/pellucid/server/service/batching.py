"""Sentences of many requests, decoded together.

`BatchingEngine` is an engine around an engine: any number of threads ask it at the same time, and
it answers each as if it were alone. While the workers are busy, what arrives waits, and the next
free worker takes as much as fits into a batch: one sentence of each request in turn, so a long
document does not keep a short sentence waiting. Nothing is delayed while a worker is idle, but for
a few milliseconds in which others may join.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple

from pellucid.decoding.engine import Engine, SpecialIds
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.steps import Result
from pellucid.errors import PellucidError

BATCH_TOKENS = 1024
"""Source tokens times beams of a batch: beyond this, more at once is hardly faster."""


class OverloadedError(PellucidError):
    """More is waiting than will be done in time: come back later."""


class DeadlineError(PellucidError):
    """The answer was not there in time."""


class AbandonedError(PellucidError):
    """Nobody waits for the answer any more."""


@dataclass
class Patience:
    """How long a request waits, and whether anybody still does."""

    until: float = float("inf")
    """By time.monotonic()."""
    abandoned: bool = False

    def check(self) -> None:
        """Raise if it is over."""
        if self.abandoned:
            raise AbandonedError("the client has gone")
        if time.monotonic() > self.until:
            raise DeadlineError("the translation took too long: send less text at once")


_patience: ContextVar[Patience] = ContextVar("patience")


@contextmanager
def patient(patience: Patience) -> Iterator[None]:
    """What is asked inside waits as long as this says."""
    token = _patience.set(patience)
    try:
        yield
    finally:
        _patience.reset(token)


class Kind(NamedTuple):
    """Sentences of one kind can be decoded together."""

    options: DecodingOptions
    forced: bool


@dataclass
class Request:
    """What one caller asked for and has not got yet."""

    kind: Kind
    sources: Sequence[Sequence[int]]
    prefixes: Sequence[Sequence[int]] | None
    patience: Patience
    waiting: deque[int]
    results: dict[int, Result] = field(default_factory=dict)
    error: BaseException | None = None
    done: threading.Event = field(default_factory=threading.Event)


class DecodingBatch(NamedTuple):
    """Sentences that one worker decodes together: which request each is of, and which one."""

    kind: Kind
    places: list[tuple[Request, int]]


class BatchingEngine:
    """An engine for many threads at once.

    workers: batches decoded side by side. wait: seconds in which others may join a batch that is
    not full. most: sentences that may wait; beyond that, a request is refused at once.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        workers: int = 1,
        batch_tokens: int = BATCH_TOKENS,
        wait: float = 0.002,
        most: int = 4096,
    ) -> None:
        self.engine = engine
        self.workers, self.batch_tokens, self.wait, self.most = workers, batch_tokens, wait, most
        self.seen: Callable[[int], None] | None = None
        """Told of each batch how many sentences it has."""
        self._requests: deque[Request] = deque()
        self._changed = threading.Condition()
        self._waiting = 0
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"decoding-{number}", daemon=True)
            for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def special(self) -> SpecialIds:
        """The ids with a meaning of their own."""
        return self.engine.special

    @property
    def waiting(self) -> int:
        """Sentences that no worker has taken yet."""
        return self._waiting

    def translate_ids(
        self,
        sources: Sequence[Sequence[int]],
        options: DecodingOptions,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[Result]:
        """One result for each source, in order; see `Engine`."""
        if not sources or options.sample:  # draws depend on the place in a batch
            return self.engine.translate_ids(sources, options, prefixes)
        patience = _patience.get(Patience())
        kind = Kind(options, prefixes is not None and any(prefixes))
        request = Request(kind, sources, prefixes, patience, deque(range(len(sources))))
        with self._changed:
            if self._closed:
                raise OverloadedError("the server is stopping")
            if self._waiting and self._waiting + len(sources) > self.most:
                raise OverloadedError("too much is waiting to be translated: try again shortly")
            self._requests.append(request)
            self._waiting += len(sources)
            self._changed.notify()
        while not request.done.wait(timeout=0.1):
            try:
                patience.check()
            except PellucidError:
                self._drop(request)
                raise
        if request.error is not None:
            raise request.error
        return [request.results[number] for number in range(len(sources))]

    def next_tokens(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        count: int,
    ) -> list[list[tuple[int, float]]]:
        """The `count` most probable tokens after each prefix; not batched with others."""
        return self.engine.next_tokens(sources, prefixes, count)

    def close(self) -> None:
        """Finish what is waiting, then end the workers."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _drop(self, request: Request) -> None:
        with self._changed:
            self._waiting -= len(request.waiting)
            request.waiting.clear()
            if request in self._requests:
                self._requests.remove(request)

    def _work(self) -> None:
        while (batch := self._next()) is not None:
            self._decode(batch)

    def _next(self) -> DecodingBatch | None:
        """The next batch; None when there will be no more."""
        with self._changed:
            while True:
                while not self._requests:
                    if self._closed:
                        return None
                    self._changed.wait()
                if self.wait and self._waiting < 8 and not self._closed:
                    self._changed.wait(self.wait)  # whoever comes now goes along
                if self._requests:  # another worker may have been faster
                    return self._taken()

    def _taken(self) -> DecodingBatch:
        """One sentence of each request in turn, of one kind, until the batch is full."""
        kind = self._requests[0].kind
        rows = kind.options.n_best if kind.options.sample else kind.options.beam_size
        budget, places = self.batch_tokens, []
        others: list[Request] = []
        while self._requests and budget > 0:
            request = self._requests.popleft()
            if request.kind != kind:
                others.append(request)
                continue
            number = request.waiting.popleft()
            places.append((request, number))
            budget -= rows * len(request.sources[number])
            if request.waiting:
                self._requests.append(request)
        self._requests.extendleft(reversed(others))
        self._waiting -= len(places)
        if self._requests:
            self._changed.notify()
        return DecodingBatch(kind, places)

    def _decode(self, batch: DecodingBatch) -> None:
        """Decode a batch; if it fails, each of its sentences alone, so that one harms no other."""
        try:
            self._answer(batch)
        except Exception as error:
            if len(batch.places) > 1:
                for place in batch.places:
                    self._decode(DecodingBatch(batch.kind, [place]))
            else:
                for request, _ in batch.places:
                    request.error = error
                    self._drop(request)
                    request.done.set()

    def _answer(self, batch: DecodingBatch) -> None:
        places = [place for place in batch.places if place[0].error is None]
        if not places:
            return
        prefixes = None
        if batch.kind.forced:
            prefixes = [list(r.prefixes[number]) if r.prefixes else [] for r, number in places]
        if self.seen is not None:
            self.seen(len(places))
        sources = [request.sources[number] for request, number in places]
        results = self.engine.translate_ids(sources, batch.kind.options, prefixes)
        for (request, number), result in zip(places, results, strict=True):
            with self._changed:
                request.results[number] = result
                if len(request.results) == len(request.sources):
                    request.done.set()
