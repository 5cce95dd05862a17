"""Preparation: what is in a store, when it is made again, and what happens when it is damaged."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from pellucid.config import CleaningConfig, CorpusConfig, DataConfig, TokenizerConfig
from pellucid.data import prepare_passes as passes
from pellucid.data.prepare import prepare
from pellucid.data.store import DamagedStoreError, PreparedData
from pellucid.data.workers import Workers
from pellucid.errors import InputError, PellucidError
from pellucid.tokenizers.sentencepiece import Tokenizer
from tests import made_up

SMALL = TokenizerConfig(vocab_size=400)


def texts_of(prepared: PreparedData, split: str = "train") -> list[tuple[str, str]]:
    """The text of every pair in a store."""
    stored = prepared.splits[split]
    sides = (
        prepared.tokenizer.decode_batch([stored.ids(pair, side) for pair in range(len(stored))])
        for side in (0, 1)
    )
    return list(zip(*sides, strict=True))


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def write(path: Path, rows: list[tuple[str, str]]) -> CorpusConfig:
    path.write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    return CorpusConfig(path=path, languages=("en", "fr"))


def test_every_pair_is_in_the_store_as_it_was(tmp_path: Path) -> None:
    one, two = made_up.pairs(300, 1), made_up.pairs(100, 2)
    corpora = [write(tmp_path / "one.tsv", one), write(tmp_path / "two.tsv", two)]
    valid = write(tmp_path / "valid.tsv", one[:7])
    data = made_up.both_ways(*corpora, valid=(valid,))
    prepared = prepare(data, SMALL, tmp_path / "store", workers=1)
    assert prepared.fresh
    assert prepared.tokenizer.vocab_size == 400
    assert texts_of(prepared) == one + two
    assert texts_of(prepared, "valid") == one[:7]
    train = prepared.splits["train"]
    assert train.numbers.tolist() == [*range(1, 301), *range(1, 101)]
    assert [(c.start, c.stop) for c in train.corpora] == [(0, 300), (300, 400)]
    assert train.tokens[0].dtype == np.uint16
    assert train.lengths(1).tolist() == [len(train.ids(pair, 1)) for pair in range(400)]
    assert not (tmp_path / "store" / ".preparing").exists()


def test_the_store_is_the_same_for_any_number_of_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "CHUNK_PAIRS", 100)
    data = made_up.both_ways(made_up.write_tsv(tmp_path / "c.tsv", 1000))
    stores = []
    for workers in (1, 2, 3):
        folder = tmp_path / f"store{workers}"
        prepare(data, SMALL, folder, workers=workers)
        stores.append(contents(folder))
    assert stores[0] == stores[1] == stores[2]


def test_workers_keep_the_order_and_say_when_one_dies() -> None:
    with Workers(2) as workers:
        assert list(workers.map(abs, range(-50, 0))) == list(range(50, 0, -1))
        with pytest.raises(PellucidError, match="a worker process died"):
            list(workers.map(os._exit, [1] * 20))
    with Workers(2) as workers, pytest.raises(ValueError, match="'x'"):
        list(workers.map(int, ["1"] * 10 + ["x"] * 10))


def test_a_script_without_a_main_guard_can_prepare(tmp_path: Path) -> None:
    made_up.write_tsv(tmp_path / "c.tsv", 300)
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from pellucid.data import prepare_passes as passes\n"
        "passes.CHUNK_PAIRS = 20\n"
        "from pellucid.data.prepare import prepare\n"
        "from pellucid.config import *\n"
        "corpus = CorpusConfig(path=sys.argv[1], languages=('en', 'fr'))\n"
        "data = DataConfig(directions=('en-fr',), train=[corpus])\n"
        "made = prepare(data, TokenizerConfig(vocab_size=400), sys.argv[2], workers=2)\n"
        "print(len(made.splits['train']))\n"
    )
    command = [sys.executable, str(script), str(tmp_path / "c.tsv"), str(tmp_path / "store")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("300\n", "")


def test_unchanged_input_is_not_prepared_again(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    corpus = made_up.write_tsv(tmp_path / "c.tsv", 300)
    data = made_up.both_ways(corpus)
    first = prepare(data, SMALL, folder, workers=1)
    again = prepare(data, SMALL, folder, workers=1)
    assert (first.fresh, again.fresh) == (True, False)
    assert again.fingerprint == first.fingerprint

    # the same text elsewhere is the same input
    moved = tmp_path / "elsewhere.tsv"
    shutil.copy(tmp_path / "c.tsv", moved)
    elsewhere = made_up.both_ways(corpus.changed(path=moved))
    assert not prepare(elsewhere, SMALL, folder, workers=1).fresh

    # a setting, a text, the tokenizer: anything else is not
    cleaning = CleaningConfig(max_words=12)
    assert prepare(data.changed(cleaning=cleaning), SMALL, folder, workers=1).fresh
    assert prepare(data, SMALL, folder, workers=1).fresh
    assert prepare(data, SMALL.changed(model_type="bpe"), folder, workers=1).fresh
    assert prepare(data, made_up.tokenizer(), folder, workers=1).fresh
    assert not prepare(data, made_up.tokenizer(), folder, workers=1).fresh
    with (tmp_path / "c.tsv").open("a") as file:
        file.write("One more.\tEncore une.\n")
    changed = prepare(data, made_up.tokenizer(), folder, workers=1)
    assert changed.fresh
    assert texts_of(changed)[-1] == ("One more.", "Encore une.")


def test_another_tokenizer_in_the_same_folder_is_really_used(tmp_path: Path) -> None:
    data = made_up.both_ways(made_up.write_tsv(tmp_path / "c.tsv", 300))
    for kind in ("unigram", "bpe", "unigram"):
        prepared = prepare(data, made_up.tokenizer(kind), tmp_path / "store", workers=1)
        assert prepared.splits["train"].ids(0, 0).tolist() == (
            made_up.tokenizer(kind).encode(texts_of(prepared)[0][0])
        )


def test_when_the_source_is_gone(tmp_path: Path) -> None:
    data = made_up.both_ways(made_up.write_tsv(tmp_path / "c.tsv", 300))
    folder = tmp_path / "store"
    prepare(data, SMALL, folder, workers=1)
    (tmp_path / "c.tsv").unlink()
    assert not prepare(data, SMALL, folder, workers=1).fresh
    with pytest.raises(InputError, match=r"no such file: .*c\.tsv"):
        prepare(data, SMALL.changed(vocab_size=390), folder, workers=1)
    assert not prepare(data, SMALL, folder, workers=1).fresh  # which left the store alone
    os.truncate(folder / "train.numbers", 8)
    with pytest.raises(InputError, match=r"no such file: .*c\.tsv"):
        prepare(data, SMALL, folder, workers=1)


def test_damage_is_found_and_repaired(tmp_path: Path) -> None:
    data = made_up.both_ways(made_up.write_tsv(tmp_path / "c.tsv", 300))
    folder = tmp_path / "store"
    prepare(data, SMALL, folder, workers=1)
    whole = contents(folder)
    generator = random.Random(0)
    for name, content in whole.items():
        if name == ".lock":
            continue
        flipped = bytearray(content)
        flipped[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        for damaged in (bytes(flipped), content[:-1], content + b"\0", b"", None):
            if damaged is None:
                (folder / name).unlink()
            else:
                (folder / name).write_bytes(damaged)
            with pytest.raises(DamagedStoreError, match="prepare the data again"):
                PreparedData.open(folder)
        assert prepare(data, SMALL, folder, workers=1).fresh, name
        assert contents(folder) == whole


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    data = made_up.both_ways(made_up.write_tsv(tmp_path / "c.tsv", 300))
    prepare(data, SMALL, tmp_path, workers=1)
    prepare(data, SMALL.changed(vocab_size=390), tmp_path, workers=1)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "c.tsv").exists()


@pytest.mark.parametrize("drop", [False, True])
def test_what_was_dropped_is_counted(tmp_path: Path, drop: bool) -> None:
    good = made_up.pairs(200, 3)
    good = list(dict.fromkeys(good))
    one = write(
        tmp_path / "1.tsv", [*good, ("", "vide"), ("Same", "Same"), good[0], ("x" * 3000, "y")]
    )
    two = write(tmp_path / "2.tsv", [good[1], ("New.", "Nouveau."), ("Same", "Same"), good[1]])
    cleaning = CleaningConfig(drop_duplicates=drop, drop_copies=False)
    data = made_up.both_ways(one, two, cleaning=cleaning)
    prepared = prepare(data, SMALL, tmp_path / "store", workers=1)
    report = prepared.report["train"]
    assert report["total"] == len(good) + 8
    counts = {"empty": 1, "too_long": 1, "kept": len(good) + 1}
    if drop:
        assert report["counts"] == {**counts, "copy": 1, "duplicate": 4}
        assert texts_of(prepared) == [*good, ("Same", "Same"), ("New.", "Nouveau.")]
        sizes = [c.stop - c.start for c in prepared.splits["train"].corpora]
        assert sizes == [len(good) + 1, 1]
    else:
        assert report["counts"] == {**counts, "copy": 2, "duplicate": 3}
        assert len(prepared.splits["train"]) == len(good) + 6
    assert report["kept"] == len(prepared.splits["train"])
    assert report["examples"]["duplicate"][0][0] == len(good) + 3
    assert len(report["examples"]["duplicate"]) == 3


def test_duplicates_are_found_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = random.Random(5)
    hashes = [generator.randrange(200) * 0x9E3779B97F4A7C15 % 2**64 for _ in range(1000)]
    np.array(hashes, np.uint64).tofile(tmp_path / "hashes")
    expected = [h in hashes[:i] for i, h in enumerate(hashes)]
    for at_once in (7, 100, 5000):
        monkeypatch.setattr(passes, "HASHES_AT_ONCE", at_once)
        assert passes.duplicates(tmp_path / "hashes").tolist() == expected


def test_what_is_shown(tmp_path: Path) -> None:
    console = Console(file=(tmp_path / "out").open("w+"), width=100)
    data = made_up.both_ways(write(tmp_path / "c.tsv", [*made_up.pairs(300), ("", "[vide]")]))
    prepare(data, SMALL, tmp_path / "store", workers=1, console=console)
    prepare(data, SMALL, tmp_path / "store", workers=1, console=console)
    console.file.flush()
    shown = (tmp_path / "out").read_text()
    assert "[vide]" in shown
    assert "data prepared in" in shown
    assert "is up to date: 300 pairs train" in shown
    assert "\x1b" not in shown  # no bars where nobody watches


def test_nothing_left_is_an_error_that_says_why(tmp_path: Path) -> None:
    data = made_up.both_ways(write(tmp_path / "c.tsv", [("", "a"), ("b", "")]))
    with pytest.raises(InputError, match="no pair of train is left after cleaning: 2 empty"):
        prepare(data, SMALL, tmp_path / "store", workers=1)
    assert not (tmp_path / "store" / ".preparing").exists()


def test_a_tokenizer_must_have_the_tags(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.tsv", made_up.pairs(20)).changed(languages=("en", "oc"))
    data = DataConfig(directions=("en-oc",), train=(corpus,))
    with pytest.raises(InputError, match="no tag for language 'oc'"):
        prepare(data, made_up.tokenizer(), tmp_path / "store", workers=1)


def test_a_large_vocabulary_takes_wider_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tokenizer, "vocab_size", 70_000)
    data = made_up.both_ways(write(tmp_path / "c.tsv", made_up.pairs(20)))
    prepared = prepare(data, made_up.tokenizer(), tmp_path / "store", workers=1)
    assert prepared.splits["train"].tokens[0].dtype == np.uint32
    assert texts_of(prepared) == made_up.pairs(20)


PREPARING = """
import sys
from pellucid.data import prepare_passes as passes
passes.CHUNK_PAIRS = 200
from pellucid.data.prepare import prepare
from pellucid.tokenizers.sentencepiece import Tokenizer
from tests import made_up
from pathlib import Path
data = made_up.both_ways(made_up.CorpusConfig(path=sys.argv[1], languages=("en", "fr")))
tokenizer = Tokenizer.load(sys.argv[3])
print("ready", flush=True)
prepare(data, tokenizer, sys.argv[2], workers=1)
print("done", flush=True)
"""


@pytest.mark.parametrize("seed", range(4))
def test_killed_at_any_time_there_is_a_whole_store_or_none(tmp_path: Path, seed: int) -> None:
    """Killed again and again while it replaces another store, at a random moment."""
    generator = random.Random(seed)
    folder = tmp_path / "store"
    corpus = made_up.write_tsv(tmp_path / "c.tsv", 3000)
    made_up.tokenizer().save(tmp_path / "t.model")
    expected = {}
    for kind in ("unigram", "bpe"):
        prepared = prepare(made_up.both_ways(corpus), made_up.tokenizer(kind), folder, workers=1)
        expected[kind] = prepared.fingerprint  # and what stands there now is the bpe one
    arguments = [str(tmp_path / name) for name in ("c.tsv", "store", "t.model")]
    with subprocess.Popen(
        [sys.executable, "-c", PREPARING, *arguments], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(generator.uniform(0, 0.25))
        child.send_signal(signal.SIGKILL)
    with contextlib.suppress(DamagedStoreError):
        assert PreparedData.open(folder).fingerprint in expected.values()
    again = prepare(made_up.both_ways(corpus), made_up.tokenizer(), folder, workers=1)
    assert again.fingerprint == expected["unigram"]
    assert not (folder / ".preparing").exists()


def test_stopped_at_every_file_operation_there_is_a_whole_store_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the test above, but at each rename, flush to the disk and deletion in turn."""
    corpus = made_up.write_tsv(tmp_path / "c.tsv", 50)
    data = made_up.both_ways(corpus)
    folder = tmp_path / "store"

    class Stopped(BaseException):
        pass

    outcomes = set()
    for stop_at in range(100):
        old = prepare(data, made_up.tokenizer("bpe"), folder, workers=1).fingerprint
        left = stop_at

        def counted(operation):
            def run(*arguments, **options):
                nonlocal left
                if left == 0:
                    raise Stopped
                left -= 1
                return operation(*arguments, **options)

            return run

        with monkeypatch.context() as patch:
            for name in ("replace", "fsync", "unlink"):
                patch.setattr(os, name, counted(getattr(os, name)))
            try:
                prepare(data, made_up.tokenizer(), folder, workers=1)
            except Stopped:
                pass
            else:
                break
        try:
            outcomes.add(PreparedData.open(folder).fingerprint == old)
        except DamagedStoreError:
            outcomes.add(None)
    else:
        pytest.fail("there is no end to it")
    assert stop_at > 10
    assert True in outcomes
    assert None in outcomes


def test_two_at_once_prepare_once(tmp_path: Path) -> None:
    made_up.write_tsv(tmp_path / "c.tsv", 3000)
    made_up.tokenizer().save(tmp_path / "t.model")
    arguments = [str(tmp_path / name) for name in ("c.tsv", "store", "t.model")]
    code = PREPARING.replace('print("done"', "print(made.fresh, made.fingerprint").replace(
        "prepare(data", "made = prepare(data"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = [child.communicate()[0].split() for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert sorted(words[1] for words in said) == ["False", "True"]
    assert said[0][2] == said[1][2]


def test_the_manifest_is_plain(tmp_path: Path) -> None:
    data = made_up.both_ways(made_up.write_tsv(tmp_path / "c.tsv", 50))
    prepare(data, made_up.tokenizer(), tmp_path / "store", workers=1)
    manifest = json.loads((tmp_path / "store" / "manifest.json").read_text())
    assert manifest["splits"]["train"]["corpora"][0]["pairs"] == 50
    assert str(tmp_path) not in json.dumps(manifest)  # a store can be moved
    files = {f.name for f in (tmp_path / "store").iterdir()} - {"manifest.json", ".lock"}
    assert set(manifest["files"]) == files


PEAK = """
import resource, sys
from pellucid.data.prepare import prepare
from pellucid.tokenizers.sentencepiece import Tokenizer
from tests import made_up
data = made_up.both_ways(made_up.CorpusConfig(path=sys.argv[1], languages=("en", "fr")))
prepare(data, Tokenizer.load(sys.argv[2]), sys.argv[3], workers=1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak_megabytes(tmp_path: Path, pairs: int) -> float:
    """The most memory a process has while it prepares so many pairs."""
    made_up.write_tsv(tmp_path / "c.tsv", pairs)
    made_up.tokenizer().save(tmp_path / "t.model")
    arguments = [str(tmp_path / name) for name in ("c.tsv", "t.model", "store")]
    run = subprocess.run(
        [sys.executable, "-c", PEAK, *arguments], capture_output=True, text=True, check=True
    )
    return int(run.stdout) / (1024 if sys.platform == "linux" else 1024**2)


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    small, large = (peak_megabytes(tmp_path, pairs) for pairs in (10_000, 60_000))
    assert large - small < 8  # the text of the difference alone is 6 MB, as Python strings 12


@pytest.mark.slow
def test_memory_for_ten_million_pairs(tmp_path: Path) -> None:
    small, large = (peak_megabytes(tmp_path, pairs) for pairs in (1_000_000, 10_000_000))
    assert large - small < 250
    assert large < 500


def test_a_recipe_is_prepared_from_the_command_line(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    (tmp_path / "corpora").mkdir()
    made_up.write_tsv(tmp_path / "corpora" / "c.tsv", 300)
    recipe.write_text(
        '[data]\ndirections = ["en-fr"]\n'
        '[[data.train]]\npath = "corpora/c.tsv"\nlanguages = ["en", "fr"]\n'
        "[tokenizer]\nvocab_size = 400\n[training]\nsteps = 5\n"
    )

    def run(*arguments: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "pellucid", "data", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    store = str(tmp_path / "store")
    code, said = run(str(recipe), store, "--workers", "1")
    assert (code, "300 pairs train" in said) == (0, True)
    code, said = run(str(recipe), store)
    assert (code, "is up to date" in said) == (0, True)
    assert len(PreparedData.open(store).splits["train"]) == 300

    recipe.write_text("[data]\ndirections = 5\n")
    assert run(str(recipe), store)[0] == 2
    recipe.write_text("[model]\n")
    assert run(str(recipe), store) == (
        2, f"pellucid: {recipe}: setting 'data' is missing: give it a value\n"
    )  # fmt: skip
    recipe.write_text("data = [")
    assert "is not valid TOML" in run(str(recipe), store)[1]
    assert "no recipe at" in run(str(tmp_path / "none.toml"), store)[1]
