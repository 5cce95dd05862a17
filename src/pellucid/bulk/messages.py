"""Files as a stream of messages to workers: parts that are not done, and where a file ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pellucid.bulk.job import Input, Job, changed
from pellucid.bulk.parts import Part, read_parts
from pellucid.bulk.worker import Worker
from pellucid.errors import PellucidError

Answer = dict[str, Any]
"""What comes back for a message: a part's record; {"file", "end": how many parts it has}; or
{"file", "trouble": why it cannot be read, "code": exit code}; or {"stop": why nobody can go on}."""


@dataclass(frozen=True)
class Note:
    """Something to know about a file, on its way to whoever asked for the job."""

    answer: Answer


def messages(job: Job, wanted: Input) -> Iterator[Part | Note]:
    """The parts of a file that are still to do, and last how many there are in all.

    It depends on nothing but its arguments and the file, so that Ray may read a file again when
    a machine is lost.
    """
    count = 0
    try:
        for part in read_parts(
            wanted.place, wanted.name, job.options.column, job.options.part_rows
        ):
            count += 1
            known = wanted.done.get(part.number)
            if known is None:
                yield part
            elif known != part.digest:
                raise changed(wanted.place, job.output)
        if any(number >= count for number in wanted.done):
            raise changed(wanted.place, job.output)
    except PellucidError as error:
        yield Note({"file": wanted.name, "trouble": str(error), "code": error.exit_code})
        return
    yield Note({"file": wanted.name, "end": count})


def answer(worker: Worker, message: Part | Note) -> Answer:
    """What a worker says to a message."""
    if isinstance(message, Note):
        return message.answer
    try:
        return worker.work(message)
    except PellucidError as error:
        return {"stop": str(error), "code": error.exit_code}
