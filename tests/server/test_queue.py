"""Sentences of many requests decoded together: each gets its own answer, in fair turn."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.decoding.engine import SpecialIds
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.steps import Hypothesis, Result
from pellucid.server.service.queue import (
    AbandonedError,
    BatchingEngine,
    Deadline,
    DeadlineError,
    OverloadedError,
    applied,
)

POISON = 666


class Mirror:
    """An engine that turns each source around, and tells which batches it got."""

    special = SpecialIds(0, 2, 3)

    def __init__(self) -> None:
        self.batches: list[list[tuple[int, ...]]] = []
        self.gate = threading.Event()
        self.gate.set()

    def translate_ids(
        self,
        sources: Sequence[Sequence[int]],
        options: DecodingOptions,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[Result]:
        self.gate.wait()
        self.batches.append([tuple(source) for source in sources])
        if any(POISON in source for source in sources):
            raise ValueError("poison")
        begun = prefixes or [[] for _ in sources]
        made = [(*p, *reversed(s), options.beam_size) for p, s in zip(begun, sources, strict=True)]
        return [Result((Hypothesis(tokens, len(tokens), 0.0, 0.0, "eos"),)) for tokens in made]

    def next_tokens(
        self, sources: Sequence[Sequence[int]], prefixes: Sequence[Sequence[int]], count: int
    ) -> list[list[tuple[int, float]]]:
        return [[(len(source), 0.0)] for source in sources]


def tokens(results: Sequence[Result]) -> list[tuple[int, ...]]:
    return [result.best.tokens for result in results]


requests = st.lists(
    st.tuples(
        st.lists(st.lists(st.integers(4, 50), max_size=6), max_size=8),  # sources
        st.sampled_from([1, 2, 4]),  # beam
        st.booleans(),  # with prefixes
    ),
    min_size=1,
    max_size=12,
)


@given(requests, st.integers(1, 3), st.integers(1, 40))
def test_each_gets_what_it_would_get_alone(
    asked: list[tuple[list[list[int]], int, bool]], workers: int, budget: int
) -> None:
    mirror = Mirror()
    engine = BatchingEngine(mirror, workers=workers, batch_tokens=budget, max_delay=0.0)

    def ask(one: tuple[list[list[int]], int, bool]) -> list[tuple[int, ...]]:
        sources, beam, forced = one
        prefixes = [[len(source)] for source in sources] if forced else None
        return tokens(engine.translate_ids(sources, DecodingOptions(beam_size=beam), prefixes))

    with ThreadPoolExecutor(len(asked)) as pool:
        answers = list(pool.map(ask, asked))
    engine.close()
    for (sources, beam, forced), answer in zip(asked, answers, strict=True):
        alone = Mirror().translate_ids(
            sources,
            DecodingOptions(beam_size=beam),
            [[len(source)] for source in sources] if forced else None,
        )
        assert answer == tokens(alone)
    assert engine.queued == 0


def blocked(mirror: Mirror, engine: BatchingEngine, pool: ThreadPoolExecutor) -> object:
    """Let a first request hold the one worker, so that the next ones have to wait."""
    mirror.gate.clear()
    first = pool.submit(engine.translate_ids, [[9]], DecodingOptions(beam_size=1))
    until(lambda: engine.queued == 0 and bool(engine._threads) and not first.done())
    time.sleep(0.05)
    return first


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.005)


def test_those_who_wait_go_together_and_a_long_one_starves_nobody() -> None:
    mirror = Mirror()
    engine = BatchingEngine(mirror, batch_tokens=40, max_delay=0.0)
    with ThreadPoolExecutor(8) as pool:
        blocked(mirror, engine, pool)
        long = [[7, 7, 7, 7]] * 100
        document = pool.submit(engine.translate_ids, long, DecodingOptions(beam_size=1))
        until(lambda: engine.queued == 100)
        short = [
            pool.submit(engine.translate_ids, [[5, n]], DecodingOptions(beam_size=1))
            for n in range(4)
        ]
        until(lambda: engine.queued == 104)
        mirror.gate.set()
        assert [tokens(one.result()) for one in short] == [[(n, 5, 1)] for n in range(4)]
        assert len(document.result()) == 100
    engine.close()
    of_short = [n for n, batch in enumerate(mirror.batches) if any(s[0] == 5 for s in batch)]
    assert of_short == [1], "all short ones went with the first batch after the wait"
    assert len(mirror.batches[1]) > 4, "and the document was in it too"


def test_one_that_fails_harms_no_other() -> None:
    mirror = Mirror()
    engine = BatchingEngine(mirror, max_delay=0.0)
    with ThreadPoolExecutor(4) as pool:
        blocked(mirror, engine, pool)
        bad = pool.submit(engine.translate_ids, [[4], [POISON], [5]], DecodingOptions(beam_size=1))
        good = pool.submit(engine.translate_ids, [[8, 9]], DecodingOptions(beam_size=1))
        until(lambda: engine.queued == 4)
        mirror.gate.set()
        with pytest.raises(ValueError, match="poison"):
            bad.result()
        assert tokens(good.result()) == [(9, 8, 1)]
    engine.close()


def test_too_much_is_refused_at_once() -> None:
    mirror = Mirror()
    engine = BatchingEngine(mirror, max_queued=10, max_delay=0.0)
    with ThreadPoolExecutor(4) as pool:
        blocked(mirror, engine, pool)
        waiting = pool.submit(engine.translate_ids, [[4]] * 8, DecodingOptions(beam_size=1))
        until(lambda: engine.queued == 8)
        with pytest.raises(OverloadedError):
            engine.translate_ids([[5]] * 3, DecodingOptions(beam_size=1))
        mirror.gate.set()
        assert len(waiting.result()) == 8
    engine.close()
    with pytest.raises(OverloadedError, match="stopping"):
        engine.translate_ids([[5]], DecodingOptions(beam_size=1))


@pytest.mark.parametrize(
    ("deadline", "error"),
    [(Deadline(abandoned=True), AbandonedError), (Deadline(until=0.0), DeadlineError)],
)
def test_who_gives_up_is_not_worked_for(deadline: Deadline, error: type[Exception]) -> None:
    mirror = Mirror()
    engine = BatchingEngine(mirror, max_delay=0.0)

    def ask() -> None:
        with applied(deadline):
            engine.translate_ids([[44]] * 5, DecodingOptions(beam_size=1))

    with ThreadPoolExecutor(4) as pool:
        blocked(mirror, engine, pool)
        asked = pool.submit(ask)
        with pytest.raises(error):
            asked.result(timeout=20)
        assert engine.queued == 0
        mirror.gate.set()
    engine.close()
    assert not any((44,) in batch for batch in mirror.batches)


def test_what_waits_is_finished_on_closing() -> None:
    mirror = Mirror()
    engine = BatchingEngine(mirror, batch_tokens=2, max_delay=0.0)
    with ThreadPoolExecutor(4) as pool:
        blocked(mirror, engine, pool)
        asked = pool.submit(engine.translate_ids, [[4, n] for n in range(6)], DecodingOptions())
        until(lambda: engine.queued == 6)
        closing = pool.submit(engine.close)
        time.sleep(0.05)
        mirror.gate.set()
        assert len(asked.result(timeout=20)) == 6
        closing.result(timeout=20)
