"""Corpora as streams of sentence pairs, whatever the file format.

| format   | files          | a pair is                                                     |
|----------|----------------|---------------------------------------------------------------|
| tsv      | .tsv .txt .tab | a line: the two sides with a tab between                      |
| parallel | any two        | line N of `source` and line N of `target`                     |
| jsonl    | .jsonl .ndjson | a line: {"en": ..., "fr": ...}, also inside "translation"     |
| tmx      | .tmx           | a translation unit (tu) with a variant (tuv) in each language |
| po       | .po .pot .mo   | an entry: msgid and msgstr; two pairs if it has plural forms  |

All may be compressed (gzip, zstd). The readers in `formats/` drop and repair nothing: the problem
of a pair is recorded on it (`Pair.problem`), so that numbers never shift and `cleaning` can count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pellucid.config import CorpusConfig
from pellucid.data.formats import Record
from pellucid.data.formats.jsonl_pairs import read_jsonl_pairs
from pellucid.data.formats.parallel_pairs import read_parallel_pairs
from pellucid.data.formats.tsv_pairs import read_tsv_pairs
from pellucid.errors import InputError

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


@dataclass(frozen=True, slots=True)
class Pair:
    """One sentence pair as read from its corpus."""

    first: str
    """Text in `languages[0]`."""

    second: str
    """Text in `languages[1]`."""

    number: int
    """1-based number of the pair in its corpus (line, unit, entry); never shifts."""

    problem: str = ""
    """What the reader found wrong, as the name of a `cleaning.Verdict` ("malformed", "too_long",
    "fuzzy", "obsolete"); empty if nothing."""


def read_pairs(corpus: CorpusConfig) -> Iterator[Pair]:
    """Read every pair of a corpus in order, numbered from 1, in constant memory; drop nothing.

    A problem of the whole corpus (a missing file, different numbers of lines, a missing language,
    not one pair in it) is an `InputError`, raised after the last pair if it shows only then.
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
        raise InputError(_no_pair_message(corpus, *malformed))


def mixing_shares(
    sizes: Sequence[int], weights: Sequence[float], temperature: float | None = None
) -> list[float]:
    """Return the sampling probability of each corpus: weight * size ** (1 / temperature), scaled to
    sum to 1.

    Without a temperature (or with 1) and with equal weights, all pairs are equally likely. A
    weight of 2 makes each pair of its corpus twice as likely; a higher temperature brings corpora
    of different sizes closer to equal probabilities. An empty corpus has probability 0.
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
    """Return the format of a corpus: the one in its settings, or by its file name."""
    if corpus.path is None:
        return "parallel"
    if corpus.format != "auto":
        return corpus.format
    name = corpus.path.name.lower()
    suffix = Path(name.removesuffix(".gz").removesuffix(".zst")).suffix
    if suffix not in SUFFIXES:
        raise InputError(
            f"the format of {corpus.path} cannot be told from its name: set format to 'tsv', "
            "'jsonl', 'tmx' or 'po', or give two files as source and target"
        )
    return SUFFIXES[suffix]


def _records(corpus: CorpusConfig) -> Iterator[Record]:
    if corpus.path is None:
        assert corpus.source is not None  # the settings guarantee both
        assert corpus.target is not None
        return read_parallel_pairs(corpus.source, corpus.target)
    kind = corpus_format(corpus)
    # lxml and polib are imported only where they are needed
    if kind == "tmx":
        from pellucid.data.formats.tmx_pairs import read_tmx_pairs

        return read_tmx_pairs(corpus.path, corpus.languages)
    if kind == "po":
        from pellucid.data.formats.po_pairs import read_po_pairs

        return read_po_pairs(corpus.path, corpus.languages)
    if kind == "jsonl":
        return read_jsonl_pairs(corpus.path, corpus.languages, corpus.keys)
    return read_tsv_pairs(corpus.path, corpus.columns)


def _no_pair_message(corpus: CorpusConfig, number: int, example: str) -> str:
    """Return the error message for a corpus in which every record is malformed."""
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
