"""The test set: sources and references, read and checked before anything is translated."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pellucid.config import CorpusConfig
from pellucid.data.corpus import corpus_format, read_pairs
from pellucid.errors import InputError
from pellucid.storage.lines import read_lines

Lines = Path | str | Sequence[str]
"""A file with a sentence a line, or the sentences themselves."""

_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
_WORD = re.compile(f"[{_UNSPACED}]|[^\\s{_UNSPACED}]+")


@dataclass(frozen=True)
class EvaluationSet:
    """Sentences with their references."""

    sources: list[str]
    references: list[list[str]]
    """One list for each set of references, each as long as `sources`."""
    source_name: str = "source"
    reference_names: list[str] = field(default_factory=list)
    left_out: int = 0
    """Catalogue entries that are not translations: fuzzy or obsolete."""

    def __len__(self) -> int:
        return len(self.sources)

    def references_of(self, index: int) -> list[str]:
        """Return the references of one sentence."""
        return [reference[index] for reference in self.references]


def words(text: str) -> list[str]:
    """Split a text at spaces; in scripts without spaces, into characters."""
    return _WORD.findall(text)


def nearest_in_length(text: str, references: Sequence[str]) -> str:
    """Return the reference closest in length to a text, in characters."""
    return min(references, key=lambda reference: abs(len(reference) - len(text)))


def load_lines(given: Lines, what: str = "") -> tuple[str, list[str]]:
    """Return a name for the lines, and the lines; an empty file is an `InputError`."""
    if not isinstance(given, Path | str):
        if not given:
            raise InputError(f"no sentences are given as {what}")
        return what, [str(line) for line in given]
    path = Path(given)
    lines = []
    for number, line in enumerate(read_lines(path), start=1):
        if line is None:
            raise InputError(f"line {number:,} of {path} is longer than 1 MB: is this text?")
        lines.append(line)
    if not lines:
        raise InputError(f"{path} is empty: it must have a sentence a line")
    return str(path), lines


def read_sides(source: Lines, references: Sequence[Lines]) -> EvaluationSet:
    """Read a source and one or more references, all of the same length."""
    name, sources = load_lines(source, "source")
    names, sides = [], []
    for number, given in enumerate(references, start=1):
        what = "reference" if len(references) == 1 else f"reference {number}"
        reference_name, lines = load_lines(given, what)
        check_same_length(name, sources, reference_name, lines)
        names.append(reference_name)
        sides.append(lines)
    if not sides:
        raise InputError("there is no reference to compare with: give --reference FILE")
    return EvaluationSet(sources, sides, name, names)


def check_same_length(name: str, lines: Sequence[str], other: str, others: Sequence[str]) -> None:
    """Raise an `InputError` with both counts, unless they are equal."""
    if len(lines) != len(others):
        raise InputError(
            f"{name} has {len(lines):,} lines and {other} has {len(others):,}: line N of one must "
            "belong to line N of the other, so the numbers must be equal"
        )


def read_pairs_file(
    path: Path, languages: tuple[str, str], direction: tuple[str, str]
) -> EvaluationSet:
    """Read both sides from one file; `direction` decides which is the source."""
    if sorted(direction) != sorted(languages):
        raise InputError(
            f"{path} has {languages[0]} and {languages[1]}, and the translation is from "
            f"{direction[0]} to {direction[1]}: say what the file has with --languages, and the "
            "direction with --from and --to"
        )
    corpus = CorpusConfig(path=path, languages=languages)
    try:
        numbered_by = "line" if corpus_format(corpus) in ("tsv", "jsonl") else "entry"
    except InputError:
        raise InputError(
            f"what {path} holds cannot be told from its name: --pairs takes .tsv, .jsonl, .tmx, "
            ".po and .mo (also .gz and .zst); give two files as --source and --reference"
        ) from None
    pairs, left_out = [], 0
    for pair in read_pairs(corpus):
        if pair.problem in ("fuzzy", "obsolete"):
            left_out += 1
        elif pair.problem:
            raise InputError(
                f"{numbered_by} {pair.number:,} of {path} is not a pair "
                f"({pair.problem.replace('_', ' ')}): fix it, since no sentence of a test may be "
                "left out"
            )
        else:
            pairs.append((pair.first, pair.second))
    if not pairs:
        raise InputError(f"{path} has no sentence pair in it")
    swapped = direction[0] != languages[0]
    sources, targets = ([pair[side] for pair in pairs] for side in ((1, 0) if swapped else (0, 1)))
    return EvaluationSet(sources, [targets], str(path), [str(path)], left_out)


def matching_direction(
    languages: tuple[str, str], directions: Iterable[tuple[str, str]]
) -> tuple[str, str] | None:
    """Return the first direction between two languages, in either order."""
    wanted = sorted(languages)
    return next((one for one in directions if sorted(one) == wanted), None)
