"""Corpora that Pellucid knows how to prepare: `pellucid data NAME DIR`.

Each is written as train, valid and test (.tsv.gz, the two languages in two columns) with a README
that says where it comes from, under which licence, and what was changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from pellucid.config import CleaningConfig, CorpusConfig, split_direction
from pellucid.data.cleaning import CleaningReport, clean_text, is_dropped, judge
from pellucid.data.corpus import read_pairs
from pellucid.data.datasets import tatoeba
from pellucid.data.datasets.dataset_folder import (
    DatasetFolder,
    file_sha256,
    find_prepared,
    write_prepared,
)
from pellucid.errors import InputError, nearest

KNOWN = {
    tatoeba.NAME: "English and French sentences of Tatoeba, fetched through pip (CC-BY 2.0 FR)",
    "multi30k": "image descriptions (en, de, fr), from a folder that you have: --from FOLDER",
}

# Names under which Multi30k's parts go about, each with a language after a dot.
MULTI30K_PARTS = {
    "train": ("train",),
    "valid": ("val", "valid", "validation", "dev"),
    "test": ("test_2016_flickr", "test2016", "flickr2016", "test"),
}

MULTI30K_README = """# Multi30k, {first} and {second}

Descriptions of images, in English (Flickr30k) with translations by people into German
(Elliott, Frank, Sima'an and Specia, 2016) and French (Elliott, Frank, Barrault, Bougares and
Specia, 2017), with the official split; `test` is `test_2016_flickr`. Prepared by
`pellucid data multi30k` from files that you had: the licence is the one they came to you with.

Each line is {first}, a tab, {second}, in UTF-8. The lines of valid and test are those of the
original, all of them and in order.
"""


def prepare_known(
    name: str,
    directory: Path,
    origin: Path | None = None,
    pair: str | None = None,
    say: Callable[[str], None] = lambda step: None,
) -> DatasetFolder:
    """Prepare a corpus by its name into a folder; if it is there already, it is left as it is.

    `origin` is where the user has the source: the folder of Multi30k, or (instead of a fetch) the
    file for Tatoeba. `pair` chooses two languages where there are more, e.g. "en-de". `say` is
    told of each step.
    """
    if name not in KNOWN:
        raise InputError(f"unknown corpus {name!r}: {nearest(name, list(KNOWN))}")
    if name == "multi30k":
        if origin is None:
            raise InputError("multi30k is not fetched: say with --from where you have its files")
        return prepare_multi30k(origin, directory, pair or "en-de", say)
    if pair not in (None, "en-fr", "fr-en"):
        raise InputError(f"{name} is English and French: leave --pair out")
    if origin is None:
        return tatoeba.prepare_tatoeba(directory, say=say)
    return tatoeba.prepare_tatoeba(directory, fetch=lambda _: origin, say=say)


def prepare_multi30k(
    origin: Path,
    directory: Path,
    pair: str = "en-de",
    say: Callable[[str], None] = lambda step: None,
) -> DatasetFolder:
    """Write two languages of Multi30k to a folder, from the files in another."""
    languages = split_direction(pair)
    if not origin.is_dir():
        raise InputError(f"there is no folder {origin}: say where the files of Multi30k are")
    files = {
        split: (_find(origin, stems, languages[0]), _find(origin, stems, languages[1]))
        for split, stems in MULTI30K_PARTS.items()
    }
    source_hashes = {file.name: file_sha256(file) for both in files.values() for file in both}
    recipe = {"name": "multi30k", "version": 1, "pair": pair, "source": source_hashes}
    if there := find_prepared(directory, recipe):
        return there
    report = CleaningReport(CleaningConfig())
    splits: dict[str, list[tuple[str, str]]] = {}
    for split, (source, target) in files.items():
        say(f"reading {split}")
        corpus = CorpusConfig(source=source, target=target, languages=languages)
        # A test set is what others measured on: its lines are cleaned, but none is dropped.
        rows = _cleaned(corpus, report) if split == "train" else _as_they_are(corpus)
        splits[split] = list(rows)
    say(f"writing {directory}")
    readme = MULTI30K_README.format(first=languages[0], second=languages[1])
    return write_prepared(directory, recipe, splits, report, readme)


def _cleaned(corpus: CorpusConfig, report: CleaningReport) -> Iterator[tuple[str, str]]:
    for raw in read_pairs(corpus):
        verdict, pair = judge(raw, report.config)
        report.add(verdict, pair)
        if not is_dropped(verdict, report.config):
            yield pair.first, pair.second


def _as_they_are(corpus: CorpusConfig) -> Iterator[tuple[str, str]]:
    for pair in read_pairs(corpus):
        yield clean_text(pair.first), clean_text(pair.second)


def _find(folder: Path, stems: tuple[str, ...], language: str) -> Path:
    """The file of one part in one language, under any of its names."""
    for stem in stems:
        for suffix in ("", ".gz", ".zst"):
            file = folder / f"{stem}.{language}{suffix}"
            if file.is_file():
                return file
    raise InputError(
        f"{folder} has no {stems[0]}.{language} (nor {stems[0]}.{language}.gz): "
        "check the folder and --pair"
    )
