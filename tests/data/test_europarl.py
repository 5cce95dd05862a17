"""Europarl's two releases, made on the spot."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from pellucid.data.datasets import prepare_dataset
from pellucid.data.datasets.europarl import prepare_europarl
from pellucid.data.splits import normalise, sentence_hash
from pellucid.errors import InputError

TOPICS = ["fisheries", "the budget", "energy", "transport", "the harvest", "tourism", "research"]
SUJETS = [
    "la pêche", "le budget", "l'énergie", "les transports", "la récolte", "le tourisme",
    "la recherche",
]  # fmt: skip


def lines() -> tuple[list[str], list[str]]:
    """A made-up debate: 700 sentences, markup, empty lines, a duplicate, a copy."""
    english, french = ["<CHAPTER ID=1>", ""], ["<CHAPTER ID=1>", ""]
    for number in range(700):
        topic = number % len(TOPICS)
        english.append(f"Mr President, speech {number} is about {TOPICS[topic]}.")
        french.append(f"Monsieur le Président, le discours {number} porte sur {SUJETS[topic]}.")
    english += [english[5], "Brussels, 2004", "One side only.", '<SPEAKER ID="3" NAME="Ada">']
    french += [french[5], "Brussels, 2004", "", '<SPEAKER ID="3" NAME="Ada">']
    return english, french


def packed(side: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in side).encode()


def moses(path: Path, english: bytes, french: bytes) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in (("europarl-v7.fr-en.en", english), ("europarl-v7.fr-en.fr", french)):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def opus(path: Path, english: bytes, french: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("README", "about the release")
        archive.writestr("Europarl.en-fr.en", english)
        archive.writestr("Europarl.en-fr.fr", french)
        archive.writestr("Europarl.en-fr.xml", "<x/>")
    return path


def rows(folder: Path, split: str) -> list[list[str]]:
    text = gzip.decompress((folder / f"{split}.tsv.gz").read_bytes()).decode()
    return [line.split("\t") for line in text.splitlines()]


@pytest.fixture(scope="module")
def debate() -> tuple[bytes, bytes]:
    english, french = lines()
    return packed(english), packed(french)


def test_both_releases_and_a_folder_give_the_same_pairs(
    tmp_path: Path, debate: tuple[bytes, bytes]
) -> None:
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    (unpacked / "europarl-v7.fr-en.en").write_bytes(debate[0])
    (unpacked / "europarl-v7.fr-en.fr").write_bytes(debate[1])
    origins = [
        moses(tmp_path / "fr-en.tgz", *debate),
        opus(tmp_path / "en-fr.txt.zip", *debate),
        unpacked,
    ]
    made = [
        prepare_dataset("europarl", tmp_path / f"out{n}", origin, "fr-en")
        for n, origin in enumerate(origins)
    ]  # fmt: skip
    for split in ("train", "valid", "test"):
        first, *others = (rows(folder.directory, split) for folder in made)
        assert all(one == first for one in others)
    first = made[0]
    assert sum(first.pairs.values()) == 700
    assert first.pairs["valid"] == first.pairs["test"] == 7
    french, english = rows(first.directory, "train")[0]
    assert french.startswith("Monsieur")
    assert english.startswith("Mr")
    assert first.report.counts["duplicate"] == 1
    assert first.report.counts["copy"] == 1
    assert not prepare_dataset("europarl", tmp_path / "out0", origins[0], "fr-en").fresh


def test_no_sentence_is_in_two_splits(tmp_path: Path, debate: tuple[bytes, bytes]) -> None:
    origin = moses(tmp_path / "fr-en.tgz", *debate)
    folder = prepare_europarl(origin, tmp_path / "out", "en-fr").directory
    sides = {
        split: {normalise(side) for row in rows(folder, split) for side in row}
        for split in ("train", "valid", "test")
    }
    assert not sides["train"] & (sides["valid"] | sides["test"])
    assert not sides["valid"] & sides["test"]


def test_sentences_of_a_test_set_stay_out(tmp_path: Path, debate: tuple[bytes, bytes]) -> None:
    unseen = lines()[0][10]
    origin = moses(tmp_path / "fr-en.tgz", *debate)
    made = prepare_europarl(origin, tmp_path / "out", "en-fr", excluded={sentence_hash(unseen)})
    everything = [row[0] for split in made.pairs for row in rows(made.directory, split)]
    assert unseen not in everything
    assert len(everything) == 699


def test_sides_of_different_length_are_refused(tmp_path: Path, debate: tuple[bytes, bytes]) -> None:
    origin = moses(tmp_path / "fr-en.tgz", debate[0] + b"One more.\n", debate[1])
    with pytest.raises(InputError, match=r"the en side has more lines than the fr side.*706"):
        prepare_europarl(origin, tmp_path / "out", "fr-en")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("pair", "message"), [("de-en", r"no Europarl file of the de side"), ("fr", r"'fr'")]
)
def test_another_pair_is_named(
    pair: str, message: str, tmp_path: Path, debate: tuple[bytes, bytes]
) -> None:
    origin = opus(tmp_path / "en-fr.txt.zip", *debate)
    with pytest.raises(InputError, match=message):
        prepare_dataset("europarl", tmp_path / "out", origin, pair)


def test_what_is_no_archive_is_named(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("no archive")
    with pytest.raises(InputError, match=r"cannot read .*notes\.txt"):
        prepare_dataset("europarl", tmp_path / "out", file, "fr-en")
    with pytest.raises(InputError, match=r"there is no .*gone\.tgz"):
        prepare_dataset("europarl", tmp_path / "out", tmp_path / "gone.tgz", "fr-en")
    with pytest.raises(InputError, match="--from"):
        prepare_dataset("europarl", tmp_path / "out", None, "fr-en")


def test_one_translation_of_many_sentences_stays_in_one_split(tmp_path: Path) -> None:
    """Held-out splits are disjoint on the second side too, where one answer translates many."""
    english = [f"Speech {number} is over." for number in range(2000)]
    french = [f"La séance numéro {number % 40} est levée." for number in range(2000)]
    origin = moses(tmp_path / "fr-en.tgz", packed(english), packed(french))
    folder = prepare_europarl(origin, tmp_path / "out", "en-fr").directory
    valid, test = ({row[1] for row in rows(folder, split)} for split in ("valid", "test"))
    assert valid
    assert test
    assert not valid & test
