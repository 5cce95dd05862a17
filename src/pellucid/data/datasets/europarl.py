"""Europarl: proceedings of the European Parliament, from the archive that the user downloaded.

Two public releases are read: the Moses-format archive (`fr-en.tgz`, with `europarl-v7.fr-en.en` and
`.fr`) and OPUS's zip (`en-fr.txt.zip`, with `Europarl.en-fr.en` and `.fr`); also a folder that has
the two unpacked files. Line N of one file translates line N of the other.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from typing import IO, Any

from pellucid.config import CleaningConfig, split_direction
from pellucid.data.cleaning import CleaningReport, Verdict, is_dropped, judge, pair_hash
from pellucid.data.corpus import Pair
from pellucid.data.datasets.dataset_folder import DatasetFolder, find_prepared, write_prepared
from pellucid.data.splits import normalise, sentence_hash
from pellucid.errors import InputError
from pellucid.storage.files import file_hash

NAME = "europarl"
VERSION = 1
HELD_OUT = {"valid": 2000, "test": 2000}
"""Number of pairs of each held-out split, or a hundredth of a smaller corpus."""

MAX_WORDS = 100
_MARKUP = re.compile(r"\s*<[^>]*>\s*$")

README = """# Europarl, {first} and {second}

Proceedings of the European Parliament (Philipp Koehn, *Europarl: A Parallel Corpus for Statistical
Machine Translation*, 2005), from a release that you downloaded ({source}), prepared by
`pellucid data europarl`. The texts may be reused with the source named.

**Changes:** lines of markup, empty lines and pairs of very different length are left out, as are
duplicates{excluded}. `valid` and `test` are drawn by hash; no sentence of theirs, up to case and
punctuation, is in `train`.

Each line is {first}, a tab, {second}, in UTF-8.
"""


def prepare_europarl(
    origin: Path,
    directory: Path,
    pair: str,
    say: Callable[[str], None] = lambda step: None,
    excluded: Set[str] = frozenset(),
) -> DatasetFolder:
    """Write two languages of Europarl to a folder, from a release in `origin`.

    `excluded` has the hashes of sentences that must stay unseen (`splits.sentence_hash`).
    """
    languages = split_direction(pair)
    say(f"checking {origin.name}")
    for side in languages:
        with _open_side(origin, side, languages):
            pass  # a missing side is an error before anything is read
    files = [origin] if origin.is_file() else sorted(p for p in origin.iterdir() if p.is_file())
    digest = {file.name: file_hash(file) for file in files}
    recipe: dict[str, Any] = {"name": NAME, "version": VERSION, "pair": pair, "source": digest}
    if there := find_prepared(directory, recipe):
        return there
    config = CleaningConfig(drop_duplicates=True, drop_copies=True, max_words=MAX_WORDS)

    say("choosing held-out sentences")
    ranked: list[tuple[int, Pair]] = []
    total = 0
    for kept, cleaned in _cleaned(origin, languages, config, excluded):
        if kept == Verdict.kept:
            total += 1
            ranked.append((_rank(cleaned), cleaned))
            if len(ranked) > 20 * sum(HELD_OUT.values()):
                ranked = _lowest(ranked)
    chosen = _lowest(ranked)
    counts = {split: min(size, total // 100) for split, size in HELD_OUT.items()}
    rows: dict[str, list[tuple[str, str]]] = {}
    held: set[str] = set()
    start = 0
    for split, count in counts.items():
        # a sentence said on two days belongs to one split only, on either side
        some = [
            p
            for _, p in chosen[start:]
            if held.isdisjoint((normalise(p.first), normalise(p.second)))
        ]
        rows[split] = [(p.first, p.second) for p in some[:count]]
        held |= {normalise(side) for row in rows[split] for side in row}
        start += count

    say(f"writing {directory}")
    report = CleaningReport(config)

    def train() -> Iterator[tuple[str, str]]:
        for verdict, cleaned in _cleaned(origin, languages, config, excluded):
            report.add(verdict, cleaned)
            if is_dropped(verdict, config):
                continue
            if normalise(cleaned.first) in held or normalise(cleaned.second) in held:
                continue
            yield cleaned.first, cleaned.second

    readme = README.format(
        first=languages[0],
        second=languages[1],
        source=origin.name,
        excluded=", and pairs with a sentence of a public test set" if excluded else "",
    )
    # train is written first and lazily, so that a corpus of millions need not fit into memory
    return write_prepared(directory, recipe, {"train": train(), **rows}, report, readme)


def _rank(pair: Pair) -> int:
    digest = hashlib.sha256(f"europarl\n{pair.first}\n{pair.second}".encode()).digest()
    return int.from_bytes(digest[:8], "big")


def _lowest(ranked: list[tuple[int, Pair]]) -> list[tuple[int, Pair]]:
    """Return the pairs with the lowest ranks, twice as many as are held out."""
    return sorted(ranked, key=lambda one: one[0])[: 2 * sum(HELD_OUT.values())]


def _cleaned(
    origin: Path, languages: tuple[str, str], config: CleaningConfig, excluded: Set[str]
) -> Iterator[tuple[Verdict, Pair]]:
    """Yield every pair of a release, cleaned, with its verdict."""
    seen: set[int] = set()
    for number, (first, second) in enumerate(_lines(origin, languages), start=1):
        if _MARKUP.match(first) or _MARKUP.match(second):
            first = second = ""  # <CHAPTER ID=1>, <SPEAKER ...>: no text of the proceedings
        verdict, pair = judge(Pair(first, second, number), config)
        if verdict == Verdict.kept:
            key = pair_hash(pair)
            if key in seen:
                verdict = Verdict.duplicate
            elif excluded and any(
                sentence_hash(side) in excluded for side in (pair.first, pair.second)
            ):
                verdict = Verdict.excluded
            seen.add(key)
        yield verdict, pair


def _lines(origin: Path, languages: tuple[str, str]) -> Iterator[tuple[str, str]]:
    with contextlib.ExitStack() as stack:
        first, second = (
            stack.enter_context(_open_side(origin, side, languages)) for side in languages
        )
        missing = object()
        pairs = itertools.zip_longest(first, second, fillvalue=missing)
        for number, (one, other) in enumerate(pairs, start=1):
            if one is missing or other is missing:
                longer, shorter = (1, 0) if one is missing else (0, 1)
                raise InputError(
                    f"{origin.name}: the {languages[longer]} side has more lines than the "
                    f"{languages[shorter]} side, which ends after {number - 1:,}: get it again"
                )
            yield _text(one), _text(other)


def _text(line: bytes | object) -> str:
    assert isinstance(line, bytes)
    return line.rstrip(b"\r\n").decode("utf-8", "replace")


def _fits(name: str, side: str, languages: tuple[str, str]) -> bool:
    """Return whether a file is one side of a pair, e.g. europarl-v7.fr-en.en."""
    base = name.rsplit("/", 1)[-1].lower()
    ways = ("-".join(languages), "-".join(reversed(languages)))
    return any(re.fullmatch(rf"europarl[\w.-]*\.{way}\.{side}", base) for way in ways)


@contextlib.contextmanager
def _open_side(origin: Path, side: str, languages: tuple[str, str]) -> Iterator[IO[bytes]]:
    """Open one language's file in an archive or a folder."""
    pair = "-".join(languages)
    try:
        if origin.is_dir():
            found = [p for p in sorted(origin.iterdir()) if _fits(p.name, side, languages)]
            if found:
                with found[0].open("rb") as file:
                    yield file
                return
        elif zipfile.is_zipfile(origin):
            with zipfile.ZipFile(origin) as packed:
                inside = [name for name in packed.namelist() if _fits(name, side, languages)]
                if inside:
                    with packed.open(inside[0]) as file:
                        yield file
                    return
        else:
            with tarfile.open(origin, "r:*") as tar:
                for member in tar:
                    if member.isfile() and _fits(member.name, side, languages):
                        opened = tar.extractfile(member)
                        assert opened is not None
                        with opened as file:
                            yield file
                        return
    except FileNotFoundError:
        raise InputError(f"there is no {origin}: give the release that you downloaded") from None
    except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise InputError(f"cannot read {origin} ({error}): download it again") from None
    raise InputError(
        f"{origin} has no Europarl file of the {side} side of {pair}: check --pair, or give the "
        f"release of that pair, e.g. {pair}.tgz or {pair}.txt.zip"
    )
