"""A job: its options, the records of what is finished, and how parts become files again.

The output folder has a file for each input file, and

    _failures/NAME.jsonl           rows that could not be translated, and why
    _pellucid/manifest.json        the model and the options of the job
    _pellucid/files/NAME.json      a finished file: its input's size, time and digest, and counts
    _pellucid/parts/NAME/N-DIGEST.json, .part, .failed
                                   a finished part, until its file is finished

A part is finished when its .json exists, which is written last; the same for a file. What is
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
from pellucid.bulk.locations import Location
from pellucid.bulk.parts import PART_ROWS, kind_of, read_parts
from pellucid.errors import InputError, PellucidError

FORMAT = 1
_OWN = "_pellucid"
_ROW_GROUP_ROWS = 1 << 17  # of a Parquet file


@dataclass(frozen=True)
class JobOptions:
    """The options that determine the output."""

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
class InputFile:
    """A file to translate."""

    name: str
    location: Location
    done: dict[int, str]
    """Digests of its finished parts, by number."""


@dataclass(frozen=True)
class Job:
    """The output folder and the options."""

    output: Location
    options: JobOptions
    version: str = pellucid.__version__

    def _own(self, *names: str) -> Location:
        return self.output.child(posixpath.join(_OWN, *names))

    def parts_of(self, file: str) -> Location:
        """Return the folder of a file's finished parts."""
        return self._own("parts", file)

    def record_of(self, file: str) -> Location:
        """Return the location of a finished file's record."""
        return self._own("files", f"{file}.json")

    def begin(self) -> bool:
        """Write the manifest, or compare it with the existing one; return whether there was one."""
        location = self._own("manifest.json")
        manifest = {"format": FORMAT, **asdict(self.options)}
        if not location.exists():
            location.write(json.dumps(manifest, indent=1).encode())
            return False
        try:
            existing = dict(json.loads(location.read()))
        except ValueError:
            raise PellucidError(f"{location} is damaged: name another --output") from None
        for key, value in manifest.items():
            if existing.get(key) != value:
                raise InputError(
                    f"{self.output} was begun with another {key} ({existing.get(key)}, now "
                    f"{value}): give the same, or name another --output"
                )
        return True

    def check_shared(self) -> None:
        """Raise an error if this machine does not see the job's output folder."""
        if not self._own("manifest.json").exists():
            raise PellucidError(
                f"a worker does not see {self.output}: name a folder that all machines share"
            )

    def finished(self, file: str) -> dict[str, Any] | None:
        """Return the record of a file if it is finished."""
        location = self.record_of(file)
        return dict(json.loads(location.read())) if location.exists() else None

    def check_new(self, name: str, location: Location) -> InputFile:
        """Return an unfinished file, with its finished parts.

        An output file that is not of this job is an error.
        """
        done = {}
        for entry in self.parts_of(name).names():
            number, _, digest = entry.removesuffix(".json").partition("-")
            if entry.endswith(".json"):
                done[int(number)] = digest
        if not done and self.output.child(name).exists():
            raise InputError(
                f"{self.output.child(name)} exists already, and not of this job: "
                "name another --output"
            )
        return InputFile(name, location, done)

    def check_unchanged(self, record: dict[str, Any], name: str, location: Location) -> None:
        """Raise an error if the input of a finished file has changed since."""
        info = location.info()
        if info.size == record["size"] and info.mtime_ns == record["time"]:
            return
        options = self.options
        parts = read_parts(location, name, options.column, options.part_rows)
        same = info.size == record["size"] and record["digest"] == file_digest(
            part.digest for part in parts
        )
        if not same:
            raise changed_error(location, self.output)

    def close(self) -> None:
        """Remove what is needed only while there are unfinished files."""
        self._own("parts").remove()


def file_digest(digests: Iterator[str]) -> str:
    """Return the digest of a file with parts of these digests."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:24]


def changed_error(location: Location, output: Location) -> InputError:
    """Return the error for an input that has changed since the job was begun."""
    return InputError(
        f"{location} has changed since {output} was begun: name another --output for what it is now"
    )


def assemble(job: Job, file: str, location: Location) -> dict[str, Any]:
    """Join the parts of a file, in order; return its record. location: of the input."""
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
    info = location.info()
    counts = total(records)
    record = {
        "size": info.size,
        "time": info.mtime_ns,
        "digest": file_digest(name.partition("-")[2] for name in names),
        **counts,
    }
    job.record_of(file).write(json.dumps(record).encode())
    folder.remove()
    return record


def _joined_tables(folder: Location, names: list[str]) -> Any:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    def fill(stream: Any) -> None:
        writer, pending = None, []
        for name in names:
            file = pq.ParquetFile(pa.BufferReader(folder.child(f"{name}.part").read()))
            table = file.read()
            if writer is None:
                groups = file.metadata.num_row_groups
                codec = file.metadata.row_group(0).column(0).compression if groups else "SNAPPY"
                codec = {"UNCOMPRESSED": "NONE"}.get(codec, codec)
                writer = pq.ParquetWriter(stream, table.schema, compression=codec)
            pending.append(table)
            if sum(t.num_rows for t in pending) >= _ROW_GROUP_ROWS or name == names[-1]:
                writer.write_table(pa.concat_tables(pending))
                pending = []
        assert writer is not None
        writer.close()

    return fill


COUNTS = ("rows", "source_tokens", "tokens", "split", "rescued", "cut", "invalid", "again")
TIMES = ("seconds", "processor_seconds")  # of all workers


def total(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Sum the records of parts or of files."""
    failures: Counter[str] = Counter()
    for record in records:
        failures.update(record["failures"])
    sums = {name: sum(record[name] for record in records) for name in COUNTS}
    times = {name: round(sum(record[name] for record in records), 3) for name in TIMES}
    return {**sums, **times, "failures": dict(sorted(failures.items()))}
