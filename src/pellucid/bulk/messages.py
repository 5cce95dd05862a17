"""Files as a stream of messages to workers: unfinished parts, and where a file ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pellucid.bulk.job import InputFile, Job, changed_error
from pellucid.bulk.parts import Part, read_parts
from pellucid.bulk.worker import Worker
from pellucid.errors import PellucidError

Answer = dict[str, Any]
"""The answer to a message: a part's record; {"file", "end": number of its parts}; {"file",
"trouble": why it cannot be read, "code": exit code}; or {"stop": why the job cannot continue}."""


@dataclass(frozen=True)
class FileNote:
    """An answer about a whole file, which workers pass on unchanged."""

    answer: Answer


def messages(job: Job, file: InputFile) -> Iterator[Part | FileNote]:
    """Yield the unfinished parts of a file, and last the number of all its parts.

    It depends on nothing but its arguments and the file, so that Ray may read a file again when
    a machine is lost.
    """
    count = 0
    try:
        for part in read_parts(file.location, file.name, job.options.column, job.options.part_rows):
            count += 1
            known = file.done.get(part.number)
            if known is None:
                yield part
            elif known != part.digest:
                raise changed_error(file.location, job.output)
        if any(number >= count for number in file.done):
            raise changed_error(file.location, job.output)
    except PellucidError as error:
        yield FileNote({"file": file.name, "trouble": str(error), "code": error.exit_code})
        return
    yield FileNote({"file": file.name, "end": count})


def answer(worker: Worker, message: Part | FileNote) -> Answer:
    """Let a worker answer a message."""
    if isinstance(message, FileNote):
        return message.answer
    try:
        return worker.work(message)
    except PellucidError as error:
        return {"stop": str(error), "code": error.exit_code}
