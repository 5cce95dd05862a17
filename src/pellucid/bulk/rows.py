"""The rows of a part: read their texts, and write the part with translations in their place.

Everything else is kept: the other bytes of a JSON line, the other columns and the types of a table.
A row that cannot be translated is a `RowFailure`; it is left out, and a line of plain text is left
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
from pellucid.translator.text_io import LONGEST_LINE


class RowFailure(NamedTuple):
    """Why a row cannot be translated."""

    kind: str
    reason: str


Outcome = str | RowFailure | None
"""The outcome of a row: its translation, a failure, or None if it has no text."""


class Rows(Protocol):
    """The rows of a part."""

    texts: list[Outcome]
    """The text of each row; None: the row has none and stays as it is."""
    invalid: int
    """Rows with bytes that are not UTF-8, which became U+FFFD."""

    def rebuilt(self, made: Sequence[Outcome]) -> bytes:
        """Return the part as a file, with these translations."""

    def shown(self, row: int) -> Any:
        """Return a row as it was, for JSON."""


def open_rows(part: Part, column: str, into: str | None) -> Rows:
    """Open the rows of a part; the translation replaces the text, or goes `into` another column."""
    kind, packed = kind_of(part.file)
    if kind == "text":
        return TextRows(part, packed)
    if kind == "json":
        return JsonRows(part, packed, column, into or column)
    return TableRows(part, column, into or column)


_TOO_LONG = RowFailure("too long", f"the row is longer than {LONGEST_LINE >> 20} MB")


def _lines(part: Part) -> list[bytes]:
    """Split a part into lines, with their line feeds."""
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
    """Lines of plain text, decoded as by `pellucid translate`."""

    def __init__(self, part: Part, packed: str) -> None:
        self._lines, self._packed = _lines(part), packed
        self.invalid = 0
        self.texts: list[Outcome] = []
        for row, line in enumerate(self._lines):
            text = line.removesuffix(b"\n").decode("utf-8", "replace")
            self.invalid += "\ufffd" in text and text.encode() != line.removesuffix(b"\n")
            self.texts.append(_TOO_LONG if row in part.too_long else text)

    def rebuilt(self, made: Sequence[Outcome]) -> bytes:
        """Return the translated lines; an empty one for a failure."""
        parts = []
        for line, text in zip(self._lines, made, strict=True):
            parts.append(text.encode("utf-8", "replace") if isinstance(text, str) else b"")
            parts.append(b"\n" if line.endswith(b"\n") else b"")
        return _packed(b"".join(parts), self._packed)

    def shown(self, row: int) -> str:
        """Return the line; bytes that are not UTF-8 become surrogates, which can be reversed."""
        return self._lines[row].removesuffix(b"\n").decode("utf-8", "surrogateescape")


class JsonRows:
    """Lines of JSON, of which only the bytes of the translation change."""

    def __init__(self, part: Part, packed: str, column: str, into: str) -> None:
        self._lines, self._packed = _lines(part), packed
        self._key = json.dumps(into, ensure_ascii=False)
        self._spans: dict[int, tuple[int, int]] = {}
        self.invalid = 0
        self.texts: list[Outcome] = [
            _TOO_LONG if row in part.too_long else self._read(row, line, column, into)
            for row, line in enumerate(self._lines)
        ]

    def _read(self, row: int, data: bytes, column: str, into: str) -> Outcome:
        if not data.strip():
            return None
        try:
            line = data.decode("utf-8")
            fields, end = _fields(line)
        except UnicodeDecodeError as error:
            return RowFailure("not UTF-8", f"byte {error.start} of the line is not UTF-8")
        except (ValueError, RecursionError) as error:
            return RowFailure("not JSON", str(error))
        if column not in fields:
            return RowFailure("no text", f"there is no {column!r}")
        text = fields[column].value
        if text is None:
            return None
        if not isinstance(text, str):
            return RowFailure("not text", f"{column!r} is {type(text).__name__} and not a string")
        self._spans[row] = fields[into][1:] if into in fields else (end, end)
        valid = _valid(text)
        self.invalid += valid != text
        return valid

    def rebuilt(self, made: Sequence[Outcome]) -> bytes:
        """Return the lines with their translations, without the failures."""
        lines = []
        for row, (data, text) in enumerate(zip(self._lines, made, strict=True)):
            if text is None:
                lines.append(data)
            elif isinstance(text, str):
                line = data.decode("utf-8")
                start, end = self._spans[row]
                value = _encoded(_valid(text))
                if start == end:  # a new key, after the last
                    value = f", {self._key}: {value}"
                lines.append(f"{line[:start]}{value}{line[end:]}".encode())
        return _packed(b"".join(lines), self._packed)

    def shown(self, row: int) -> str:
        """Return the line; bytes that are not UTF-8 become surrogates, which can be reversed."""
        return self._lines[row].removesuffix(b"\n").decode("utf-8", "surrogateescape")


_BREAKS = str.maketrans({mark: f"\\u{ord(mark):04x}" for mark in "\u0085\u2028\u2029"})


def _encoded(text: str) -> str:
    """Encode as JSON; characters that some readers take for line ends are escaped."""
    return json.dumps(text, ensure_ascii=False).translate(_BREAKS)


class _Field(NamedTuple):
    """The value of a key, and its span in the line."""

    value: Any
    start: int
    end: int


_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def _fields(line: str) -> tuple[dict[str, _Field], int]:
    """Return the fields of an object, and where the last value ends.

    Of duplicate keys the last counts, as in other readers of JSON.
    """

    def skip(position: int, what: str = "") -> int:
        """Return the position after these characters, which must be there, and any spaces."""
        if not line.startswith(what, position):
            raise json.JSONDecodeError(f"Expecting {what!r}", line, position)
        return _SPACE.match(line, position + len(what)).end()  # type: ignore[union-attr]

    found: dict[str, _Field] = {}
    position = end = skip(skip(0), "{")
    more = not line.startswith("}", position)
    while more:
        skip(position, '"')
        key, position = scanstring(line, position + 1, True)
        start = skip(skip(position), ":")
        value, end = _DECODER.raw_decode(line, start)
        found[key] = _Field(value, start, end)
        position = skip(end)
        more = line.startswith(",", position)
        position = skip(position, ",") if more else position
    if skip(position, "}") != len(line):
        raise json.JSONDecodeError("Extra data", line, position + 1)
    return found, end


def _valid(text: str) -> str:
    """Replace lone surrogates, which JSON can have and UTF-8 cannot, by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


class TableRows:
    """Rows of a table. The types of its columns are kept."""

    def __init__(self, part: Part, column: str, into: str) -> None:
        import pyarrow as pa  # type: ignore[import-untyped]

        with pa.ipc.open_stream(part.payload) as stream:
            self._table = stream.read_all()
        self._into, self._compression = into, part.compression
        self.invalid = 0
        self.texts: list[Outcome] = self._table.column(column).to_pylist()

    def rebuilt(self, made: Sequence[Outcome]) -> bytes:
        """Return a Parquet file with the translations, without the failures."""
        import pyarrow as pa
        import pyarrow.parquet as pq  # type: ignore[import-untyped]

        kept = [not isinstance(text, RowFailure) for text in made]
        table = self._table if all(kept) else self._table.filter(pa.array(kept))
        texts = [t if t is None else _valid(t) for t in made if not isinstance(t, RowFailure)]
        index = table.schema.get_field_index(self._into)
        if index < 0:
            table = table.append_column(self._into, pa.array(texts, pa.string()))
        else:
            field = table.schema.field(index)
            field = field if is_text(field.type) else pa.field(self._into, pa.string())
            table = table.set_column(index, field, _typed(texts, field.type))
        sink = io.BytesIO()
        pq.write_table(table, sink, compression=self._compression)
        return sink.getvalue()

    def shown(self, row: int) -> Any:
        """Return the row as a dict of its columns."""
        return self._table.slice(row, 1).to_pylist()[0]


def _typed(texts: list[str | None], kind: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return pa.array(texts, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(texts, kind)
