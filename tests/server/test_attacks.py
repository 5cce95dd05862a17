"""Texts and requests that break careless servers: each gets an answer, and none does harm."""

import json
import random
import socket
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.server.running import Here

WAY = {"source": "en", "target": "fr"}

TEXTS = {
    "script": "<script>alert(1)</script>",
    "image": '"><img src=x onerror=alert(1)>',
    "template": "{{7*7}} ${7*7} <%= 7*7 %> #{7*7}",
    "right to left": "The \u202ebaker\u202c sells \u2066pears\u2069.",
    "right to left only": "\u202e\u202e\u202e",
    "joined emoji": "The baker 👩‍👩‍👧‍👦🏳️‍🌈👍🏽 sells",
    "zero widths": "The\u200b\u200c\u200d\ufeff baker\u00ad",
    "combining": "Z" + "\u0335\u0321\u0322\u0327" * 400 + " baker",
    "controls": "The\x00\x01\x08\x1b[31m baker\x7f\x85\u2028\u2029",
    "not characters": "The \ufffe\uffff baker \U0010ffff",
    "private": "\ue000\uf8ff\U000f0000",
    "no spaces": "a" * 3_000,
    "no spaces, wide": "漢" * 1_000,
    "one bracket": "(" * 3_000,
    "dots": "." * 19_000,
    "dots and letters": "a." * 500,
    "lines": "\n" * 19_000,
    "a line each": "a\n" * 100,
    "spaces": " " * 19_000 + "baker",
    "addresses": "https://a.example/" + "a" * 2_000,
    "at signs": "a@" * 500,
    "backslashes": "\\" * 3_000,
    "sql": "'; DROP TABLE keys; --",
    "path": "../../../../etc/passwd",
    "tokens": "</s> <s> <pad> <2fr> <2en> <unk> ▁▁▁",
    "numbers": "1" * 5_000,
    "format": "%s%s%n {0} {q}",
    "json": '{"q": {"$gt": ""}}',
    "soft hyphens": "\u00ad" * 50,
    "modifier letters": "\u02b0\u02b1 ª º ʼ",
    "old letters": "𒀀𒀁 𐎠𐎡 ᚠᚢ",
    "squared": "㎏ ㎖ ﷺ ﬃ",
}


@pytest.mark.parametrize("name", TEXTS)
def test_any_text_gets_an_answer(client: httpx.Client, name: str) -> None:
    text = TEXTS[name]
    for form in ("text", "html"):
        answer = client.post("/translate", json={"q": text, **WAY, "format": form, "beam_size": 1})
        assert answer.status_code in (200, 422), answer.text
        assert answer.headers["content-type"] == "application/json"
        if answer.status_code == 200:
            assert isinstance(answer.json()["translatedText"], str)
        else:
            # One visible character that is too long for the model; NUL, which no HTML may have.
            assert (name, form) in (("combining", form), ("controls", "html")), answer.text
    assert client.post("/detect", json={"q": text}).status_code == 200
    auto = {"q": [text, "The baker"], "source": "auto", "target": "fr", "beam_size": 1}
    expected = 422 if name == "combining" else 200
    assert client.post("/translate", json=auto).status_code == expected
    sent = {"q": text[:200], **WAY, "beam_size": "1"}
    assert client.post("/translate", data=sent).status_code == 200


def test_a_megabyte_without_spaces_is_refused(client: httpx.Client) -> None:
    assert client.post("/translate", json={"q": "a" * 1_000_000, **WAY}).status_code == 413


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"q"',
        b'{"q": "a\\ud800b", "source": "en", "target": "fr"}',
        b'{"q": "\xff\xfe", "source": "en", "target": "fr"}',
        b'{"q": NaN, "source": "en", "target": "fr"}',
        b"[" * 100_000,
        b'{"q":' * 100_000,
        b'{"q": ' + b"9" * 100_000 + b"}",
        b'{"q": ["a", ["b"]], "source": "en", "target": "fr"}',
        b'{"q": {"a": 1}, "source": "en", "target": "fr"}',
        b'{"q": "a", "source": ["en"], "target": "fr"}',
        b'{"q": "a", "source": "en", "target": "../../fr"}',
        b'{"q": "a", "source": "en\\u0000", "target": "fr"}',
        b"\x00" * 1000,
    ],
)
@pytest.mark.parametrize("path", ["/translate", "/detect", "/translate/stream", "/trace"])
def test_bodies_that_are_none(client: httpx.Client, path: str, body: bytes) -> None:
    answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
    if path == "/detect" and answer.status_code == 200:
        return  # it needs no languages
    assert answer.status_code == 422
    assert "\n" not in answer.json()["error"]
    assert len(answer.text) < 700


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/x-www-form-urlencoded", b"q=%ff%fe&source=en&target=fr"),
        ("application/x-www-form-urlencoded", b"q=a&source=en&target=fr&beam_size=x"),
        ("application/x-www-form-urlencoded", b"&".join(b"a%d=1" % n for n in range(5000))),
        ("multipart/form-data", b"no boundary"),
        ("multipart/form-data; boundary=x", b"--x\r\nbroken"),
        ("multipart/form-data; boundary=x", b"--x\r\n" * 5000),
        ("text/xml", b"<q/>"),
        ("application/json; charset=utf-16", b"\xff\xfe{\x00}\x00"),
    ],
)
def test_forms_that_are_none(client: httpx.Client, kind: str, body: bytes) -> None:
    for path in ("/translate", "/translate_file"):
        answer = client.post(path, content=body, headers={"Content-Type": kind})
        assert answer.status_code in (200, 415, 422), answer.text
        assert "error" in answer.json() or "translatedText" in answer.json()


ENTITIES = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12))
FILES = {
    "bomb.tmx": f'<!DOCTYPE tmx [<!ENTITY a0 "baker">{ENTITIES}]><tmx>&a11;</tmx>',
    "outside.tmx": '<!DOCTYPE tmx [<!ENTITY x SYSTEM "file:///etc/passwd">]><tmx>&x;</tmx>',
    "fetch.html": '<html><img src="http://127.0.0.1:9/x"><p>The baker</p></html>',
    "deep.html": "<div>" * 50_000,
    "nul.txt": "\x00" * 5000,
    "broken.po": 'msgid "a\nmsgstr "',
    "zeros.srt": "1\n" * 20_000,
    "../../../etc/cron.d/evil.txt": "The baker.",
    "..\\..\\evil.txt": "The baker.",
    ".txt": "The baker.",
    "a.txt\r\nX-Evil: 1": "The baker.",
    'a";x="b.txt': "The baker.",
    "a.zip": "PK\x03\x04",
    "a.docx": "PK\x03\x04",
    "": "The baker.",
    "x" * 5000 + ".txt": "The baker.",
}


@pytest.mark.parametrize("name", FILES, ids=lambda name: repr(name[:20]))
def test_any_file_gets_an_answer(client: httpx.Client, name: str) -> None:
    files = {"file": (name or "file", FILES[name].encode())}
    answer = client.post("/translate_file", data={**WAY, "beam_size": "1"}, files=files)
    assert answer.status_code in (200, 413, 415, 422), answer.text
    if answer.status_code != 200:
        assert "root:" not in answer.text
        return
    address = answer.json()["translatedFileUrl"]
    fetched = client.get(address)
    assert fetched.headers["content-type"] == "application/octet-stream"
    told = fetched.headers["content-disposition"].split("filename=")[1]
    assert ".." not in told
    assert told.count('"') == 2
    assert "x-evil" not in fetched.headers
    assert b"root:" not in fetched.content


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static//etc/passwd",
        "/static/%00",
        "/download_file/../../etc/passwd",
        "/download_file/..%2f..%2fetc%2fpasswd",
        "/download_file/",
        "/trace/../about/tensor?path=x",
        "/trace/none/tensor?path=../../x",
        "//etc/passwd",
        "/" + "a" * 5000,
        "/%ff%fe",
    ],
)
def test_no_path_leads_outside(here: Here, path: str) -> None:
    with socket.create_connection(("127.0.0.1", here.port), 30) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while part := line.recv(65_536):
            answer += part
    assert answer.split()[1] in (b"404", b"400", b"422", b"405"), answer[:200]
    assert b"root:" not in answer
    assert b"import annotations" not in answer


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /translate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n",
        random.Random(4).randbytes(64).replace(b"\n", b"x") + b"\r\n\r\n",
    ],
)
def test_what_is_no_request(here: Here, client: httpx.Client, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", here.port), 30) as line:
        line.settimeout(10)
        try:
            line.sendall(sent)
            line.shutdown(socket.SHUT_WR)
            answer = line.recv(4000)
        except (ConnectionError, TimeoutError):
            answer = b""
    assert b"Traceback" not in answer
    assert client.get("/health/live").status_code == 200


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=40),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=8), one, max_size=3),
    max_leaves=6,
)
NAMES = [
    "q",
    "source",
    "target",
    "format",
    "alternatives",
    "api_key",
    "beam_size",
    "prefix",
    "model",
]
bodies = st.fixed_dictionaries(
    {
        "q": st.text(max_size=60) | st.lists(st.text(max_size=20), max_size=3),
        "source": st.sampled_from(["en", "fr", "auto", "EN", "xx"]),
        "target": st.sampled_from(["en", "fr"]),
        "beam_size": st.just(1),
    }
)


@settings(max_examples=100)
@given(bodies, st.sampled_from(NAMES), anything | st.just(...))
def test_a_fuzz_of_every_field(
    client: httpx.Client, body: dict[str, Any], name: str, value: Any
) -> None:
    """A request that is right but for one field, which is anything or missing."""
    asked = {**body, name: value}
    if value is ...:
        del asked[name]
    sent = json.dumps(asked).encode("utf-8", "surrogatepass")
    answer = client.post("/translate", content=sent, headers={"Content-Type": "application/json"})
    assert answer.status_code in (200, 413, 422), answer.text
    if answer.status_code == 200 and isinstance(asked["q"], list):
        assert len(answer.json()["translatedText"]) == len(asked["q"])


def test_nothing_of_this_failed_inside(here: Here) -> None:
    """Whatever the tests before this one sent, there was no error that nobody expected."""
    assert [event for event in here.log.events if event["event"] == "failure"] == []
