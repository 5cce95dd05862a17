"""JSON lines: an object per line with a key for each side."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from pellucid.data.formats import Record
from pellucid.storage.lines import read_lines

_SURROGATE = re.compile("[\ud800-\udfff]")


def read_jsonl_pairs(
    path: Path, languages: tuple[str, str], keys: tuple[str, str] | None
) -> Iterator[Record]:
    """Read a record from each line, under `keys` or else under the language codes, which may also
    be inside "translation"."""
    for line in read_lines(path):
        if line is None:
            yield "", "", "too_long"
        elif not line.strip():
            yield "", "", ""
        else:
            yield _read_record(line, languages, keys)


def _read_record(line: str, languages: tuple[str, str], keys: tuple[str, str] | None) -> Record:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return line, "", "malformed"
    if keys is None and isinstance(record, dict) and isinstance(record.get("translation"), dict):
        record = record["translation"]
    first_key, second_key = keys or languages
    if not isinstance(record, dict) or first_key not in record or second_key not in record:
        return line, "", "malformed"
    sides = ["" if record[key] is None else record[key] for key in (first_key, second_key)]
    if not all(isinstance(side, str) for side in sides):
        return line, "", "malformed"
    # JSON can spell half a surrogate pair ("\ud800"), which UTF-8 cannot encode
    first, second = (_SURROGATE.sub("\ufffd", side) for side in sides)
    return first, second, ""
