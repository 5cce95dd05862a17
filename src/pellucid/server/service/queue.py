"""From the event loop to the threads that translate, and back.

Short texts that arrive while all threads are busy are taken together by the next free one: one
call, one pass through the tokenizer, one answer to the event loop. Long texts and whatever else
takes time have threads of their own, so that they keep nobody waiting.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, ParamSpec, TypeVar

from pellucid.errors import PellucidError
from pellucid.server.service.batching import DeadlineError, OverloadedError, Patience, patient
from pellucid.translator import Translation, Translator
from pellucid.translator.directions import Direction

SHORT = 1000
"""Characters up to which texts are taken together with those of others."""
TOGETHER = 64
"""Texts that are taken together."""
LONG = 16
"""Threads for long texts and whatever else takes time."""

P = ParamSpec("P")
T = TypeVar("T")


class Asking(NamedTuple):
    """How to translate; texts that are asked for in one way can go together."""

    translator: Translator
    way: Direction
    beam_size: int = 4
    n_best: int = 1
    prefix: str | None = None
    details: bool = False

    def translated(self, texts: Sequence[str]) -> list[Translation]:
        """The translations of texts."""
        more: dict[str, Any] = {}
        if self.details:
            more = {"attention": True, "token_log_probabilities": True}
        return self.translator.translate(
            texts, *self.way, self.beam_size, self.n_best, self.prefix, **more
        )


@dataclass
class _Job:
    asking: Asking
    texts: Sequence[str]
    patience: Patience
    answer: asyncio.Future[list[Translation]]


class _Together(Patience):
    """Waits as long as any of several does."""

    def __init__(self, each: Sequence[Patience]) -> None:
        super().__init__()
        self._each = each

    def check(self) -> None:
        """Raise if it is over for all."""
        for patience in self._each:
            try:
                patience.check()
            except PellucidError:
                continue
            return
        self._each[0].check()


class Lane:
    """Threads for one sort of work. most: how much of it is taken on at a time."""

    def __init__(self, name: str, threads: int, most: int) -> None:
        self._name, self._most, self._pending = name, most, 0
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def run(
        self, patience: Patience, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """What a call returns, made by one of the threads."""
        if self._pending >= self._most:
            raise OverloadedError(f"too much is waiting ({self._name}): try again shortly")

        def done() -> T:
            with patient(patience):
                patience.check()
                return call(*args, **kwargs)

        self._pending += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, done)
        future.add_done_callback(self._ended)
        return await within(patience, future)

    def close(self) -> None:
        """Take on nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ended(self, future: asyncio.Future[Any]) -> None:
        self._pending -= 1
        if not future.cancelled():
            future.exception()  # seen, also where nobody waits any more


class Work:
    """The threads. threads: for short texts. waiting: texts that may wait. looks: that may wait."""

    def __init__(self, threads: int, *, waiting: int = 4096, looks: int = 8) -> None:
        self._threads, self._most = threads, waiting
        self._short = ThreadPoolExecutor(threads, thread_name_prefix="short")
        self.long = Lane("long texts", LONG, 4 * LONG)
        self.looks = Lane("looks", 2, looks)
        self._jobs: deque[_Job] = deque()
        self._texts = 0
        self._busy = 0

    async def translate(
        self, asking: Asking, texts: Sequence[str], patience: Patience
    ) -> list[Translation]:
        """One translation for each text, within the time that there is."""
        if sum(map(len, texts)) > SHORT or len(texts) > TOGETHER or asking.details:
            return await self.long.run(patience, asking.translated, texts)
        if self._texts and self._texts + len(texts) > self._most:
            raise OverloadedError("too much is waiting to be translated: try again shortly")
        job = _Job(asking, texts, patience, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        self._texts += len(texts)
        self._start()
        try:
            return await within(patience, job.answer)
        finally:
            if job in self._jobs:  # given up before anybody took it
                self._jobs.remove(job)
                self._texts -= len(texts)

    def close(self) -> None:
        """Take on nothing more."""
        self._short.shutdown(wait=False, cancel_futures=True)
        self.long.close()
        self.looks.close()

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        while self._jobs and self._busy < self._threads:
            jobs = self._taken()
            self._busy += 1
            running = loop.run_in_executor(self._short, _answered, jobs)
            running.add_done_callback(partial(self._finished, jobs))

    def _taken(self) -> list[_Job]:
        """The first job, and those of its kind, up to a number of texts."""
        first, others = self._jobs[0].asking, []
        jobs: list[_Job] = []
        texts = 0
        while self._jobs and texts < TOGETHER:
            job = self._jobs.popleft()
            if job.asking == first:
                jobs.append(job)
                texts += len(job.texts)
            else:
                others.append(job)
        self._jobs.extendleft(reversed(others))
        self._texts -= texts
        return jobs

    def _finished(self, jobs: Sequence[_Job], ran: asyncio.Future[list[Any]]) -> None:
        self._busy -= 1
        for job, made in zip(jobs, ran.result(), strict=True):
            if job.answer.done():
                continue  # nobody waits for it
            if isinstance(made, BaseException):
                job.answer.set_exception(made)
            else:
                job.answer.set_result(made)
        self._start()


def _answered(jobs: Sequence[_Job]) -> list[list[Translation] | Exception]:
    """What became of each job; if they fail together, each is tried alone."""
    texts = [text for job in jobs for text in job.texts]
    try:
        with patient(_Together([job.patience for job in jobs])):
            rest = iter(jobs[0].asking.translated(texts))
        return [[next(rest) for _ in job.texts] for job in jobs]
    except Exception as error:
        if len(jobs) == 1:
            return [error]
        return [_answered([job])[0] for job in jobs]


async def within(patience: Patience, future: asyncio.Future[T]) -> T:
    """What a future brings, as long as there is patience."""
    until = None if math.isinf(patience.until) else patience.until
    try:
        async with asyncio.timeout_at(until):
            return await asyncio.shield(future)
    except TimeoutError:
        patience.abandoned = True
        raise DeadlineError("the translation took too long: send less text at once") from None
