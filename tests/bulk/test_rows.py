"""How files are cut into parts and put together: nothing changes but the text."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from pellucid.bulk import parts as parts_module
from pellucid.bulk.locations import Location, find_inputs
from pellucid.bulk.parts import Part, kind_of, read_parts
from pellucid.bulk.rows import RowFailure, open_rows
from pellucid.errors import InputError, PellucidError

LINE = st.binary(max_size=12).map(lambda data: data.replace(b"\n", b""))


def cut(path: Path, **more: Any) -> list[Part]:
    return list(read_parts(Location.of(str(path)), path.name, "text", **more))


@given(
    data=st.lists(LINE, max_size=300).map(b"\n".join), ending=st.sampled_from(["", ".gz", ".zst"])
)
def test_parts_are_the_file(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, ending: str
) -> None:
    if data.startswith((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")):
        data = b"x" + data
    pack = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}[ending]
    path = tmp_path_factory.getbasetemp() / f"parts.txt{ending}"
    path.write_bytes(pack(data))
    found = cut(path, part_rows=1)
    assert b"".join(part.payload for part in found) == data
    assert [part.number for part in found] == list(range(len(found)))
    assert [part.window for part in found] == [32 << number for number in range(len(found))]
    counts = [len(open_rows(part, "text", None).texts) for part in found]
    assert [part.first for part in found] == [sum(counts[:n]) for n in range(len(found))]
    assert all(count == part.window for count, part in list(zip(counts, found, strict=True))[:-1])
    assert [part.digest for part in cut(path, part_rows=1)] == [part.digest for part in found]


def test_the_usual_parts_end_where_windows_end(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"x\n" * 9000)
    assert [(part.first, part.window) for part in cut(path)] == [
        (0, 32),
        (2016, 2048),
        (4064, 2048),
        (6112, 2048),
        (8160, 2048),
    ]


def test_a_line_that_is_too_long_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_module, "LONGEST_LINE", 1000)
    path = tmp_path / "a.txt"
    path.write_bytes(b"un\n" + b"x" * 5000 + b"\ndeux\n" + b"y" * 1001)
    (part,) = cut(path)
    rows = open_rows(part, "text", None)
    assert [isinstance(text, RowFailure) for text in rows.texts] == [False, True, False, True]
    assert rows.rebuilt(rows.texts) == b"un\n\ndeux\n"
    assert rows.shown(1) == "x" * 200


def test_rows_that_are_large_make_parts_that_are_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_module, "PART_BYTES", 1000)
    path = tmp_path / "a.txt"
    path.write_bytes((b"x" * 99 + b"\n") * 40)
    assert [len(part.payload) for part in cut(path)] == [1000] * 4
    table = pa.table({"text": ["x" * 100] * 5000})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=100)
    found = cut(tmp_path / "a.parquet")
    assert len(found) > 1
    texts = [text for part in found for text in open_rows(part, "text", None).texts]
    assert texts == ["x" * 100] * 5000


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
OBJECT = st.dictionaries(st.one_of(st.text(max_size=3), st.sampled_from(["text", "new"])), JSON)
SPACES = st.sampled_from(["", " ", "\t ", "\r"])


@given(OBJECT, st.booleans(), SPACES, st.text(max_size=6), st.sampled_from([None, "new"]))
def test_of_json_only_the_text_changes(
    row: dict[str, Any], ascii: bool, space: str, made: str, into: str | None
) -> None:
    colon, comma = f"{space}:{space}", f"{space},{space}"

    def written(value: Any) -> str:
        return json.dumps(value, ensure_ascii=ascii, separators=(comma, colon))

    try:
        payload = f"{written(row)}{space}\n".encode()
    except UnicodeEncodeError:
        return
    rows = open_rows(Part("a.jsonl", 0, 0, 32, payload=payload), "text", into)
    (text,) = rows.texts
    if not isinstance(row.get("text"), str):
        assert isinstance(text, RowFailure) or ("text" in row and text is None)
        assert rows.rebuilt([text]) == (b"" if isinstance(text, RowFailure) else payload)
        return
    assert json.dumps(text) == json.dumps(row["text"]) or rows.invalid == 1
    place = into or "text"
    value = json.dumps(made, ensure_ascii=False)
    for mark in "\u0085\u2028\u2029":
        value = value.replace(mark, f"\\u{ord(mark):04x}")
    parts = [written(key) + colon + (value if key == place else written(row[key])) for key in row]
    expected = comma.join(parts)
    if place not in row:
        expected += f', "new": {value}'
    assert rows.rebuilt([made]).decode() == f"{{{expected}}}{space}\n"
    assert json.loads(rows.rebuilt([made]))[place] == made


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b'{"text": "a"', "not JSON"),
        (b'{"text": "a"} x', "not JSON"),
        (b'{"text": "a",}', "not JSON"),
        (b'{text: "a"}', "not JSON"),
        (b'["text"]', "not JSON"),
        (b"nothing", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"a": ' + b"[" * 100_000, "not JSON"),
        (b'{"text": "\xff"}', "not UTF-8"),
        (b'{"Text": "a"}', "no text"),
        (b"{}", "no text"),
        (b'{"text": ["a"]}', "not text"),
    ],
)
def test_rows_of_json_that_fail(line: bytes, kind: str) -> None:
    rows = open_rows(Part("a.jsonl", 0, 0, 32, payload=line), "text", None)
    (failure,) = rows.texts
    assert isinstance(failure, RowFailure)
    assert (failure.kind, bool(failure.reason)) == (kind, True)
    assert rows.shown(0).encode("utf-8", "surrogateescape") == line


def test_numbers_and_escapes_of_json_stay_as_they_are_written() -> None:
    line = b'{"a":1.10,"big":123456789012345678901234567890,"text":"x","e":"\\u00e9\\/",  "n":-0}'
    rows = open_rows(Part("a.jsonl", 0, 0, 32, payload=line), "text", None)
    assert rows.rebuilt(["\u00fc"]) == line.replace(b'"x"', '"ü"'.encode())


def everything() -> pa.Table:
    """A table with columns of many types, among which three are text."""
    return pa.table(
        {
            "id": pa.array([1, 2, None], pa.int16()),
            "text": pa.array(["un", None, "trois"]),
            "large": pa.array(["a", "b", "c"], pa.large_string()),
            "named": pa.array(["a", "b", "a"]).dictionary_encode(),
            "when": pa.array([0, 1, 2], pa.timestamp("us", "UTC")),
            "nested": pa.array([[{"x": 1.5}], [], None]),
            "data": pa.array([b"\xff", b"", None], pa.binary()),
        },
        schema=None,
    ).replace_schema_metadata({"mine": "kept"})


@pytest.mark.parametrize("column", ["text", "large", "named"])
def test_a_table_keeps_its_schema(tmp_path: Path, column: str) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(everything(), path, compression="zstd")
    (part,) = read_parts(Location.of(str(path)), path.name, column)
    rows = open_rows(part, column, None)
    assert rows.texts == everything().column(column).to_pylist()
    made = ["one", None, "three"]
    found = pq.ParquetFile(io.BytesIO(rows.rebuilt(made)))
    assert found.metadata.row_group(0).column(0).compression == "ZSTD"
    table, before = found.read(), pq.read_table(path)
    assert table.schema.equals(before.schema, check_metadata=True)
    assert table.column(column).to_pylist() == made
    assert table.drop_columns([column]).equals(before.drop_columns([column]))
    without = pq.read_table(io.BytesIO(rows.rebuilt(["one", RowFailure("x", "y"), "three"])))
    assert without.column("id").to_pylist() == [1, None]
    assert json.loads(json.dumps(rows.shown(1), default=str))["text"] is None


def test_a_new_column_of_a_table(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(everything(), path)
    (part,) = read_parts(Location.of(str(path)), path.name, "text")
    table = pq.read_table(io.BytesIO(open_rows(part, "text", "new").rebuilt(["a", None, "c"])))
    assert table.column_names == [*everything().column_names, "new"]
    assert table.column("text").to_pylist() == ["un", None, "trois"]
    again = pq.read_table(io.BytesIO(open_rows(part, "text", "id").rebuilt(["a", None, "c"])))
    assert again.column("id").to_pylist() == ["a", None, "c"]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    whole = gzip.compress(b"le phare\n" * 1000)
    for name, data, said in [
        ("a.txt.gz", whole[:-10], "damaged"),
        ("b.txt.gz", b"le phare\n" * 1000, "damaged"),
        ("c.txt.zst", zstandard.compress(b"le phare\n" * 1000)[:-5], "damaged"),
        ("d.parquet", b"PAR1" + b"\x00" * 100, "damaged"),
        ("e.txt", "le phare".encode("utf-16"), "UTF-16"),
    ]:
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(PellucidError, match=said):
            cut(path)
    pq.write_table(pa.table({"a": [1], "b": ["x"]}), tmp_path / "f.parquet")
    place = Location.of(str(tmp_path / "f.parquet"))
    with pytest.raises(InputError, match="name one of a, b"):
        list(read_parts(place, "f.parquet", "text"))
    with pytest.raises(InputError, match="int64 and not text"):
        list(read_parts(place, "f.parquet", "a"))
    for name in ("a.docx", "a.parquet.gz", "a"):
        with pytest.raises(InputError, match="not a kind of file"):
            kind_of(name)


def test_which_files_a_pattern_means(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "c.jsonl", "d/a.txt", "d/e/a.txt", "_own/a.txt", ".x.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")

    def found(pattern: str) -> list[str]:
        return [name for name, _ in find_inputs(f"{tmp_path}/{pattern}")]

    assert found("*.txt") == ["a.txt", "b.txt"]
    assert found("d/a.txt") == ["a.txt"]
    assert found("*/a.txt") == ["d/a.txt"]
    assert found("**/a.txt") == ["a.txt", "d/a.txt", "d/e/a.txt"]
    assert found("") == ["a.txt", "b.txt", "c.jsonl", "d/a.txt", "d/e/a.txt"]
    assert [name for name, _ in find_inputs((tmp_path / "d").as_uri())] == ["a.txt", "e/a.txt"]
    for wrong in ("*.md", "nothing", "nowhere/*.txt"):
        with pytest.raises(InputError, match="check --input"):
            found(wrong)
