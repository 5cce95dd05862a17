"""How a file is cut into parts: by its content alone, so every run cuts it the same.

A part ends where a window of `Translator.translate_lines` ends, and says how large its first window
is. So whoever translates it makes the batches that one process would make for the whole file, and
gets the same translations to the last bit.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import IO, Any, Literal

from pellucid.bulk.places import Location
from pellucid.errors import InputError, PellucidError
from pellucid.translator.files import LONGEST_LINE
from pellucid.translator.translator import FIRST_WINDOW, WINDOW

Kind = Literal["text", "json", "table"]

PART_ROWS = 2048
"""The most rows of a part, unless its first window has more: five to twenty seconds of work for one
core. What a killed worker was doing is lost, and at the end of a job the others wait for the one
that has the last part."""

PART_BYTES = 1 << 25
"""A part is not made larger than this by rows that are long."""

_KINDS: dict[str, Kind] = {
    ".txt": "text",
    ".text": "text",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".parquet": "table",
    ".pq": "table",
}
_SHOWN = 200  # bytes of a row that is too long
_TEXT_TYPES = ("string", "large_string", "string_view")


@dataclass(frozen=True)
class Part:
    """Some rows of a file, as they stand there."""

    file: str
    """The name below the output folder, which is also that below the input's fixed part."""
    number: int
    first: int
    """The row of the file that it begins with, counted from 0."""
    window: int
    """How many of its texts are batched together at first; twice as many then, up to WINDOW."""
    too_long: list[int] = field(default_factory=list)
    """Rows of the part of which only the beginning is here."""
    compression: str = ""
    """Of a table's columns."""
    digest: str = ""
    """Stands for the rows."""
    payload: bytes = b""
    """Lines as they are in the file, or a table as an Arrow stream."""

    @property
    def name(self) -> str:
        """Its name in the job's bookkeeping."""
        return f"{self.number:07}-{self.digest}"

    def about(self) -> str:
        """All but the payload, as JSON."""
        return json.dumps(asdict(replace(self, payload=b"")) | {"payload": None})

    @classmethod
    def of(cls, about: str, payload: bytes) -> Part:
        """What `about` told of, with its payload."""
        return cls(**{**json.loads(about), "payload": payload})


def kind_of(name: str) -> tuple[Kind, str]:
    """What rows a file has (text, json, table), and how it is packed ("", gzip, zstd)."""
    packed = ""
    for ending, codec in ((".gz", "gzip"), (".zst", "zstd")):
        if name.endswith(ending):
            name, packed = name.removesuffix(ending), codec
    kind = next((kind for ending, kind in _KINDS.items() if name.endswith(ending)), None)
    if kind is None or (kind == "table" and packed):
        known = ".txt, .jsonl (both also .gz and .zst) and .parquet"
        raise InputError(f"{name}: not a kind of file for bulk translation, which are {known}")
    return kind, packed


def read_parts(
    place: Location, name: str, column: str, part_rows: int = PART_ROWS
) -> Iterator[Part]:
    """The parts of a file, in order; at least one, though it may have no rows."""
    kind, packed = kind_of(name)
    with place.open() as file:
        try:
            cut = _tables(file, name, column) if kind == "table" else _lines(file, name, packed)
            for part in _numbered(cut, name, part_rows):
                yield replace(part, digest=hashlib.sha256(part.payload).hexdigest()[:24])
        except (OSError, EOFError) as error:
            reason = " ".join(str(error).split())[:300]
            raise PellucidError(f"{place} is damaged ({reason}): get the file again") from None


@dataclass
class _Cutter:
    """How many rows come next, and what has been cut so far."""

    part_rows: int
    window: int = FIRST_WINDOW
    number: int = 0
    first: int = 0

    def plan(self) -> tuple[int, int]:
        """How many rows the next part has at most, and its first window."""
        rows, start = 0, self.window
        while not rows or rows + self.window <= self.part_rows:
            rows += self.window
            self.window = min(2 * self.window, WINDOW)
        return rows, start


def _numbered(source: _Rows, name: str, part_rows: int) -> Iterator[Part]:
    cutter = _Cutter(part_rows)
    while True:
        rows, window = cutter.plan()
        payload, count, too_long = source.take(rows)
        if count or not cutter.number:
            yield Part(
                name, cutter.number, cutter.first, window, too_long, source.compression,
                payload=payload,
            )  # fmt: skip
        if not count:
            return
        if count < rows:  # the end, or rows so long that the part is full: windows begin anew
            cutter.window = WINDOW
        cutter.number += 1
        cutter.first += count


class _Lines:
    """Takes lines off a stream, some at a time."""

    compression = ""

    def __init__(self, stream: io.BufferedReader, name: str) -> None:
        self._stream = stream
        start = stream.peek(4)[:4]
        if start.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise InputError(f"{name} is UTF-16: save it as UTF-8")
        if start.startswith(b"\xef\xbb\xbf"):
            stream.read(3)

    def take(self, rows: int) -> tuple[bytes, int, list[int]]:
        """So many lines, or fewer; how many they are; which of them are too long."""
        lines: list[bytes] = []
        size, too_long = 0, []
        while len(lines) < rows and size < PART_BYTES:
            line = self._stream.readline(LONGEST_LINE + 1)
            if not line:
                break
            if len(line) > LONGEST_LINE:
                too_long.append(len(lines))
                end = line
                while end and not end.endswith(b"\n"):
                    end = self._stream.readline(LONGEST_LINE)
                line = line[:_SHOWN] + (b"\n" if end else b"")
            lines.append(line)
            size += len(line)
        return b"".join(lines), len(lines), too_long


def _lines(file: IO[bytes], name: str, packed: str) -> _Lines:
    import pyarrow as pa  # type: ignore[import-untyped]

    raw: Any = pa.CompressedInputStream(file, packed) if packed else file
    return _Lines(io.BufferedReader(raw, 1 << 18), name)


class _Tables:
    """Takes rows off a Parquet file, some at a time."""

    def __init__(self, file: Any, schema: Any, compression: str) -> None:
        self._batches = file.iter_batches(batch_size=WINDOW)
        self._rest = schema.empty_table()
        self.compression = compression

    def take(self, rows: int) -> tuple[bytes, int, list[int]]:
        """So many rows as an Arrow stream, or fewer; how many they are."""
        import pyarrow as pa

        have = [self._rest]
        count, size = self._rest.num_rows, self._rest.nbytes
        while count < rows and size < PART_BYTES:
            batch = next(self._batches, None)
            if batch is None:
                break
            have.append(pa.Table.from_batches([batch], self._rest.schema))
            count, size = count + batch.num_rows, size + batch.nbytes
        table = pa.concat_tables(have)
        taken, self._rest = table.slice(0, rows), table.slice(rows)
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, taken.schema) as writer:
            writer.write_table(taken.combine_chunks())
        return sink.getvalue(), taken.num_rows, []


def _tables(stream: IO[bytes], name: str, column: str) -> _Tables:
    import pyarrow as pa
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    try:
        file = pq.ParquetFile(stream)
    except pa.ArrowInvalid as error:
        raise OSError(str(error)) from None
    schema = file.schema_arrow
    if column not in schema.names:
        there = ", ".join(schema.names)
        raise InputError(f"{name} has no column {column!r}: name one of {there} with --column")
    kind = schema.field(column).type
    if not is_text(kind):
        raise InputError(f"{name}: column {column!r} is {kind} and not text: name another")
    groups = file.metadata.num_row_groups
    packed = file.metadata.row_group(0).column(0).compression if groups else "SNAPPY"
    codec = {"UNCOMPRESSED": "NONE", "LZ4_RAW": "LZ4"}.get(packed, packed)
    return _Tables(file, schema, codec)


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is one of strings, by value or by dictionary."""
    import pyarrow as pa

    return str(kind.value_type if pa.types.is_dictionary(kind) else kind) in _TEXT_TYPES


_Rows = _Lines | _Tables
