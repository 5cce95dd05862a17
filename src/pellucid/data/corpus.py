"""Sentence pairs, streamed from files in the formats that people have them in.

| format   | files                       | a pair is                                              |
|----------|-----------------------------|--------------------------------------------------------|
| tsv      | .tsv .txt .tab              | a line: the two sides with a tab between               |
| parallel | any two                     | line N of `source` and line N of `target`              |
| jsonl    | .jsonl .ndjson              | a line: {"en": ..., "fr": ...}, also in "translation"  |
| tmx      | .tmx                        | a unit (tu) with a variant (tuv) in each language      |
| po       | .po .pot .mo                | an entry: msgid and msgstr; two pairs if it has plurals|

All may be compressed (.gz, .zst). Readers drop nothing and repair nothing: what is wrong with a
pair is written on it (`Pair.problem`), so that numbers never shift and `cleaning` can count it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from pellucid.config import CorpusConfig
from pellucid.errors import InputError
from pellucid.storage.lines import read_lines

Record = tuple[str, str, str]
"""What a format's reader yields: first side, second side, problem (or "")."""

SUFFIXES = {
    ".tsv": "tsv",
    ".tab": "tsv",
    ".txt": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".tmx": "tmx",
    ".po": "po",
    ".pot": "po",
    ".mo": "po",
}

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Pair:
    """One sentence pair as it stands in its corpus."""

    first: str
    """Text in `languages[0]`."""

    second: str
    """Text in `languages[1]`."""

    number: int
    """1-based number of the pair in its corpus (line, unit, entry); never shifts."""

    problem: str = ""
    """What the reader found wrong, as the name of a `cleaning.Verdict` ("malformed", "too_long",
    "fuzzy", "obsolete"), or nothing."""


def read_pairs(corpus: CorpusConfig) -> Iterator[Pair]:
    """Every pair of a corpus in order, numbered from 1, nothing dropped, in constant memory.

    What is wrong with the corpus as a whole (no such file, different numbers of lines, a language
    that is not there, no pair to be found in it) is an `InputError`; where only reading shows it,
    it comes after the last pair.
    """
    number = 0
    malformed: tuple[int, str] | None = None
    found = False
    for number, (first, second, problem) in enumerate(_records(corpus), start=1):
        if problem == "malformed":
            malformed = malformed or (number, first)
        elif first or second:
            found = True
        yield Pair(first, second, number, problem)
    if malformed and not found:
        raise InputError(_nothing_found(corpus, *malformed))


def mixing_shares(
    sizes: Sequence[int], weights: Sequence[float], temperature: float | None = None
) -> list[float]:
    """How often each corpus is drawn: weight * size ** (1 / temperature), made to sum to 1.

    Without a temperature (or with 1) and with equal weights every pair is as likely as any other;
    a weight of 2 makes each pair of its corpus twice as likely; a higher temperature brings
    corpora of different size closer to equal shares. A corpus of no pairs has no share.
    """
    if len(sizes) != len(weights):
        raise InputError(f"{len(sizes)} corpora and {len(weights)} weights: give one for each")
    if not any(sizes):
        raise InputError("no corpus has a pair left: there is nothing to draw from")
    largest = max(sizes)  # dividing by it keeps the powers near 1
    parts = [
        weight * (size / largest) ** (1 / (temperature or 1.0)) if size else 0.0
        for size, weight in zip(sizes, weights, strict=True)
    ]
    return [part / sum(parts) for part in parts]


def corpus_format(corpus: CorpusConfig) -> str:
    """The format of a corpus: as its settings say, or by the name of its file."""
    if corpus.path is None:
        return "parallel"
    if corpus.format != "auto":
        return corpus.format
    name = corpus.path.name.lower()
    suffix = Path(name.removesuffix(".gz").removesuffix(".zst")).suffix
    if suffix not in SUFFIXES:
        raise InputError(
            f"what {corpus.path} holds cannot be told from its name: set format to 'tsv', "
            "'jsonl', 'tmx' or 'po', or give two files as source and target"
        )
    return SUFFIXES[suffix]


def _records(corpus: CorpusConfig) -> Iterator[Record]:
    kind = corpus_format(corpus)
    if corpus.path is None:
        assert corpus.source is not None  # the settings see to it
        assert corpus.target is not None
        return _parallel(corpus.source, corpus.target)
    # lxml and polib are imported only where they are needed
    if kind == "tmx":
        from pellucid.data.formats.tmx_pairs import read_tmx

        return read_tmx(corpus.path, corpus.languages)
    if kind == "po":
        from pellucid.data.formats.po_pairs import read_catalogue

        return read_catalogue(corpus.path, corpus.languages)
    if kind == "jsonl":
        return _jsonl(corpus.path, corpus.languages, corpus.keys)
    return _tsv(corpus.path, corpus.columns)


def _tsv(path: Path, columns: tuple[int, int] | None) -> Iterator[Record]:
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


class _End:
    """What stands for a line after the last."""


def _parallel(source: Path, target: Path) -> Iterator[Record]:
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


def _jsonl(
    path: Path, languages: tuple[str, str], keys: tuple[str, str] | None
) -> Iterator[Record]:
    for line in read_lines(path):
        if line is None:
            yield "", "", "too_long"
        elif not line.strip():
            yield "", "", ""
        else:
            yield _json_record(line, languages, keys)


def _json_record(line: str, languages: tuple[str, str], keys: tuple[str, str] | None) -> Record:
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
    # JSON can spell half a character ("\ud800"), which no UTF-8 can hold
    first, second = (_SURROGATE.sub("\ufffd", side) for side in sides)
    return first, second, ""


def _nothing_found(corpus: CorpusConfig, number: int, example: str) -> str:
    """The message for a corpus in which every record was malformed."""
    shown = example if len(example) <= 60 else example[:60] + "..."
    where = f"{corpus.path} has no sentence pair in it"
    if corpus_format(corpus) == "jsonl":
        keys = corpus.keys or corpus.languages
        return (
            f"{where}: each line must be a JSON object with {keys[0]!r} and {keys[1]!r} (line "
            f"{number} is {shown!r}); set keys if they have other names"
        )
    if corpus.columns is not None:
        return f"{where}: no line has {max(corpus.columns)} columns (line {number} is {shown!r})"
    return (
        f"{where}: each line must be two columns with a tab between (line {number} has "
        f"{example.count(chr(9)) + 1}: {shown!r}); set columns if there are more"
    )
