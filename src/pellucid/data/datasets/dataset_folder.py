"""The folder of a prepared dataset: train, valid and test as .tsv.gz, a README and a manifest."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pellucid.data.cleaning import CleaningReport
from pellucid.errors import InputError, PellucidError
from pellucid.storage.files import file_hash
from pellucid.storage.folder import MANIFEST, FolderDraft


@dataclass(frozen=True)
class DatasetFolder:
    """A dataset that is ready for use."""

    directory: Path
    name: str
    pairs: dict[str, int]
    """Number of pairs in each split."""

    report: CleaningReport
    """How many pairs of the source were kept and dropped, and why."""

    fresh: bool
    """Whether this call created it, rather than found it complete."""

    def summary(self) -> str:
        """Return one line with its path and the number of pairs of each split."""
        counts = ", ".join(f"{split} {count:,}" for split, count in self.pairs.items())
        return f"{self.directory} {'is ready' if self.fresh else 'was ready before'}: {counts}"


def find_prepared(directory: Path, recipe: Mapping[str, Any]) -> DatasetFolder | None:
    """Return the dataset in a folder, if it is undamaged and was made by the same recipe.

    `recipe` is what the dataset depends on (its name, version, source). A folder that holds
    something else is an `InputError`, so that no other files are overwritten.
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
            file_hash(directory / name) == sha256 for name, sha256 in manifest["files"].items()
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
    """Write `NAME.tsv.gz` for each split, further gzipped files of lines, the README (to which
    counts and hashes are added) and, last, the manifest.

    A new folder appears whole or not at all, and the same content gives the same bytes.
    """
    with _published(directory) as draft:
        pairs = {
            split: _write_lines(draft, f"{split}.tsv.gz", ("\t".join(row) for row in rows))
            for split, rows in splits.items()
        }
        for name, lines in (extra or {}).items():
            _write_lines(draft, name, lines)
        hashes = {name: draft.files[name]["sha256"] for name in sorted(draft.files)}
        text = readme + _summary(pairs, hashes, report)
        hashes["README.md"] = draft.write("README.md", text)["sha256"]
        manifest = {
            "recipe": recipe,
            "pairs": pairs,
            "files": hashes,
            "report": report.as_dict(),
        }
        draft.write(MANIFEST, json.dumps(manifest, ensure_ascii=False, indent=1) + "\n")
    return DatasetFolder(directory, recipe["name"], pairs, report, fresh=True)


@contextmanager
def _published(directory: Path) -> Iterator[FolderDraft]:
    """A draft of the folder, put in its place after the block."""
    directory = directory.absolute()
    draft = FolderDraft(directory)
    try:
        draft.begin()
        yield draft
        if directory.exists() and any(directory.iterdir()):
            # An older or damaged one of ours, perhaps with files of the user's, which stay.
            draft.publish_into()
        else:
            draft.publish()
    except OSError as error:
        raise PellucidError(
            f"cannot write {directory} ({error.strerror}): check the place and its free space"
        ) from None
    finally:
        draft.discard()


def _write_lines(draft: FolderDraft, name: str, lines: Iterable[str]) -> int:
    count = 0
    # no name and no time in the gzip header, so that the same lines give the same file
    with (
        draft.open(name) as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed,
        io.BufferedWriter(packed, 1 << 16) as file,
    ):
        for line in lines:
            file.write(line.encode() + b"\n")
            count += 1
    return count


def _summary(pairs: Mapping[str, int], sums: Mapping[str, str], report: CleaningReport) -> str:
    """Return the end of the README: the files, and what was left out."""
    lines = ["", "## Files", "", "| file | pairs | sha256 |", "|---|---|---|"]
    for name, sha256 in sums.items():
        count = pairs.get(name.removesuffix(".tsv.gz"))
        lines.append(f"| {name} | {'' if count is None else f'{count:,}'} | `{sha256}` |")
    lines += ["", "## What became of the pairs", "", "| verdict | pairs |", "|---|---|"]
    lines += [f"| {verdict} | {count:,} |" for verdict, count in report.as_dict()["counts"].items()]
    return "\n".join(lines) + "\n"
