"""Tab-separated files: a pair per line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pellucid.data.formats import Record
from pellucid.storage.lines import read_lines


def read_tsv_pairs(path: Path, columns: tuple[int, int] | None) -> Iterator[Record]:
    """Read a record from each line. Without `columns`, a line must have exactly two of them."""
    first, second = (column - 1 for column in columns or (1, 2))
    for line in read_lines(path):
        if line is None:
            yield "", "", "too_long"
            continue
        cells = line.split("\t")
        if len(cells) <= max(first, second) or (columns is None and len(cells) != 2):
            yield line, "", "malformed" if line.strip() else ""
        else:
            yield cells[first], cells[second], ""
