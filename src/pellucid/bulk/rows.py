"""The rows of a part: their texts, and the part again with translations in their place.

All else stays as it is: the other bytes of a JSON line, the other columns and the types of a table.
A row that cannot be translated is a `Failure`; it is left out, and a line of plain text is left
empty, so that lines do not shift.
"""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NamedTuple, Protocol

from pellucid.bulk.parts import Part, is_text, kind_of
from pellucid.translator.files import LONGEST_LINE


class Failure(NamedTuple):
    """Why a row cannot be translated."""

    kind: str
    reason: str


Made = str | Failure | None
"""What became of a row: its translation; a failure; nothing, as it has no text."""


class Rows(Protocol):
    """The rows of a part."""

    texts: list[Made]
    """For each row what is to be translated; None: nothing, the row stays as it is."""
    invalid: int
    """Rows with bytes that are not UTF-8, which became U+FFFD."""

    def rebuilt(self, made: Sequence[Made]) -> bytes:
        """The part as a file, with these translations."""

    def shown(self, row: int) -> Any:
        """A row as it was, for JSON."""


def open_rows(part: Part, column: str, into: str | None) -> Rows:
    """The rows of a part; the translation goes in place of the text, or `into` another column."""
    kind, packed = kind_of(part.file)
    if kind == "text":
        return TextRows(part, packed)
    if kind == "json":
        return JsonRows(part, packed, column, into or column)
    return TableRows(part, column, into or column)


_TOO_LONG = Failure("too long", f"the row is longer than {LONGEST_LINE >> 20} MB")


def _lines(part: Part) -> list[bytes]:
    """Lines with their ends."""
    lines = part.payload.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def _packed(data: bytes, codec: str) -> bytes:
    if codec == "gzip":
        return gzip.compress(data, mtime=0)
    if codec == "zstd":
        import zstandard

        return zstandard.ZstdCompressor().compress(data)
    return data


class TextRows:
    """Lines of plain text, decoded as `pellucid translate` does."""

    def __init__(self, part: Part, packed: str) -> None:
        self._lines, self._packed = _lines(part), packed
        self.invalid = 0
        self.texts: list[Made] = []
        for row, line in enumerate(self._lines):
            text = line.removesuffix(b"\n").decode("utf-8", "replace")
            self.invalid += "\ufffd" in text and text.encode() != line.removesuffix(b"\n")
            self.texts.append(_TOO_LONG if row in part.too_long else text)

    def rebuilt(self, made: Sequence[Made]) -> bytes:
        """The lines of the translation; an empty one for a failure."""
        parts = []
        for line, text in zip(self._lines, made, strict=True):
            parts.append(text.encode("utf-8", "replace") if isinstance(text, str) else b"")
            parts.append(b"\n" if line.endswith(b"\n") else b"")
        return _packed(b"".join(parts), self._packed)

    def shown(self, row: int) -> str:
        """The line; bytes that are not UTF-8 as surrogates, from which they can be had again."""
        return self._lines[row].removesuffix(b"\n").decode("utf-8", "surrogateescape")


class JsonRows:
    """Lines of JSON. Of a line, only the bytes of the translation change."""

    def __init__(self, part: Part, packed: str, column: str, into: str) -> None:
        self._lines, self._packed = _lines(part), packed
        self._key = json.dumps(into, ensure_ascii=False)
        self._spots: dict[int, tuple[int, int]] = {}
        self.invalid = 0
        self.texts: list[Made] = [
            _TOO_LONG if row in part.too_long else self._read(row, line, column, into)
            for row, line in enumerate(self._lines)
        ]

    def _read(self, row: int, data: bytes, column: str, into: str) -> Made:
        if not data.strip():
            return None
        try:
            line = data.decode("utf-8")
            fields, end = _fields(line)
        except UnicodeDecodeError as error:
            return Failure("not UTF-8", f"byte {error.start} of the line is not UTF-8")
        except (ValueError, RecursionError) as error:
            return Failure("not JSON", str(error))
        if column not in fields:
            return Failure("no text", f"there is no {column!r}")
        text = fields[column].value
        if text is None:
            return None
        if not isinstance(text, str):
            return Failure("not text", f"{column!r} is {type(text).__name__} and not a string")
        self._spots[row] = fields[into][1:] if into in fields else (end, end)
        whole = _whole(text)
        self.invalid += whole != text
        return whole

    def rebuilt(self, made: Sequence[Made]) -> bytes:
        """The lines with the translation in its place, and without the failures."""
        lines = []
        for row, (data, text) in enumerate(zip(self._lines, made, strict=True)):
            if text is None:
                lines.append(data)
            elif isinstance(text, str):
                line = data.decode("utf-8")
                start, end = self._spots[row]
                value = _written(_whole(text))
                if start == end:  # a new key, after the last
                    value = f", {self._key}: {value}"
                lines.append(f"{line[:start]}{value}{line[end:]}".encode())
        return _packed(b"".join(lines), self._packed)

    def shown(self, row: int) -> str:
        """The line; bytes that are not UTF-8 as surrogates, from which they can be had again."""
        return self._lines[row].removesuffix(b"\n").decode("utf-8", "surrogateescape")


_BREAKS = str.maketrans({mark: f"\\u{ord(mark):04x}" for mark in "\u0085\u2028\u2029"})


def _written(text: str) -> str:
    """As JSON; what some readers take for the end of a line is escaped."""
    return json.dumps(text, ensure_ascii=False).translate(_BREAKS)


class _Field(NamedTuple):
    """The value of a key, and where it stands in the line."""

    value: Any
    start: int
    end: int


_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def _fields(line: str) -> tuple[dict[str, _Field], int]:
    """The fields of an object, and where the last value ends.

    Of a key that stands there twice the last counts, as in other readers of JSON.
    """

    def skip(place: int, what: str = "") -> int:
        """Past these characters, which must stand there, and the spaces after them."""
        if not line.startswith(what, place):
            raise json.JSONDecodeError(f"Expecting {what!r}", line, place)
        return _SPACE.match(line, place + len(what)).end()  # type: ignore[union-attr]

    found: dict[str, _Field] = {}
    place = end = skip(skip(0), "{")
    more = not line.startswith("}", place)
    while more:
        skip(place, '"')
        key, place = scanstring(line, place + 1, True)
        start = skip(skip(place), ":")
        value, end = _DECODER.raw_decode(line, start)
        found[key] = _Field(value, start, end)
        place = skip(end)
        more = line.startswith(",", place)
        place = skip(place, ",") if more else place
    if skip(place, "}") != len(line):
        raise json.JSONDecodeError("Extra data", line, place + 1)
    return found, end


def _whole(text: str) -> str:
    """The text, with U+FFFD for halves of characters, which JSON can have and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


class TableRows:
    """Rows of a table. The types of its columns stay."""

    def __init__(self, part: Part, column: str, into: str) -> None:
        import pyarrow as pa  # type: ignore[import-untyped]

        with pa.ipc.open_stream(part.payload) as stream:
            self._table = stream.read_all()
        self._into, self._compression = into, part.compression
        self.invalid = 0
        self.texts: list[Made] = self._table.column(column).to_pylist()

    def rebuilt(self, made: Sequence[Made]) -> bytes:
        """A Parquet file with the translations, and without the failures."""
        import pyarrow as pa
        import pyarrow.parquet as pq  # type: ignore[import-untyped]

        kept = [not isinstance(text, Failure) for text in made]
        table = self._table if all(kept) else self._table.filter(pa.array(kept))
        texts = [t if t is None else _whole(t) for t in made if not isinstance(t, Failure)]
        place = table.schema.get_field_index(self._into)
        if place < 0:
            table = table.append_column(self._into, pa.array(texts, pa.string()))
        else:
            there = table.schema.field(place)
            there = there if is_text(there.type) else pa.field(self._into, pa.string())
            table = table.set_column(place, there, _typed(texts, there.type))
        sink = io.BytesIO()
        pq.write_table(table, sink, compression=self._compression)
        return sink.getvalue()

    def shown(self, row: int) -> Any:
        """The row by its columns."""
        return self._table.slice(row, 1).to_pylist()[0]


def _typed(texts: list[str | None], kind: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return pa.array(texts, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(texts, kind)
