"""Run a job: find the unfinished files, translate their parts, assemble them, sum up."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pellucid.bulk.job import InputFile, Job, assemble, total
from pellucid.bulk.locations import Location, find_inputs
from pellucid.bulk.messages import Answer, answer, messages
from pellucid.bulk.parts import kind_of
from pellucid.bulk.worker import Worker
from pellucid.errors import InputError, PellucidError
from pellucid.translator.translator import Translator

_THREADS = 16  # files that are checked, or assembled, at the same time

Assembler = Callable[[Job, str, Location], dict[str, Any]]


class JobProgress(NamedTuple):
    """Progress of a job."""

    rows: int
    """Translated in this run."""
    files: int
    """Finished, in this run or before."""
    of: int
    """All files."""


@dataclass
class Summary:
    """Totals of a job."""

    files: int = 0
    finished_before: int = 0
    """Files that were finished before this run."""
    counts: dict[str, Any] = field(default_factory=dict)
    """Rows, tokens, failures by kind and more, over all files."""
    rows: int = 0
    """Translated in this run."""
    tokens: int = 0
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        rate = self.rows / self.seconds if self.seconds else 0.0
        token_rate = self.tokens / self.seconds if self.seconds else 0.0
        return {
            "files": self.files,
            "files_finished_before": self.finished_before,
            **self.counts,
            "this_run": {
                "rows": self.rows,
                "tokens": self.tokens,
                "seconds": round(self.seconds, 3),
                "rows_per_second": round(rate, 2),
                "tokens_per_second": round(token_rate, 2),
            },
        }


def survey(job: Job, patterns: Sequence[str]) -> tuple[list[InputFile], list[dict[str, Any]]]:
    """Return the unfinished files, and the records of the finished ones."""
    found: dict[str, Location] = {}
    for pattern in patterns:
        for name, location in find_inputs(pattern):
            kind_of(name)
            if name in found and found[name] != location:
                raise InputError(f"{found[name]} and {location} would both become {name}")
            if location == job.output.child(name):
                raise InputError(f"{location} would be overwritten: name another --output")
            found[name] = location
    resumed = job.begin()

    def check(pair: tuple[str, Location]) -> InputFile | dict[str, Any]:
        record = job.finished(pair[0]) if resumed else None
        if record is None:
            return job.check_new(*pair)
        job.check_unchanged(record, *pair)
        return record

    with ThreadPoolExecutor(_THREADS) as pool:
        checked = list(pool.map(check, found.items()))
    todo = [one for one in checked if isinstance(one, InputFile)]
    return todo, [one for one in checked if not isinstance(one, InputFile)]


def answers_locally(
    job: Job, inputs: Sequence[InputFile], translator: Translator
) -> Iterator[Answer]:
    """Translate the files in this process, one part after another."""
    worker = Worker(job, translator)
    for file in inputs:
        for message in messages(job, file):
            yield answer(worker, message)


def run_job(
    job: Job,
    todo: Sequence[InputFile],
    done: Sequence[dict[str, Any]],
    answers: Iterator[Answer],
    report_progress: Callable[[JobProgress], None],
    assembler: Assembler = assemble,
) -> Summary:
    """Collect the answers for all parts, and assemble each file as soon as it is complete.

    A file that cannot be read does not stop the others; it is an error at the end.
    """
    start = time.monotonic()
    locations = {one.name: one.location for one in todo}
    arrived: dict[str, set[int]] = {one.name: set(one.done) for one in todo}
    ends: dict[str, int] = {}
    unreadable: list[Answer] = []
    assembling: list[Future[dict[str, Any]]] = []
    assembled: list[object] = []  # of these, those that are done
    counted: dict[str, int] = defaultdict(int)
    with ThreadPoolExecutor(_THREADS) as pool:
        try:
            for one in answers:
                if "stop" in one:
                    raise _error(one["stop"], one["code"])
                name = one["file"]
                if "trouble" in one:
                    unreadable.append(one)
                    continue
                if "end" in one:
                    ends[name] = one["end"]
                elif one["number"] not in arrived[name]:  # Ray may have a part done twice
                    arrived[name].add(one["number"])
                    counted["rows"] += one["rows"]
                    counted["tokens"] += one["tokens"]
                if len(arrived[name]) == ends.get(name):
                    assembling.append(pool.submit(assembler, job, name, locations[name]))
                    assembling[-1].add_done_callback(assembled.append)
                finished = len(done) + len(assembled)
                report_progress(JobProgress(counted["rows"], finished, len(done) + len(todo)))
            records = [*done, *(future.result() for future in assembling)]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    if unreadable:
        more = f" (and {len(unreadable) - 1} other files)" if len(unreadable) > 1 else ""
        raise _error(unreadable[0]["trouble"] + more, max(one["code"] for one in unreadable))
    if len(records) < len(done) + len(todo):
        raise PellucidError("some parts are missing: the same command resumes where it stopped")
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
