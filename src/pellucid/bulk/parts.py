"""Splitting a file into parts: by its content alone, so every run splits it the same way.

A part ends where a window of `Translator.translate_lines` ends, and records the size of its first
window. So whoever translates it forms the same batches as one process would for the whole file, and
gets the same translations to the last bit.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import IO, Any, Literal

from pellucid.bulk.locations import Location
from pellucid.errors import InputError, PellucidError
from pellucid.translator.text_io import LONGEST_LINE
from pellucid.translator.translator import FIRST_WINDOW, WINDOW

Kind = Literal["text", "json", "table"]

PART_ROWS = 2048
"""Maximum rows of a part, unless its first window has more: five to twenty seconds of work for one
core. A killed worker loses its part, and at the end of a job the others wait for the one that has
the last part, so parts are small."""

PART_BYTES = 1 << 25
"""A part that reaches this size is full, even with fewer rows."""

_KINDS: dict[str, Kind] = {
    ".txt": "text",
    ".text": "text",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".parquet": "table",
    ".pq": "table",
}
_KEPT_BYTES = 200  # of a row that is too long
_TEXT_TYPES = ("string", "large_string", "string_view")


@dataclass(frozen=True)
class Part:
    """Some rows of a file, unchanged."""

    file: str
    """Name below the output folder and below the fixed part of the input pattern."""
    number: int
    first: int
    """Index of its first row in the file, from 0."""
    window: int
    """Number of texts batched together at first; then twice as many, up to WINDOW."""
    too_long: list[int] = field(default_factory=list)
    """Rows of the part that are truncated."""
    compression: str = ""
    """Codec of a table's columns."""
    digest: str = ""
    """Hash of the payload."""
    payload: bytes = b""
    """Lines as they are in the file, or a table as an Arrow stream."""

    @property
    def name(self) -> str:
        """Its file name in the job's records."""
        return f"{self.number:07}-{self.digest}"

    def about(self) -> str:
        """Return everything but the payload, as JSON."""
        return json.dumps(asdict(replace(self, payload=b"")) | {"payload": None})

    @classmethod
    def of(cls, about: str, payload: bytes) -> Part:
        """Restore a part from `about` and its payload."""
        return cls(**{**json.loads(about), "payload": payload})


def kind_of(name: str) -> tuple[Kind, str]:
    """Return the kind of a file (text, json, table) and its compression ("", gzip, zstd)."""
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
    location: Location, name: str, column: str, part_rows: int = PART_ROWS
) -> Iterator[Part]:
    """Yield the parts of a file, in order; at least one, which may have no rows."""
    kind, packed = kind_of(name)
    with location.open() as file:
        try:
            rows = _tables(file, name, column) if kind == "table" else _lines(file, name, packed)
            for part in _numbered(rows, name, part_rows):
                yield replace(part, digest=hashlib.sha256(part.payload).hexdigest()[:24])
        except (OSError, EOFError) as error:
            reason = " ".join(str(error).split())[:300]
            raise PellucidError(f"{location} is damaged ({reason}): get the file again") from None


@dataclass
class _Splitter:
    """Chooses the size of each part, and counts them."""

    part_rows: int
    window: int = FIRST_WINDOW
    number: int = 0
    first: int = 0

    def plan(self) -> tuple[int, int]:
        """Return the maximum number of rows of the next part, and its first window."""
        rows, start = 0, self.window
        while not rows or rows + self.window <= self.part_rows:
            rows += self.window
            self.window = min(2 * self.window, WINDOW)
        return rows, start


def _numbered(source: _Rows, name: str, part_rows: int) -> Iterator[Part]:
    splitter = _Splitter(part_rows)
    while True:
        rows, window = splitter.plan()
        payload, count, too_long = source.take(rows)
        if count or not splitter.number:
            yield Part(
                name, splitter.number, splitter.first, window, too_long, source.compression,
                payload=payload,
            )  # fmt: skip
        if not count:
            return
        if count < rows:  # the end, or a part full of long rows: windows start anew
            splitter.window = WINDOW
        splitter.number += 1
        splitter.first += count


class _Lines:
    """Reads lines from a stream, some at a time."""

    compression = ""

    def __init__(self, stream: io.BufferedReader, name: str) -> None:
        self._stream = stream
        start = stream.peek(4)[:4]
        if start.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise InputError(f"{name} is UTF-16: save it as UTF-8")
        if start.startswith(b"\xef\xbb\xbf"):
            stream.read(3)

    def take(self, rows: int) -> tuple[bytes, int, list[int]]:
        """Read up to `rows` lines; return them, their number, and which are too long."""
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
                line = line[:_KEPT_BYTES] + (b"\n" if end else b"")
            lines.append(line)
            size += len(line)
        return b"".join(lines), len(lines), too_long


def _lines(file: IO[bytes], name: str, packed: str) -> _Lines:
    import pyarrow as pa  # type: ignore[import-untyped]

    raw: Any = pa.CompressedInputStream(file, packed) if packed else file
    return _Lines(io.BufferedReader(raw, 1 << 18), name)


class _Tables:
    """Reads rows from a Parquet file, some at a time."""

    def __init__(self, file: Any, schema: Any, compression: str) -> None:
        self._batches = file.iter_batches(batch_size=WINDOW)
        self._rest = schema.empty_table()
        self.compression = compression

    def take(self, rows: int) -> tuple[bytes, int, list[int]]:
        """Read up to `rows` rows; return them as an Arrow stream, and their number."""
        import pyarrow as pa

        tables = [self._rest]
        count, size = self._rest.num_rows, self._rest.nbytes
        while count < rows and size < PART_BYTES:
            batch = next(self._batches, None)
            if batch is None:
                break
            tables.append(pa.Table.from_batches([batch], self._rest.schema))
            count, size = count + batch.num_rows, size + batch.nbytes
        table = pa.concat_tables(tables)
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
        columns = ", ".join(schema.names)
        raise InputError(f"{name} has no column {column!r}: name one of {columns} with --column")
    kind = schema.field(column).type
    if not is_text(kind):
        raise InputError(f"{name}: column {column!r} is {kind} and not text: name another")
    groups = file.metadata.num_row_groups
    packed = file.metadata.row_group(0).column(0).compression if groups else "SNAPPY"
    codec = {"UNCOMPRESSED": "NONE", "LZ4_RAW": "LZ4"}.get(packed, packed)
    return _Tables(file, schema, codec)


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is a string type, plain or dictionary-encoded."""
    import pyarrow as pa

    return str(kind.value_type if pa.types.is_dictionary(kind) else kind) in _TEXT_TYPES


_Rows = _Lines | _Tables
