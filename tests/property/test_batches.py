"""Batches: everything once, within the budget, the same for any number of processes."""

import tempfile
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.config import BatchConfig
from pellucid.data.batches import Batch, Batches
from pellucid.data.buckets import batch_ends
from pellucid.data.prepare import prepare
from pellucid.data.store import PreparedData
from tests import made_up


@cache
def prepared() -> PreparedData:
    """Two corpora, one of them with its languages the other way round."""
    with tempfile.TemporaryDirectory() as folder:
        one = made_up.write_tsv(Path(folder) / "one.tsv", 230)
        other = Path(folder) / "two.tsv"
        rows = made_up.pairs(70, seed=4)
        other.write_text("".join(f"{french}\t{english}\n" for english, french in rows))
        two = one.changed(path=other, languages=("fr", "en"))
        made = prepare(made_up.both_ways(one, two), made_up.tokenizer(), folder, workers=1)
        return made  # mapped files outlive their names


def batches(tokens: int = 200, window: int = 1000, prefetch: int = 0, **more: int) -> Batches:
    config = BatchConfig(max_tokens=tokens, bucket_size=window, prefetch=prefetch)
    return Batches(prepared(), config, **more)


def same(one: Batch, other: Batch) -> bool:
    names = ("source", "target_in", "target_out", "pairs", "directions")
    return (one.epoch, one.index, one.source_tokens, one.target_tokens) == (
        (other.epoch, other.index, other.source_tokens, other.target_tokens)
    ) and all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


def all_same(some: list[Batch], others: list[Batch]) -> bool:
    return len(some) == len(others) and all(map(same, some, others))


BUDGETS = st.integers(120, 1500)
WINDOWS = st.integers(1, 700)
SEEDS = st.integers(0, 2**63 - 1)
EPOCHS = st.integers(0, 5)


@settings(max_examples=40)
@given(tokens=BUDGETS, window=WINDOWS, seed=SEEDS, epoch=EPOCHS)
def test_every_pair_once_in_each_direction(tokens: int, window: int, seed: int, epoch: int) -> None:
    made = batches(tokens, window, seed=seed)
    seen: Counter[tuple[int, int]] = Counter()
    for index, batch in enumerate(made.epoch(epoch)):
        assert batch.index == index
        assert batch.target_in.shape == batch.target_out.shape
        assert len(batch) * max(batch.source.shape[1], batch.target_in.shape[1]) <= tokens
        assert batch.source_tokens == (batch.source != 0).sum()
        assert batch.target_tokens == (batch.target_out != 0).sum() == (batch.target_in != 0).sum()
        seen.update(zip(batch.pairs.tolist(), batch.directions.tolist(), strict=True))
    assert seen == {(pair, way): 1 for pair in range(300) for way in (0, 1)}


@settings(max_examples=25)
@given(tokens=BUDGETS, seed=SEEDS, epoch=EPOCHS)
def test_rows_are_what_they_say(tokens: int, seed: int, epoch: int) -> None:
    store, tokenizer = prepared().splits["train"], prepared().tokenizer
    batch = next(batches(tokens, seed=seed).epoch(epoch))
    for row, (pair, way) in enumerate(zip(batch.pairs, batch.directions, strict=True)):
        target = ("en", "fr")[way]  # the directions are fr-en and en-fr
        languages = ("en", "fr") if pair < 230 else ("fr", "en")
        side = languages.index(target)
        source, wanted = store.ids(pair, 1 - side).tolist(), store.ids(pair, side).tolist()

        def unpadded(ids: np.ndarray) -> list[int]:
            assert not ids[np.argmin(ids != 0) :].any() or ids.all()  # padding only at the end
            return [int(i) for i in ids if i != tokenizer.pad_id]

        assert unpadded(batch.source[row]) == [tokenizer.tag_id(target), *source, 3]
        assert unpadded(batch.target_in[row]) == [2, *wanted]
        assert unpadded(batch.target_out[row]) == [*wanted, 3]


@settings(max_examples=25)
@given(tokens=BUDGETS, seed=SEEDS, epoch=EPOCHS, world=st.integers(2, 5))
def test_the_union_is_the_same_for_any_number_of_processes(
    tokens: int, seed: int, epoch: int, world: int
) -> None:
    alone = list(batches(tokens, seed=seed).epoch(epoch))
    ranks = [
        list(batches(tokens, seed=seed, rank=rank, world=world).epoch(epoch))
        for rank in range(world)
    ]
    assert {len(rank) for rank in ranks} == {-(-len(alone) // world)}
    assert all([b.last for b in rank] == [False] * (len(rank) - 1) + [True] for rank in ranks)
    in_turn = [batch for step in zip(*ranks, strict=True) for batch in step]
    assert all_same(in_turn[: len(alone)], alone)
    assert all(len(batch) == 0 == batch.target_tokens for batch in in_turn[len(alone) :])


@settings(max_examples=25)
@given(
    seed=SEEDS,
    worlds=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    steps=st.integers(0, 30),
    prefetch=st.sampled_from([0, 3]),
)
def test_restored_anywhere_under_any_number_of_processes(
    seed: int, worlds: list[int], steps: int, prefetch: int
) -> None:
    """A run that is stopped and goes on with another number of processes keeps the order."""
    whole = [batch for epoch in (0, 1, 2) for batch in batches(400, seed=seed).epoch(epoch)]
    seen: list[Batch] = []
    state = None
    for world in worlds:
        ranks = [
            batches(400, prefetch=prefetch, seed=seed, rank=rank, world=world)
            for rank in range(world)
        ]
        if state is not None:
            for rank in ranks:
                rank.restore(state)
                assert rank.state() == state
        streams = [rank.stream() for rank in ranks]
        for _ in range(steps):
            seen += [batch for stream in streams if len(batch := next(stream))]
        for stream in streams:
            stream.close()
        states = [rank.state() for rank in ranks]
        assert all(other == states[0] for other in states)
        state = states[0]
    shown = min(len(seen), len(whole))
    assert all_same(seen[:shown], whole[:shown])


@settings(max_examples=20)
@given(seed=SEEDS, done=st.integers(0, 200))
def test_the_rest_of_an_epoch(seed: int, done: int) -> None:
    first = batches(seed=seed)
    everything = list(first.epoch(3))
    done = min(done, len(everything))
    reader = first.epoch(3)
    for _ in range(done):
        next(reader)
    second = batches(seed=seed, prefetch=4)
    second.restore(first.state() if done else {**first.state(), "epoch": 3, "position": 0})
    assert all_same(list(second.epoch(3)), everything[done:])
    assert all_same(list(second.epoch(3)), everything)  # and then from the beginning


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(1, 50), min_size=1, max_size=200),
    tokens=st.integers(50, 400),
    part=st.floats(0, 1),
)
def test_cutting_is_greedy_and_within_the_budget(
    lengths: list[int], tokens: int, part: float
) -> None:
    first = max(1, int(part * tokens))
    ends = batch_ends(np.array(lengths, np.int32), tokens, first).tolist()
    assert ends[-1] == len(lengths)
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        room = tokens if start else first
        assert max(lengths[start:end]) * (end - start) <= room or end == start + 1
        assert max(lengths[start:end]) * (end - start) <= tokens
        if end < len(lengths):
            assert max(lengths[start : end + 1]) * (end + 1 - start) > room
