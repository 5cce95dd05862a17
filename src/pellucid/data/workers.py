"""A process pool that returns results in the order of the work.

Processes are spawned, not forked: forking a process that runs threads (PyTorch does) can hang.
Unlike plain `multiprocessing`, it works from a script without `if __name__ == "__main__"` and from
standard input, and the workers end when their parent does, even if it is killed.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Self, TypeVar

from pellucid.errors import PellucidError

Item = TypeVar("Item")
Result = TypeVar("Result")

_MIN_ITEMS = 8  # fewer items are not worth starting processes for
_AHEAD = 3  # items running or queued for each worker


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers:
    """Worker processes, started when first needed; a context manager that ends them.

    With `count` 1, or few items, the work is done in this process.
    """

    def __init__(self, count: int | None = None) -> None:
        self.count = available_cores() if count is None else max(1, count)
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=kind is None, cancel_futures=True)

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield `function(item)` for each item, in order; few items are in memory at a time."""
        remaining = iter(items)
        first = list(itertools.islice(remaining, _MIN_ITEMS))
        remaining = itertools.chain(first, remaining)
        if self.count == 1 or (self._pool is None and len(first) < _MIN_ITEMS):
            yield from map(function, remaining)
            return
        waiting: deque[Future[Result]] = deque()
        try:
            for item in remaining:
                waiting.append(self._submit(function, item))
                if len(waiting) > _AHEAD * self.count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool:
            raise PellucidError(
                "a worker process died while preparing the data, perhaps for lack of memory: try "
                "fewer workers"
            ) from None
        finally:
            for future in waiting:
                future.cancel()

    def _submit(self, function: Callable[[Item], Result], item: Item) -> Future[Result]:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.count, context, initializer=_initialize)
        with _without_main():  # a submission may start a process
            return self._pool.submit(function, item)


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Keep spawned processes from importing the user's script: they need nothing from it."""
    main = sys.modules.get("__main__")
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        if main is not None:
            sys.modules["__main__"] = main


def _initialize() -> None:
    """Initialize a worker: leave Ctrl-C to the parent, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def end_with_parent() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
