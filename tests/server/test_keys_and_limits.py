"""API keys and rate limits."""

import json
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import InputError, PellucidError
from pellucid.server.keys import Keys
from pellucid.server.limits import MOST_CLIENTS, RateLimit


def test_a_key_is_kept_only_as_a_hash(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "deep" / "keys.json")
    secret = keys.add("reader")
    text = keys.file.read_text()
    assert secret not in text
    assert secret.removeprefix("plk_") not in text
    assert stat.S_IMODE(keys.file.stat().st_mode) == 0o600
    found = Keys(keys.file).find(secret)
    assert found is not None
    assert found.name == "reader"


@given(st.text(max_size=60))
def test_nothing_else_is_a_key(given_key: str) -> None:
    keys = Keys(Path("/nowhere/keys.json"))
    assert keys.find(given_key) is None


def test_a_revoked_key_is_refused_by_a_server_that_is_running(tmp_path: Path) -> None:
    running, hand = Keys(tmp_path / "keys.json"), Keys(tmp_path / "keys.json")
    first, second = hand.add("first"), hand.add("second", per_minute=5)
    assert running.find(first) is not None
    kept = running.find(second)
    assert kept is not None
    assert kept.per_minute == 5
    hand.revoke("first")
    assert running.find(first) is None
    assert running.find(second) is not None
    assert running.find(second[:-1]) is None


def test_mistakes_with_keys_get_one_line(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.json")
    keys.add("one")
    for call in (lambda: keys.add("one"), lambda: keys.revoke("two"), lambda: keys.add("a b\n")):
        with pytest.raises(InputError) as caught:
            call()
        assert "\n" not in str(caught.value)
    for damaged in ("{", "[1]", json.dumps([{"name": "x"}]), '"text"'):
        keys.file.write_text(damaged)
        with pytest.raises(PellucidError, match="cannot read the keys"):
            Keys(keys.file).all()


@given(st.floats(1, 600), st.floats(1, 20), st.lists(st.floats(0, 5), min_size=1, max_size=80))
def test_no_client_gets_more_than_its_rate(rate: float, burst: float, gaps: list[float]) -> None:
    limit = RateLimit(rate, burst)
    now, let_in = 0.0, []
    for gap in gaps:
        now += gap
        if limit.wait("client", now=now) == 0:
            let_in.append(now)
    for first in range(len(let_in)):
        for last in range(first, len(let_in)):
            most = burst + (let_in[last] - let_in[first]) * rate / 60
            assert last - first + 1 <= most + 1e-6


@given(st.floats(1, 600), st.floats(1, 5))
def test_whoever_waits_as_told_is_let_in(rate: float, burst: float) -> None:
    limit = RateLimit(rate, burst)
    now = 0.0
    for _ in range(30):
        wait = limit.wait("client", now=now)
        now += wait
        if wait:
            assert limit.wait("client", now=now + 1e-6) == 0


def test_clients_do_not_touch_each_other_and_do_not_pile_up() -> None:
    limit = RateLimit(60, burst=1)
    assert limit.wait("a", now=0) == 0
    assert limit.wait("a", now=0) > 0
    assert limit.wait("b", now=0) == 0
    for number in range(MOST_CLIENTS + 50):
        limit.wait(str(number), now=1)
    assert len(limit._buckets) == MOST_CLIENTS
    assert RateLimit(0).wait("anyone") == 0
