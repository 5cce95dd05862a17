"""Multi30k: image descriptions in English, German and French, from files that the user has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from pellucid.config import CleaningConfig, CorpusConfig, split_direction
from pellucid.data.cleaning import CleaningReport, clean_text, is_dropped, judge
from pellucid.data.corpus import read_pairs
from pellucid.data.datasets.dataset_folder import (
    DatasetFolder,
    find_prepared,
    write_prepared,
)
from pellucid.errors import InputError
from pellucid.storage.files import file_hash

NAME = "multi30k"

# File names of each split in the wild, each followed by a dot and a language.
FILE_NAMES = {
    "train": ("train",),
    "valid": ("val", "valid", "validation", "dev"),
    "test": ("test_2016_flickr", "test2016", "flickr2016", "test"),
}

README = """# Multi30k, {first} and {second}

Descriptions of images, in English (Flickr30k) with translations by people into German
(Elliott, Frank, Sima'an and Specia, 2016) and French (Elliott, Frank, Barrault, Bougares and
Specia, 2017), with the official split; `test` is `test_2016_flickr`. Prepared by
`pellucid data multi30k` from files that you had: the licence is the one they came to you with.

Each line is {first}, a tab, {second}, in UTF-8. The lines of valid and test are those of the
original, all of them and in order.
"""


def prepare_multi30k(
    origin: Path,
    directory: Path,
    pair: str = "en-de",
    say: Callable[[str], None] = lambda step: None,
) -> DatasetFolder:
    """Write two languages of Multi30k to a folder, from the files in `origin`."""
    languages = split_direction(pair)
    if not origin.is_dir():
        raise InputError(f"there is no folder {origin}: say where the files of Multi30k are")
    files = {
        split: (_find(origin, names, languages[0]), _find(origin, names, languages[1]))
        for split, names in FILE_NAMES.items()
    }
    source_hashes = {file.name: file_hash(file) for both in files.values() for file in both}
    recipe = {"name": NAME, "version": 1, "pair": pair, "source": source_hashes}
    if there := find_prepared(directory, recipe):
        return there
    report = CleaningReport(CleaningConfig())
    splits: dict[str, list[tuple[str, str]]] = {}
    for split, (source, target) in files.items():
        say(f"reading {split}")
        corpus = CorpusConfig(source=source, target=target, languages=languages)
        # Others report scores on these test sets: lines are cleaned, but none is dropped.
        rows = _kept_pairs(corpus, report) if split == "train" else _all_lines(corpus)
        splits[split] = list(rows)
    say(f"writing {directory}")
    readme = README.format(first=languages[0], second=languages[1])
    return write_prepared(directory, recipe, splits, report, readme)


def _kept_pairs(corpus: CorpusConfig, report: CleaningReport) -> Iterator[tuple[str, str]]:
    for raw in read_pairs(corpus):
        verdict, pair = judge(raw, report.config)
        report.add(verdict, pair)
        if not is_dropped(verdict, report.config):
            yield pair.first, pair.second


def _all_lines(corpus: CorpusConfig) -> Iterator[tuple[str, str]]:
    for pair in read_pairs(corpus):
        yield clean_text(pair.first), clean_text(pair.second)


def _find(folder: Path, names: tuple[str, ...], language: str) -> Path:
    """Find the file of a split in a language, under any of its names."""
    for name in names:
        for suffix in ("", ".gz", ".zst"):
            file = folder / f"{name}.{language}{suffix}"
            if file.is_file():
                return file
    raise InputError(
        f"{folder} has no {names[0]}.{language} (nor {names[0]}.{language}.gz): "
        "check the folder and --pair"
    )
