"""API keys and rate limits."""

import json
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.cli.main import app as commands
from pellucid.errors import InputError, PellucidError
from pellucid.server.security.api_keys import ApiKeys
from pellucid.server.security.rate_limit import MAX_CLIENTS, RateLimiter


def test_a_key_is_kept_only_as_a_hash(tmp_path: Path) -> None:
    keys = ApiKeys(tmp_path / "deep" / "keys.json")
    secret = keys.add("reader")
    text = keys.file.read_text()
    assert secret not in text
    assert secret.removeprefix("plk_") not in text
    assert stat.S_IMODE(keys.file.stat().st_mode) == 0o600
    found = ApiKeys(keys.file).find(secret)
    assert found is not None
    assert found.name == "reader"


@given(st.text(max_size=60))
def test_nothing_else_is_a_key(given_key: str) -> None:
    keys = ApiKeys(Path("/nowhere/keys.json"))
    assert keys.find(given_key) is None


def test_a_revoked_key_is_refused_by_a_server_that_is_running(tmp_path: Path) -> None:
    running, hand = ApiKeys(tmp_path / "keys.json"), ApiKeys(tmp_path / "keys.json")
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
    keys = ApiKeys(tmp_path / "keys.json")
    keys.add("one")
    for call in (lambda: keys.add("one"), lambda: keys.revoke("two"), lambda: keys.add("a b\n")):
        with pytest.raises(InputError) as caught:
            call()
        assert "\n" not in str(caught.value)
    for damaged in ("{", "[1]", json.dumps([{"name": "x"}]), '"text"'):
        keys.file.write_text(damaged)
        with pytest.raises(PellucidError, match="cannot read the keys"):
            ApiKeys(keys.file).all()


@given(st.floats(1, 600), st.floats(1, 20), st.lists(st.floats(0, 5), min_size=1, max_size=80))
def test_no_client_gets_more_than_its_rate(rate: float, burst: float, gaps: list[float]) -> None:
    limit = RateLimiter(rate, burst)
    now, let_in = 0.0, []
    for gap in gaps:
        now += gap
        if limit.acquire("client", now=now) == 0:
            let_in.append(now)
    for first in range(len(let_in)):
        for last in range(first, len(let_in)):
            most = burst + (let_in[last] - let_in[first]) * rate / 60
            assert last - first + 1 <= most + 1e-6


@given(st.floats(1, 600), st.floats(1, 5))
def test_whoever_waits_as_told_is_let_in(rate: float, burst: float) -> None:
    limit = RateLimiter(rate, burst)
    now = 0.0
    for _ in range(30):
        wait = limit.acquire("client", now=now)
        now += wait
        if wait:
            assert limit.acquire("client", now=now + 1e-6) == 0


def test_clients_do_not_touch_each_other_and_do_not_pile_up() -> None:
    limit = RateLimiter(60, burst=1)
    assert limit.acquire("a", now=0) == 0
    assert limit.acquire("a", now=0) > 0
    assert limit.acquire("b", now=0) == 0
    for number in range(MAX_CLIENTS + 50):
        limit.acquire(str(number), now=1)
    assert len(limit._buckets) == MAX_CLIENTS
    assert RateLimiter(0).acquire("anyone") == 0


def test_more_than_a_burst_is_let_in_and_owed() -> None:
    limit = RateLimiter(60, burst=10)
    assert limit.acquire("a", now=0, cost=30) == 0
    assert limit.acquire("a", now=0) == pytest.approx(21)
    assert limit.acquire("a", now=20.9) > 0
    assert limit.acquire("a", now=21.1) == 0


def test_the_commands_for_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "keys.json")
    commands(["serve", "keys", "add", "alice", "--keys", file, "--req-limit", "9"])
    shown = capsys.readouterr()
    found = ApiKeys(Path(file)).find(shown.out.strip())
    assert found is not None
    assert (found.name, found.per_minute) == ("alice", 9)
    commands(["serve", "keys", "list", "--keys", file])
    listed = capsys.readouterr().out
    assert listed.startswith("alice\t")
    assert "9 per minute" in listed
    assert found.sha256 not in listed
    commands(["serve", "keys", "revoke", "alice", "--keys", file])
    assert ApiKeys(Path(file)).all() == []


def test_serve_says_what_is_wrong_with_its_options(tmp_path: Path) -> None:
    missing = str(tmp_path / "keys.json")
    for words, told in (
        (["--require-key", "--keys", missing], "pellucid serve keys add"),
        (["--root-path", "words"], "has to begin with /"),
        (["--host", "no.such.host.invalid"], "cannot listen"),
        (["--model", str(tmp_path / "nowhere")], "no model"),
    ):
        with pytest.raises(InputError, match=told):
            commands(["serve", "--port", "0", *words])
