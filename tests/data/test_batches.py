"""Batches: golden order, mixing, sampling, prefetching, mistakes."""

import hashlib
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pellucid.config import BatchConfig, CorpusConfig, DataConfig
from pellucid.data.batches import Batch, Batches, padding
from pellucid.data.buckets import random_bits
from pellucid.data.prepare import prepare
from pellucid.data.store import PreparedData
from pellucid.errors import InputError
from tests import made_up

PLAIN = BatchConfig(max_tokens=400, prefetch=0)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    folder = tmp_path_factory.mktemp("store")
    data = made_up.both_ways(made_up.write_tsv(folder / "c.tsv", 6000))
    return prepare(data, made_up.tokenizer(), folder, workers=1)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    folder = tmp_path_factory.mktemp("few")
    data = made_up.both_ways(made_up.write_tsv(folder / "c.tsv", 200))
    return prepare(data, made_up.tokenizer(), folder, workers=1)


def digest(batches: list[Batch]) -> str:
    """Return a hash of the content of some batches."""
    total = hashlib.sha256()
    for batch in batches:
        for array in (batch.source, batch.target_in, batch.target_out, batch.pairs):
            total.update(repr(array.tolist()).encode())
    return total.hexdigest()[:16]


GOLDEN_BITS = [11908576178598684996, 2564810913301908829, 8379019428831260092]
GOLDEN_ORDER = "ba16db89bab097a7"


def outline(batches: list[Batch]) -> str:
    """Return a hash of the order and the lengths of the pairs."""
    rows = [(b.index, b.pairs.tolist(), b.directions.tolist(), b.source.shape) for b in batches]
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]


def test_random_numbers_are_the_same_everywhere() -> None:
    assert random_bits(1, 2, 3, 4, 3).tolist() == GOLDEN_BITS


def test_golden_batches_on_one_and_two_processes(tmp_path: Path) -> None:
    """The order of the data must never change between versions, or no run could be resumed."""
    prepared = made_of_bytes(tmp_path)
    alone = list(Batches(prepared, PLAIN, seed=7).epoch(1))
    assert outline(alone[:20]) == GOLDEN_ORDER
    ranks = [list(Batches(prepared, PLAIN, seed=7, rank=r, world=2).epoch(1)) for r in (0, 1)]
    in_turn = [batch for step in zip(*ranks, strict=True) for batch in step]
    assert outline(in_turn[:20]) == GOLDEN_ORDER
    code = (
        "import sys; from pathlib import Path; from tests.data.test_batches import *\n"
        "prepared = PreparedData.open(sys.argv[1])\n"
        "batches = Batches(prepared, PLAIN, seed=7, rank=int(sys.argv[2]), world=2)\n"
        "print(digest(list(batches.epoch(1))))"
    )
    for rank in (0, 1):
        command = [sys.executable, "-c", code, str(prepared.folder), str(rank)]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        assert run.stdout.strip() == digest(ranks[rank])


def made_of_bytes(folder: Path) -> PreparedData:
    """A store whose lengths depend on no version of SentencePiece: all is spelled in bytes."""
    corpus = made_up.write_tsv(folder / "c.tsv", 300)
    lines = (folder / "c.tsv").read_text(encoding="utf-8").splitlines()
    # letters that are in no piece of the tokenizer are spelled in bytes
    strange = {ord(letter): 0x4E00 + ord(letter) for letter in map(chr, range(33, 0x2100))}
    with (folder / "c.tsv").open("w", encoding="utf-8") as file:
        for line in lines:
            sides = [side.replace(" ", "")[-12:].translate(strange) for side in line.split("\t")]
            file.write("\t".join(sides) + "\n")
    return prepare(made_up.both_ways(corpus), made_up.tokenizer(), folder, workers=1)


def test_seed_and_epoch_decide_the_order(prepared: PreparedData) -> None:
    def order(seed: int, epoch: int) -> str:
        return digest(list(Batches(prepared, PLAIN, seed=seed).epoch(epoch)))

    assert order(1, 0) == order(1, 0)
    assert len({order(1, 0), order(1, 1), order(2, 0), order(0, 1)}) == 4


def test_an_epoch_does_not_show_the_same_batches_again(prepared: PreparedData) -> None:
    batches = Batches(prepared, PLAIN)
    first, second = (
        {frozenset(zip(b.pairs.tolist(), b.directions.tolist(), strict=True)) for b in some}
        for some in (batches.epoch(0), batches.epoch(1))
    )
    assert len(first & second) < len(first) / 10


def test_little_padding(prepared: PreparedData) -> None:
    batches = list(Batches(prepared, BatchConfig(max_tokens=1000, prefetch=0)).epoch(0))
    assert padding(batches) < 0.05


@pytest.mark.parametrize("sampling", [None, 0.2])
def test_prefetching_changes_nothing(few: PreparedData, sampling: float | None) -> None:
    expected = None
    for prefetch in (0, 1, 16):
        config = PLAIN.changed(prefetch=prefetch, subword_regularization=sampling)
        stream = Batches(few, config, seed=3).stream()
        made = digest([next(stream) for _ in range(50)])  # more than an epoch
        stream.close()
        expected = expected or made
        assert made == expected


def test_the_background_thread_ends_with_its_reader(prepared: PreparedData) -> None:
    there = set(threading.enumerate())  # other tests' threads may still be ending

    def making() -> list[threading.Thread]:
        return [t for t in threading.enumerate() if t.name == "batches" and t not in there]

    batches = Batches(prepared, PLAIN.changed(prefetch=2))
    reader = batches.epoch(0)
    next(reader)
    assert len(making()) == 1
    reader.close()
    assert len(list(batches.epoch(0))) == batches.steps(0)
    until = time.monotonic() + 20
    while making() and time.monotonic() < until:
        time.sleep(0.05)
    assert not making()


def test_a_program_can_end_in_the_middle_of_an_epoch(prepared: PreparedData) -> None:
    code = (
        "import sys; from pellucid.data.batches import *\n"
        "reader = Batches(PreparedData.open(sys.argv[1]), BatchConfig(max_tokens=400)).stream()\n"
        "print(len(next(reader)) > 0)"
    )
    command = [sys.executable, "-c", code, str(prepared.folder)]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert (run.stdout, run.stderr) == ("True\n", "")


def test_what_goes_wrong_in_the_background_is_raised(
    prepared: PreparedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = Batches(prepared, PLAIN.changed(prefetch=2))
    monkeypatch.setattr(batches, "_stored_ids", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        next(batches.epoch(0))


def test_a_reader_that_works_never_waits(few: PreparedData) -> None:
    """What a step waits for is less than what making a batch takes."""
    slow = Batches(few, PLAIN.changed(prefetch=8, subword_regularization=0.2))
    waits, reader = [], slow.epoch(0)
    next(reader)
    for _ in range(10):
        time.sleep(0.05)  # a training step
        start = time.perf_counter()
        next(reader)
        waits.append(time.perf_counter() - start)
    reader.close()
    assert np.median(waits) < 0.005


def test_sampling_keeps_text_and_budget(few: PreparedData) -> None:
    config = PLAIN.changed(subword_regularization=0.1)
    plain = {(int(p), int(d)) for b in Batches(few, PLAIN).epoch(0) for p, d in
             zip(b.pairs, b.directions, strict=True)}  # fmt: skip
    sampled, changed = [], 0
    store, tokenizer = few.splits["train"], few.tokenizer
    for batch in Batches(few, config).epoch(0):
        assert len(batch) * max(batch.source.shape[1], batch.target_in.shape[1]) <= 400
        sampled += zip(batch.pairs.tolist(), batch.directions.tolist(), strict=True)
        for row in range(len(batch)):
            pair, way = int(batch.pairs[row]), int(batch.directions[row])
            usual = store.ids(pair, way).tolist()  # fr-en has side 0, English, as its target
            assert tokenizer.decode(batch.target_out[row]) == tokenizer.decode(usual)
            changed += [i for i in batch.target_out[row].tolist() if i][:-1] != usual
    assert Counter(sampled) == dict.fromkeys(plain, 1)
    assert changed > len(sampled) / 2
    other = Batches(few, config)
    assert digest(list(other.epoch(0))) != digest(list(other.epoch(1)))


def test_sampling_of_the_source_alone_leaves_every_target_as_it_is(few: PreparedData) -> None:
    config = PLAIN.changed(subword_regularization=0.1, subword_side="source")
    store, changed, rows = few.splits["train"], 0, 0
    for batch in Batches(few, config).epoch(0):
        assert len(batch) * max(batch.source.shape[1], batch.target_in.shape[1]) <= 400
        for row in range(len(batch)):
            pair, way = int(batch.pairs[row]), int(batch.directions[row])
            assert [i for i in batch.target_out[row].tolist() if i][:-1] == (
                store.ids(pair, way).tolist()
            )
            source = [i for i in batch.source[row].tolist() if i][1:-1]
            usual = store.ids(pair, 1 - way).tolist()
            assert few.tokenizer.decode(source) == few.tokenizer.decode(usual)
            changed += source != usual
            rows += 1
    assert changed > rows / 2
    state = Batches(few, PLAIN.changed(subword_regularization=0.1)).state()
    with pytest.raises(InputError, match="subword_side"):
        Batches(few, config).restore(state)


def test_sampling_is_the_same_for_any_number_of_processes(few: PreparedData) -> None:
    config = PLAIN.changed(subword_regularization=0.2)
    alone = list(Batches(few, config, seed=5).epoch(2))
    ranks = [list(Batches(few, config, seed=5, rank=r, world=2).epoch(2)) for r in (0, 1)]
    in_turn = [batch for step in zip(*ranks, strict=True) for batch in step]
    assert digest(in_turn[: len(alone)]) == digest(alone)


def mixed(folder: Path, weights: tuple[float, float], temperature: float | None) -> Batches:
    corpora = [
        made_up.write_tsv(folder / f"{size}.tsv", size).changed(weight=weight)
        for size, weight in zip((400, 100), weights, strict=True)
    ]
    data = DataConfig(directions=("en-fr",), train=corpora, temperature=temperature)
    return Batches(prepare(data, made_up.tokenizer(), folder, workers=1), PLAIN, seed=1)


@pytest.mark.parametrize(
    ("weights", "temperature", "large", "small"),
    [
        ((1, 1), None, 400, 100),
        ((3, 3), 1.0, 400, 100),
        ((1, 4), None, 250, 250),
        ((1, 1), 2.0, 333, 167),
        ((4, 1), None, 471, 29),
    ],
)
def test_corpora_are_mixed_as_asked(
    tmp_path: Path, weights: tuple[float, float], temperature: float | None, large: int, small: int
) -> None:
    batches = mixed(tmp_path, weights, temperature)
    epochs = [Counter(int(p) for b in batches.epoch(e) for p in b.pairs) for e in range(2)]
    for seen in epochs:
        first = {pair: count for pair, count in seen.items() if pair < 400}
        second = {pair: count for pair, count in seen.items() if pair >= 400}
        assert (sum(first.values()), sum(second.values())) == (large, small)
        assert max(first.values()) - min(first.values()) <= 1
        assert max(second.values()) - min(second.values()) <= 1
    if large != 400:
        assert epochs[0] != epochs[1]


def test_a_corpus_without_a_direction_is_left_out(tmp_path: Path) -> None:
    one = made_up.write_tsv(tmp_path / "a.tsv", 100)
    two = made_up.write_tsv(tmp_path / "b.tsv", 50).changed(languages=("en", "de"))
    data = DataConfig(directions=("en-fr",), train=(one, two))
    made = Batches(prepare(data, made_up.tokenizer(), tmp_path, workers=1), PLAIN)
    assert {int(p) for b in made.epoch(0) for p in b.pairs} == set(range(100))


def test_a_sentence_longer_than_the_budget_is_an_error(prepared: PreparedData) -> None:
    longest = max(
        int(prepared.splits["train"].lengths(side).max()) + extra
        for side in (0, 1)
        for extra in (1, 2)
    )
    message = rf"max_tokens = {longest - 1} is too .* has {longest} tokens .*set max_tokens to"
    with pytest.raises(InputError, match=message):
        Batches(prepared, BatchConfig(max_tokens=longest - 1))
    assert len(list(Batches(prepared, BatchConfig(max_tokens=longest)).epoch(0)))


def test_mistakes_are_named(prepared: PreparedData) -> None:
    with pytest.raises(InputError, match="rank 2 is not one of 2 processes"):
        Batches(prepared, rank=2, world=2)
    with pytest.raises(InputError, match=r"no 'valid': it has train"):
        Batches(prepared, split="valid")
    with pytest.raises(InputError, match="seed -1"):
        Batches(prepared, seed=-1)
    state = Batches(prepared, PLAIN, seed=1).state()
    for other in (Batches(prepared, PLAIN, seed=2), Batches(prepared, seed=1)):
        with pytest.raises(InputError, match="belongs to another order"):
            other.restore(state)


def test_a_state_is_small_and_plain(prepared: PreparedData) -> None:
    batches = Batches(prepared, PLAIN)
    for _ in zip(range(5), batches.epoch(2), strict=False):
        pass
    state = batches.state()
    assert (state["epoch"], state["position"]) == (2, 5)
    assert all(isinstance(value, int | str) for value in state.values())


PEAK = """
import resource, sys
from pellucid.config import BatchConfig
from pellucid.data.batches import Batches
from pellucid.data.store import PreparedData
prepared = PreparedData.open(sys.argv[1])
batches = Batches(prepared, BatchConfig(bucket_size=20_000))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for batch in zip(range(50), batches.epoch(0)): pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_planning_holds_numbers_not_objects(tmp_path: Path) -> None:
    corpus: CorpusConfig = made_up.write_tsv(tmp_path / "c.tsv", 60_000)
    prepare(made_up.both_ways(corpus), made_up.tokenizer(), tmp_path, workers=1)
    run = subprocess.run(
        [sys.executable, "-c", PEAK, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert int(run.stdout) / 1024 < 24  # 120,000 examples: as Python objects over 30 MB
