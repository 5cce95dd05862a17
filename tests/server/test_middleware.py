"""Limits are on, keys are kept secret, answers carry what they should, and logs what they may."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from pellucid.server.security.api_keys import ApiKeys
from tests.server.running import Here

WAY = {"source": "en", "target": "fr"}
TEXT = "The baker sells some pears."


HTTP = httpx.Client(timeout=60, verify=False)


def post(here: Here, path: str = "/translate", **more: Any) -> httpx.Response:
    return HTTP.post(f"{here.address}{path}", **more)


@pytest.mark.parametrize(
    "asked",
    [
        {"q": "a" * 20_001},
        {"q": ["a"] * 101},
        {"q": ["a" * 19_000] * 6},
        {"q": TEXT, "beam_size": 9},
        {"q": TEXT, "alternatives": 9},
        {"q": TEXT, "prefix": "a" * 501},
        {"q": TEXT, "model": "a" * 101},
        {"q": TEXT, "api_key": "a" * 201},
    ],
)
def test_too_much_is_refused_at_once(client: httpx.Client, asked: dict[str, Any]) -> None:
    answer = client.post("/translate", json={**asked, **WAY})
    assert answer.status_code in (413, 422)
    assert answer.elapsed.total_seconds() < 20
    assert len(answer.text) < 700


def integers(schema: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where a schema has whole numbers."""
    if isinstance(schema, list):
        return [place for i, one in enumerate(schema) for place in integers(one, (*path, i))]
    if not isinstance(schema, dict):
        return []
    here = [path] if schema.get("type") == "integer" else []
    return here + [p for key, one in schema.items() for p in integers(one, (*path, key))]


@pytest.mark.parametrize("value", [10**9, -(10**9), 2**63, 10**40, 1.5, "9" * 4000, None, [], {}])
def test_every_number_has_its_limits(client: httpx.Client, value: Any) -> None:
    """Each field with a number in the API, by its own description, with one that is too large."""
    sentence = {"q": TEXT, **WAY}
    bodies = {
        "/translate": [{**sentence, f: value} for f in ("beam_size", "alternatives")],
        "/alternatives": [
            {**sentence, "position": 0, f: value} for f in ("position", "count", "beam_size")
        ],
        "/trace": [
            {**sentence, "beam_size": value},
            {**sentence, "temperature": -9 if value == 1.5 else value},
            {**sentence, "prefix": [value]},
            {**sentence, "without": [value]},
            {**sentence, "off": [{"kind": "cross", "layer": value, "head": 0}]},
            {**sentence, "off": [{"kind": "cross", "layer": 0, "head": value}]},
        ],
    }
    description = client.get("/openapi.json").json()
    described = {
        path
        for path, route in description["paths"].items()
        if integers(route) or "$ref" in json.dumps(route.get("post", {}).get("requestBody", {}))
    }
    queries = {"/positions": ("length", "width"), "/output_projection": ("layer",)}
    assert described <= {
        *bodies, *queries, "/masks", "/trace/{trace_id}/tensor", "/translate/stream"
    }  # fmt: skip
    for path, asked in bodies.items():
        for body in asked:
            answer = client.post(path, json=body)
            assert answer.status_code == 422, (path, body, answer.text)
    for path, names in queries.items():
        for name in names:
            asked_for = {"kind": "cross", "layer": 0, name: json.dumps(value)}
            assert client.get(path, params=asked_for).status_code == 422


def test_a_large_body_is_refused_before_it_is_sent(here: Here) -> None:
    import socket

    with socket.create_connection(("127.0.0.1", here.port), 30) as line:
        line.sendall(
            b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: 99999999999\r\n\r\n"
        )
        assert line.recv(4000).startswith(b"HTTP/1.1 413")


def test_a_large_body_without_a_length_is_refused_on_the_way(here: Here) -> None:
    parts = (b"a" * 65_536 for _ in range(400))
    answer = post(here, content=parts, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413


def test_a_large_file_is_refused(folder: Path) -> None:
    with Here(folder, max_file_bytes=1000, file_char_limit=200) as here:
        for size in (900, 2000, 500_000):
            files = {"file": ("a.txt", b"The baker. " * (size // 11))}
            answer = post(here, "/translate_file", data=WAY, files=files)
            assert answer.status_code == 413, size
        files = {"file": ("a.txt", b"The baker.")}
        assert post(here, "/translate_file", data=WAY, files=files).status_code == 200


def test_rates_are_limited_by_address(folder: Path) -> None:
    with Here(folder, req_limit=30) as here:  # five at once
        codes = [post(here, json={"q": TEXT, **WAY}).status_code for _ in range(7)]
        assert codes[:5] == [200] * 5
        late = post(here, json={"q": TEXT, **WAY})
        assert late.status_code == 429
        assert 1 <= int(late.headers["retry-after"]) <= 60
        assert HTTP.get(f"{here.address}/health/live").status_code == 200
        assert HTTP.get(f"{here.address}/languages").status_code == 200


def test_several_texts_count_as_several(folder: Path) -> None:
    with Here(folder, req_limit=60) as here:
        assert post(here, json={"q": ["a"] * 10, **WAY}).status_code == 200
        assert post(here, json={"q": "a", **WAY}).status_code == 429


def test_forwarded_addresses_are_believed_only_from_a_proxy(folder: Path) -> None:
    for proxies, told in (("", "127.0.0.1"), ("127.0.0.1", "203.0.113.9")):
        with Here(folder, proxies=proxies) as here:
            post(here, json={"q": TEXT, **WAY}, headers={"X-Forwarded-For": "203.0.113.9"})
            here.close()
            assert [e["client"] for e in here.log.events if e["event"] == "request"] == [told]


def test_keys(folder: Path, tmp_path: Path) -> None:
    keys = ApiKeys(tmp_path / "keys.json")
    good, slow = keys.add("good"), keys.add("slow", per_minute=6)
    with Here(folder, keys=keys.file, require_key=True) as here:
        asked = {"q": TEXT, **WAY}
        none = post(here, json=asked)
        assert none.status_code == 401
        assert none.headers["www-authenticate"] == "Bearer"
        assert post(here, json={**asked, "api_key": "plk_wrong"}).status_code == 403
        for how in (
            {"json": {**asked, "api_key": good}},
            {"data": {**asked, "api_key": good}},
            {"params": {**asked, "api_key": good}},
            {"json": asked, "headers": {"Authorization": f"Bearer {good}"}},
            {"json": asked, "headers": {"X-API-Key": good}},
        ):
            assert post(here, **how).status_code == 200, how
        assert post(here, json={**asked, "api_key": slow}).status_code == 200
        assert post(here, json={**asked, "api_key": slow}).status_code == 429
        keys.revoke("good")
        assert post(here, json={**asked, "api_key": good}).status_code == 403
        for path in ("/translate/stream", "/detect", "/trace", "/alternatives", "/masks"):
            body = {**asked, "position": 0} if path == "/alternatives" else dict(asked)
            body["q"] = [TEXT] if path == "/masks" else TEXT  # type: ignore[assignment]
            assert post(here, path, json=body).status_code == 401, path
        assert HTTP.get(f"{here.address}/positions").status_code == 401
        metrics = HTTP.get(f"{here.address}/metrics").text
        assert "pellucid_requests_total" in metrics
        said = here.log.text + metrics
        here.close()
    for secret in (good, slow, "plk_wrong", TEXT, *re.findall(r'"sha256": "(\w+)"', said)):
        assert secret not in said
    assert '"key": "good"' in said


def test_a_wrong_key_is_no_way_around_the_rate(folder: Path, tmp_path: Path) -> None:
    keys = ApiKeys(tmp_path / "keys.json")
    keys.add("someone")
    with Here(folder, keys=keys.file, req_limit=18) as here:
        codes = [
            post(here, json={"q": "a", **WAY, "api_key": f"guess {n}"}).status_code
            for n in range(5)
        ]
    assert codes == [403, 403, 403, 429, 429]


def test_texts_are_in_the_log_only_where_asked_for(folder: Path) -> None:
    for wanted in (False, True):
        with Here(folder, log_texts=wanted) as here:
            post(here, params={"q": TEXT, **WAY})
            post(here, json={"q": TEXT, "source": "en", "target": "nowhere"})
            assert HTTP.get(f"{here.address}/{TEXT}?q={TEXT}").status_code == 404
            here.close()
            assert (TEXT in here.log.text) == wanted
            event = here.log.events[1]
            assert event["route"] == "/translate"
            assert event["characters"] == len(TEXT)


def test_answers_carry_what_protects_the_page(client: httpx.Client) -> None:
    for path in ("/", "/docs", "/languages", "/static/app.js", "/nowhere", "/openapi.json"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src" in policy
        assert "script-src 'unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers
    assert client.get("/about").headers["cache-control"] == "no-store"
    docs = client.get("/docs").text
    assert "<script" not in docs
    assert "/translate_file" in docs


def test_other_origins_are_let_in_only_where_named(folder: Path) -> None:
    named = {"Origin": "https://page.example"}
    with Here(folder, cors=("https://page.example",)) as here:
        for origin, allowed in (("https://page.example", True), ("https://other.example", False)):
            answer = post(here, json={"q": TEXT, **WAY}, headers={"Origin": origin})
            assert (answer.headers.get("access-control-allow-origin") == origin) == allowed
            assert "access-control-allow-credentials" not in answer.headers
        asks = {**named, "Access-Control-Request-Method": "POST"}
        assert HTTP.options(f"{here.address}/translate", headers=asks).status_code == 200


def test_behind_a_proxy_under_a_path(folder: Path) -> None:
    with Here(folder, root_path="/words") as here:
        page = HTTP.get(f"{here.address}/")
        assert "/words/static/app.js" in page.text
        assert HTTP.get(f"{here.address}/static/app.js").status_code == 200
        files = {"file": ("a.txt", b"The baker.")}
        answer = post(here, "/translate_file", data=WAY, files=files).json()
        assert "/words/download_file/" in answer["translatedFileUrl"]
        assert "/words/openapi.json" in HTTP.get(f"{here.address}/docs").text


def test_metrics_count(client: httpx.Client) -> None:
    def value(name: str) -> float:
        text = client.get("/metrics").text
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))

    name = 'pellucid_requests_total{route="/translate",status="200"}'
    before, characters = value(name), value("pellucid_characters_total")
    client.post("/translate", json={"q": TEXT, **WAY})
    assert value(name) == before + 1
    assert value("pellucid_characters_total") == characters + len(TEXT)
    assert value("pellucid_batch_sentences_count") > 0
