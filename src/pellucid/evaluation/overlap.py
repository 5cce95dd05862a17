"""Test sentences that are in the training data, on which a score measures memorization."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pellucid.config import CorpusConfig
from pellucid.data.corpus import SUFFIXES, read_pairs
from pellucid.errors import InputError
from pellucid.evaluation.test_set import EvaluationSet
from pellucid.storage.lines import read_lines


@dataclass(frozen=True)
class Overlap:
    """Indices, from 0, of test sentences that are in the training data."""

    files: list[str]
    sources: list[int]
    """The source is there, letter for letter."""
    references: list[int]
    """A reference is."""
    similar: list[int]
    """The source or a reference is, ignoring case, punctuation and spaces; includes the above."""

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON: sentence numbers from 1."""
        return {
            "files": self.files,
            "sources": [index + 1 for index in self.sources],
            "references": [index + 1 for index in self.references],
            "similar": [index + 1 for index in self.similar],
        }


def find_overlap(
    test_set: EvaluationSet, files: Sequence[Path], languages: tuple[str, str] | None
) -> Overlap:
    """Search training data, in any format, for the sentences of a test set.

    Memory grows with the test set, not with the training data. languages: those of .jsonl, .tmx
    and catalogues, which cannot be read without them.
    """
    exact = {text for side in (test_set.sources, *test_set.references) for text in side}
    similar = {key for text in exact if (key := _key(text))}
    seen: set[str] = set()
    seen_similar: set[str] = set()
    for text in _texts(files, languages):
        if text in exact:
            seen.add(text)
        key = _key(text)
        if key in similar:
            seen_similar.add(key)
    rows = range(len(test_set))
    return Overlap(
        [str(file) for file in files],
        [i for i in rows if test_set.sources[i] in seen and test_set.sources[i].strip()],
        [i for i in rows if any(r in seen and r.strip() for r in test_set.references_of(i))],
        [
            i
            for i in rows
            if any(
                _key(text) in seen_similar
                for text in (test_set.sources[i], *test_set.references_of(i))
            )
        ],
    )


def _texts(files: Iterable[Path], languages: tuple[str, str] | None) -> Iterator[str]:
    for path in files:
        name = path.name.lower().removesuffix(".gz").removesuffix(".zst")
        if SUFFIXES.get(Path(name).suffix, "tsv") == "tsv":
            for line in read_lines(path):
                yield from (line or "").split("\t")
            continue
        if languages is None:
            raise InputError(f"to read {path}, its languages must be known: give --languages")
        for pair in read_pairs(CorpusConfig(path=path, languages=languages)):
            yield pair.first
            yield pair.second


def _key(text: str) -> str:
    """Letters and digits only, normalized (NFKC) and case-folded."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return "".join(filter(str.isalnum, plain))
