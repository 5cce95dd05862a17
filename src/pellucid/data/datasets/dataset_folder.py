"""A folder with a prepared corpus: train, valid and test as .tsv.gz, a README and a manifest."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pellucid.data.cleaning import CleaningReport
from pellucid.errors import InputError, PellucidError

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class DatasetFolder:
    """A corpus that is ready for use."""

    directory: Path
    name: str
    pairs: dict[str, int]
    """How many pairs each split has."""

    report: CleaningReport
    """What became of the pairs of the source."""

    fresh: bool
    """False if it was there before, complete, and nothing was done."""

    def summary(self) -> str:
        """One line: where it is, and how many pairs it has."""
        counts = ", ".join(f"{split} {count:,}" for split, count in self.pairs.items())
        return f"{self.directory} {'is ready' if self.fresh else 'was ready before'}: {counts}"


def find_prepared(directory: Path, recipe: Mapping[str, Any]) -> DatasetFolder | None:
    """The corpus in a folder, if it is there, made by the same recipe, and undamaged.

    `recipe` is what the corpus depends on (its name, version, source). A folder that holds
    something else is an `InputError`, so that nobody's files are overwritten.
    """
    if not directory.exists():
        return None
    if not directory.is_dir():
        raise InputError(f"{directory} is a file: name a folder to write to")
    try:
        manifest = json.loads((directory / MANIFEST).read_bytes())
        if manifest["recipe"]["name"] != recipe["name"]:
            raise InputError(
                f"{directory} holds another corpus ({manifest['recipe']['name']}): "
                "name a new folder"
            )
        whole = manifest["recipe"] == recipe and all(
            file_sha256(directory / name) == sha256 for name, sha256 in manifest["files"].items()
        )
        if not whole:
            return None
        report = CleaningReport.from_dict(manifest["report"])
        return DatasetFolder(directory, recipe["name"], manifest["pairs"], report, fresh=False)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        if any(directory.iterdir()) and not (directory / MANIFEST).exists():
            raise InputError(
                f"{directory} has other files in it: name a new folder, or an empty one"
            ) from None
        return None


def write_prepared(
    directory: Path,
    recipe: Mapping[str, Any],
    splits: Mapping[str, Iterable[tuple[str, str]]],
    report: CleaningReport,
    readme: str,
    extra: Mapping[str, Iterable[str]] | None = None,
) -> DatasetFolder:
    """Write a folder: `NAME.tsv.gz` for each split, further gzipped files of lines, the README
    (to which counts and hashes are added) and, last, the manifest.

    The folder appears as a whole or not at all, and the same content gives the same bytes.
    """
    with _appearing(directory) as partial:
        pairs = {
            split: _write_lines(partial / f"{split}.tsv.gz", ("\t".join(row) for row in rows))
            for split, rows in splits.items()
        }
        for name, lines in (extra or {}).items():
            _write_lines(partial / name, lines)
        sums = {file.name: file_sha256(file) for file in sorted(partial.iterdir())}
        (partial / "README.md").write_text(
            readme + _summary(pairs, sums, report), encoding="utf-8", newline="\n"
        )
        sums["README.md"] = file_sha256(partial / "README.md")
        manifest = {
            "recipe": recipe,
            "pairs": pairs,
            "files": sums,
            "report": report.as_dict(),
        }
        (partial / MANIFEST).write_text(
            json.dumps(manifest, ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
        )
    return DatasetFolder(directory, recipe["name"], pairs, report, fresh=True)


@contextmanager
def _appearing(directory: Path) -> Iterator[Path]:
    """A folder to write to, which takes its place when it is complete."""
    directory = directory.absolute()
    partial = directory.with_name(f".{directory.name}.partial-{os.getpid()}")
    try:
        partial.mkdir(parents=True)
        yield partial
        if not directory.exists() or not any(directory.iterdir()):
            if directory.exists():
                directory.rmdir()
            partial.rename(directory)
        else:
            # An older or damaged one of ours, perhaps with files of the user's: replace ours. Its
            # manifest does not fit any of the new files, so no mixture passes for complete.
            for file in sorted(partial.iterdir(), key=lambda file: file.name == MANIFEST):
                file.replace(directory / file.name)
    except OSError as error:
        raise PellucidError(
            f"cannot write {directory} ({error.strerror}): check the place and its free space"
        ) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_lines(path: Path, lines: Iterable[str]) -> int:
    count = 0
    # no name and no time in the gzip header: the same lines make the same file
    with (
        path.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed,
        io.BufferedWriter(packed, 1 << 16) as file,
    ):
        for line in lines:
            file.write(line.encode() + b"\n")
            count += 1
    return count


def file_sha256(path: Path) -> str:
    """The sha256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _summary(pairs: Mapping[str, int], sums: Mapping[str, str], report: CleaningReport) -> str:
    """The end of the README: what the files hold, and what was left out."""
    lines = ["", "## Files", "", "| file | pairs | sha256 |", "|---|---|---|"]
    for name, sha256 in sums.items():
        count = pairs.get(name.removesuffix(".tsv.gz"))
        lines.append(f"| {name} | {'' if count is None else f'{count:,}'} | `{sha256}` |")
    lines += ["", "## What became of the pairs", "", "| verdict | pairs |", "|---|---|"]
    lines += [f"| {verdict} | {count:,} |" for verdict, count in report.as_dict()["counts"].items()]
    return "\n".join(lines) + "\n"
