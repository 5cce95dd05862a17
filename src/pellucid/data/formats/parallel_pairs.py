"""Two parallel text files: line N of one translates line N of the other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from pellucid.data.formats import Record
from pellucid.errors import InputError
from pellucid.storage.lines import read_lines


class _End:
    """The line after the last."""


def read_parallel_pairs(source: Path, target: Path) -> Iterator[Record]:
    """Read a record from each pair of lines.

    Different numbers of lines are an `InputError`, raised after the last pair.
    """
    sources, targets = read_lines(source), read_lines(target)
    end = _End()
    for count, (first, second) in enumerate(zip_longest(sources, targets, fillvalue=end)):
        if isinstance(first, _End) or isinstance(second, _End):
            more = count + 1 + sum(1 for _ in (targets if first is end else sources))
            counts = (count, more) if first is end else (more, count)
            raise InputError(
                f"{source} has {counts[0]:,} lines and {target} has {counts[1]:,}: line N of one "
                "must translate line N of the other, so the numbers must be equal"
            )
        if first is None or second is None:
            yield "", "", "too_long"
        else:
            yield first, second, ""
