"""Thread pools between the event loop and the models.

A request needs a thread while it is split, tokenized, queued (see `queue`) and joined again. Short
texts, long texts and looking inside have a pool each, so that a few slow requests do not take all
threads. What each pool accepts is bounded.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from pellucid.server.service.queue import Deadline, DeadlineError, OverloadedError, applied

LONG_TEXT_THREADS, INSPECTION_THREADS = 16, 2
SHORT_TEXTS_PER_WORKER, MAX_SHORT_TEXT_THREADS = 64, 256
"""Threads for short texts. Most of them wait for the queue: enough must do so to fill the batches
that the workers take next (some 25 sentences each)."""

P = ParamSpec("P")
T = TypeVar("T")


class BoundedPool:
    """A thread pool that accepts a limited amount of work at a time."""

    def __init__(self, name: str, threads: int, max_pending: int) -> None:
        self._name, self._max_pending, self._pending = name, max_pending, 0
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def run(
        self, deadline: Deadline, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Return what a call returns, made by one of the threads within the deadline."""
        return await self.run_sized(1, deadline, call, *args, **kwargs)

    async def run_sized(
        self, size: int, deadline: Deadline, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a call that counts as `size` calls against the limit."""
        if self._pending and self._pending + size > self._max_pending:
            raise OverloadedError(
                f"too many requests are waiting ({self._name}): try again shortly"
            )

        def job() -> T:
            with applied(deadline):
                deadline.check()
                return call(*args, **kwargs)

        def ended(future: asyncio.Future[Any]) -> None:
            self._pending -= size
            if not future.cancelled():
                future.exception()  # retrieved, also where nobody waits for it any more

        self._pending += size
        future = asyncio.get_running_loop().run_in_executor(self._executor, job)
        future.add_done_callback(ended)
        return await _within(deadline, future)

    def close(self) -> None:
        """Accept no more calls."""
        self._executor.shutdown(wait=False, cancel_futures=True)


class ThreadPools:
    """The pools of one server.

    workers: batches that its models decode in parallel. max_queued: short texts at a time.
    max_inspections: looks inside at a time.
    """

    def __init__(self, workers: int, *, max_queued: int, max_inspections: int) -> None:
        threads = min(SHORT_TEXTS_PER_WORKER * workers, MAX_SHORT_TEXT_THREADS)
        self.short_texts = BoundedPool("short texts", threads, max_queued)
        self.long_texts = BoundedPool("long texts", LONG_TEXT_THREADS, 4 * LONG_TEXT_THREADS)
        self.inspections = BoundedPool("looking inside", INSPECTION_THREADS, max_inspections)

    def close(self) -> None:
        """Accept no more calls."""
        for pool in (self.short_texts, self.long_texts, self.inspections):
            pool.close()


async def _within(deadline: Deadline, future: asyncio.Future[T]) -> T:
    """Wait for a future until the deadline, then abandon it."""
    until = None if math.isinf(deadline.until) else deadline.until
    try:
        async with asyncio.timeout_at(until):
            return await asyncio.shield(future)
    except TimeoutError:
        deadline.abandoned = True
        raise DeadlineError("the translation took too long: send less text at once") from None
