"""A whole job: what is still to do, who does it, and what came of it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pellucid.bulk.job import Input, Job, assemble, total
from pellucid.bulk.messages import Answer, answer, messages
from pellucid.bulk.parts import kind_of
from pellucid.bulk.places import Location, find_inputs
from pellucid.bulk.worker import Worker
from pellucid.errors import InputError, PellucidError
from pellucid.translator.translator import Translator

_AT_ONCE = 16  # files that are looked at, or put together, at the same time

Assembler = Callable[[Job, str, Location], dict[str, Any]]


class News(NamedTuple):
    """How far a job is."""

    rows: int
    """Of this run."""
    files: int
    of: int


@dataclass
class Summary:
    """What came of a job."""

    files: int = 0
    here_before: int = 0
    """Files that were finished before this run."""
    counts: dict[str, Any] = field(default_factory=dict)
    """Rows, tokens, failures by kind and more, of all files."""
    rows: int = 0
    """Translated in this run."""
    tokens: int = 0
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        rate = self.rows / self.seconds if self.seconds else 0.0
        token_rate = self.tokens / self.seconds if self.seconds else 0.0
        return {
            "files": self.files,
            "files_finished_before": self.here_before,
            **self.counts,
            "this_run": {
                "rows": self.rows,
                "tokens": self.tokens,
                "seconds": round(self.seconds, 3),
                "rows_per_second": round(rate, 2),
                "tokens_per_second": round(token_rate, 2),
            },
        }


def survey(job: Job, patterns: Sequence[str]) -> tuple[list[Input], list[dict[str, Any]]]:
    """The files that are still to do, and the records of those that are done."""
    found: dict[str, Location] = {}
    for pattern in patterns:
        for name, place in find_inputs(pattern):
            kind_of(name)
            if name in found and found[name] != place:
                raise InputError(f"{found[name]} and {place} would both become {name}")
            if place == job.output.child(name):
                raise InputError(f"{place} would be overwritten: name another --output")
            found[name] = place
    again = job.begin()

    def look(pair: tuple[str, Location]) -> Input | dict[str, Any]:
        record = job.finished(pair[0]) if again else None
        if record is None:
            return job.check_new(*pair)
        job.check_unchanged(record, *pair)
        return record

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        looked = list(pool.map(look, found.items()))
    todo = [one for one in looked if isinstance(one, Input)]
    return todo, [one for one in looked if not isinstance(one, Input)]


def answers_here(job: Job, inputs: Sequence[Input], translator: Translator) -> Iterator[Answer]:
    """Translate the files in this process, one part after another."""
    worker = Worker(job, translator)
    for wanted in inputs:
        for message in messages(job, wanted):
            yield answer(worker, message)


def run(
    job: Job,
    todo: Sequence[Input],
    done: Sequence[dict[str, Any]],
    said: Iterator[Answer],
    tell: Callable[[News], None],
    put_together: Assembler = assemble,
) -> Summary:
    """Take the answers for all parts, and put each file together as soon as it is whole.

    A file that cannot be read does not keep the others from being done; it is an error at the end.
    """
    start = time.monotonic()
    places = {one.name: one.place for one in todo}
    waiting: dict[str, set[int]] = {one.name: set(one.done) for one in todo}
    ends: dict[str, int] = {}
    troubles: list[Answer] = []
    finished: list[Future[dict[str, Any]]] = []
    made: list[object] = []  # of these, those that are done
    counted: dict[str, int] = defaultdict(int)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            for one in said:
                if "stop" in one:
                    raise _error(one["stop"], one["code"])
                name = one["file"]
                if "trouble" in one:
                    troubles.append(one)
                    continue
                if "end" in one:
                    ends[name] = one["end"]
                elif one["number"] not in waiting[name]:
                    waiting[name].add(one["number"])
                    counted["rows"] += one["rows"]
                    counted["tokens"] += one["tokens"]
                if len(waiting[name]) == ends.get(name):
                    finished.append(pool.submit(put_together, job, name, places[name]))
                    finished[-1].add_done_callback(made.append)
                tell(News(counted["rows"], len(done) + len(made), len(done) + len(todo)))
            records = [*done, *(future.result() for future in finished)]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    if troubles:
        more = f" (and {len(troubles) - 1} other files)" if len(troubles) > 1 else ""
        raise _error(troubles[0]["trouble"] + more, max(one["code"] for one in troubles))
    if len(records) < len(done) + len(todo):
        raise PellucidError("some parts are missing: the same command goes on where it stopped")
    job.close()
    return Summary(
        len(records),
        len(done),
        total(records),
        counted["rows"],
        counted["tokens"],
        time.monotonic() - start,
    )


def _error(reason: str, code: int) -> PellucidError:
    return InputError(reason) if code == InputError.exit_code else PellucidError(reason)
