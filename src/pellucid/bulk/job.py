"""A job: what is to be done, what is done already, and how parts become files again.

The output folder has a file for each input file, and

    _failures/NAME.jsonl           rows that could not be translated, and why
    _pellucid/manifest.json        the model and the options of the job
    _pellucid/files/NAME.json      a finished file: its input's size, time and digest, and counts
    _pellucid/parts/NAME/N-DIGEST.json, .part, .failed
                                   a finished part, until its file is finished

A part is finished when its .json is there, which is written last; the same for a file. What is
finished is never done again.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pellucid
from pellucid.bulk.parts import PART_ROWS, kind_of, read_parts
from pellucid.bulk.places import Location
from pellucid.errors import InputError, PellucidError

FORMAT = 1
_OWN = "_pellucid"
_GROUP_ROWS = 1 << 17  # of a Parquet file


@dataclass(frozen=True)
class Options:
    """What decides how the output reads."""

    model: str
    """The bundle's fingerprint."""
    source: str
    target: str
    beam_size: int = 4
    engine: str = "auto"
    column: str = "text"
    into: str | None = None
    part_rows: int = PART_ROWS


@dataclass(frozen=True)
class Input:
    """A file to translate."""

    name: str
    place: Location
    done: dict[int, str]
    """The digests of its finished parts, by their numbers."""


@dataclass(frozen=True)
class Job:
    """Where the output goes, and the options."""

    output: Location
    options: Options
    version: str = pellucid.__version__

    def _own(self, *names: str) -> Location:
        return self.output.child(posixpath.join(_OWN, *names))

    def parts_of(self, file: str) -> Location:
        """The folder of a file's finished parts."""
        return self._own("parts", file)

    def record_of(self, file: str) -> Location:
        """What is said of a finished file."""
        return self._own("files", f"{file}.json")

    def begin(self) -> bool:
        """Write the manifest, or compare it with the one that is there; whether there was one."""
        place = self._own("manifest.json")
        mine = {"format": FORMAT, **asdict(self.options)}
        if not place.exists():
            place.write(json.dumps(mine, indent=1).encode())
            return False
        try:
            theirs = dict(json.loads(place.read()))
        except ValueError:
            raise PellucidError(f"{place} is damaged: name another --output") from None
        for key, value in mine.items():
            if theirs.get(key) != value:
                raise InputError(
                    f"{self.output} was begun with another {key} ({theirs.get(key)}, now {value}): "
                    "give the same, or name another --output"
                )
        return True

    def check_seen(self) -> None:
        """Raise an error where the output folder is not the one that the job was begun in."""
        if not self._own("manifest.json").exists():
            raise PellucidError(
                f"a worker does not see {self.output}: name a folder that all machines share"
            )

    def finished(self, file: str) -> dict[str, Any] | None:
        """The record of a file that is finished."""
        place = self.record_of(file)
        return dict(json.loads(place.read())) if place.exists() else None

    def check_new(self, name: str, place: Location) -> Input:
        """A file that is still to do, with what is done of it.

        A file of somebody else in the place of the output is an error.
        """
        done = {}
        for entry in self.parts_of(name).names():
            number, _, digest = entry.removesuffix(".json").partition("-")
            if entry.endswith(".json"):
                done[int(number)] = digest
        if not done and self.output.child(name).exists():
            raise InputError(
                f"{self.output.child(name)} is there already, and not of this job: "
                "name another --output"
            )
        return Input(name, place, done)

    def check_unchanged(self, record: dict[str, Any], name: str, place: Location) -> None:
        """Raise an error where the input of a finished file is another one by now."""
        info = place.info()
        if info.size == record["size"] and info.mtime_ns == record["time"]:
            return
        options = self.options
        parts = read_parts(place, name, options.column, options.part_rows)
        same = info.size == record["size"] and record["digest"] == whole_digest(
            part.digest for part in parts
        )
        if not same:
            raise changed(place, self.output)

    def close(self) -> None:
        """Clear away what is of use only while there are unfinished files."""
        self._own("parts").remove()


def whole_digest(digests: Iterator[str]) -> str:
    """Stands for a file with parts of these digests."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:24]


def changed(place: Location, output: Location) -> InputError:
    """What is said of an input that is not what it was."""
    return InputError(
        f"{place} has changed since {output} was begun: name another --output for what it is now"
    )


def assemble(job: Job, file: str, place: Location) -> dict[str, Any]:
    """Put the parts of a file together, in order; what is recorded of it."""
    folder = job.parts_of(file)
    names = sorted(n.removesuffix(".json") for n in folder.names() if n.endswith(".json"))
    records = [json.loads(folder.child(f"{name}.json").read()) for name in names]
    if [record["number"] for record in records] != list(range(len(names))) or not names:
        raise PellucidError(f"{folder} lacks a part: do all machines see the same folder?")

    def concatenated(ending: str, chosen: list[str]) -> Any:
        def fill(stream: Any) -> None:
            for name in chosen:
                stream.write(folder.child(name + ending).read())

        return fill

    is_table = kind_of(file)[0] == "table"
    fill = _joined_tables(folder, names) if is_table else concatenated(".part", names)
    job.output.child(file).write(fill)
    failed = [n for n, record in zip(names, records, strict=True) if record["failures"]]
    if failed:
        job.output.child(f"_failures/{file}.jsonl").write(concatenated(".failed", failed))
    info = place.info()
    counts = total(records)
    record = {
        "size": info.size,
        "time": info.mtime_ns,
        "digest": whole_digest(name.partition("-")[2] for name in names),
        **counts,
    }
    job.record_of(file).write(json.dumps(record).encode())
    folder.remove()
    return record


def _joined_tables(folder: Location, names: list[str]) -> Any:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    def fill(stream: Any) -> None:
        writer, waiting = None, []
        for name in names:
            file = pq.ParquetFile(pa.BufferReader(folder.child(f"{name}.part").read()))
            table = file.read()
            if writer is None:
                groups = file.metadata.num_row_groups
                codec = file.metadata.row_group(0).column(0).compression if groups else "SNAPPY"
                codec = {"UNCOMPRESSED": "NONE"}.get(codec, codec)
                writer = pq.ParquetWriter(stream, table.schema, compression=codec)
            waiting.append(table)
            if sum(t.num_rows for t in waiting) >= _GROUP_ROWS or name == names[-1]:
                writer.write_table(pa.concat_tables(waiting))
                waiting = []
        assert writer is not None
        writer.close()

    return fill


COUNTS = ("rows", "source_tokens", "tokens", "split", "rescued", "cut", "invalid", "again")
TIMES = ("seconds", "processor_seconds")  # of workers


def total(records: list[dict[str, Any]]) -> dict[str, Any]:
    """The sums of what is recorded of parts or of files."""
    failures: Counter[str] = Counter()
    for record in records:
        failures.update(record["failures"])
    sums = {name: sum(record[name] for record in records) for name in COUNTS}
    times = {name: round(sum(record[name] for record in records), 3) for name in TIMES}
    return {**sums, **times, "failures": dict(sorted(failures.items()))}
