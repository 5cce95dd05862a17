"""Which sentences of a test stand in training data: on those, a score measures memory."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pellucid.config import CorpusConfig
from pellucid.data.corpus import SUFFIXES, read_pairs
from pellucid.errors import InputError
from pellucid.evaluation.test_set import Material
from pellucid.storage.lines import read_lines


@dataclass(frozen=True)
class Overlap:
    """Places, from 0, of test sentences that training data have."""

    files: list[str]
    sources: list[int]
    """The source stands there, letter for letter."""
    references: list[int]
    """A reference does."""
    similar: list[int]
    """The source or a reference does, but for case, punctuation and spaces; the above included."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the numbers of the sentences, from 1."""
        return {
            "files": self.files,
            "sources": [place + 1 for place in self.sources],
            "references": [place + 1 for place in self.references],
            "similar": [place + 1 for place in self.similar],
        }


def find_overlap(
    material: Material, files: Sequence[Path], languages: tuple[str, str] | None
) -> Overlap:
    """Read training data, in whatever format, and look for the sentences of a test in them.

    Memory is that of the test, however large the training data. languages: of .jsonl, .tmx and
    catalogues, which cannot be read without them.
    """
    exact = {text for side in (material.sources, *material.references) for text in side}
    similar = {key for text in exact if (key := _key(text))}
    seen: set[str] = set()
    seen_similar: set[str] = set()
    for text in _texts(files, languages):
        if text in exact:
            seen.add(text)
        key = _key(text)
        if key in similar:
            seen_similar.add(key)
    rows = range(len(material))
    return Overlap(
        [str(file) for file in files],
        [i for i in rows if material.sources[i] in seen and material.sources[i].strip()],
        [i for i in rows if any(r in seen and r.strip() for r in material.of(i))],
        [
            i
            for i in rows
            if any(_key(text) in seen_similar for text in (material.sources[i], *material.of(i)))
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
    """Letters and digits alone, in one form and one case."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return "".join(filter(str.isalnum, plain))
