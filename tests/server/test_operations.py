"""A server that is pushed: many clients, slow ones, gone ones; stopped, killed, started again."""

import asyncio
import json
import random
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from pellucid.server.command import listen
from pellucid.server.security.middleware import RequestMiddleware
from pellucid.server.service.telemetry import JsonLog, PrometheusMetrics
from pellucid.server.settings import ServerSettings
from pellucid.translator import Translator
from tests.made_up import pairs
from tests.server.running import Command, Here

WAY = {"source": "en", "target": "fr"}
TEXTS = [english for english, _ in pairs(60)]
LONG = {"q": "\n".join(TEXTS)[:3_000], **WAY}
LONGER = {"q": "\n".join(TEXTS * 4)[:19_000], **WAY, "beam_size": 8}


def until(holds: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


def queued(here: Here) -> int:
    engine: Any = here.state.models.table.default.translator.engine
    return int(engine.queued)


def test_two_hundred_clients(folder: Path, alone: Translator) -> None:
    """Some are told to come back, and all get their own answer in the end."""
    expected = {text: alone(text, source="en", target="fr", beam_size=1) for text in TEXTS}
    refused: list[httpx.Response] = []
    draw = random.Random(1)

    async def client(http: httpx.AsyncClient, text: str) -> bool:
        while True:
            answer = await http.post("/translate", json={"q": text, **WAY, "beam_size": 1})
            if answer.status_code == 200:
                return bool(answer.json()["translatedText"] == expected[text])
            refused.append(answer)
            await asyncio.sleep(float(answer.headers["retry-after"]) * draw.uniform(0.5, 1.5))

    async def crowd(address: str) -> list[bool]:
        limits = httpx.Limits(max_connections=200)
        async with httpx.AsyncClient(base_url=address, limits=limits, timeout=120) as http:
            texts = [TEXTS[n % len(TEXTS)] for n in range(200)]
            return await asyncio.gather(*(client(http, text) for text in texts))

    with Here(folder, max_requests=64, max_queued=64) as here:
        assert asyncio.run(crowd(here.address)) == [True] * 200
        assert queued(here) == 0
    assert refused
    assert {answer.status_code for answer in refused} == {503}


def test_answers_of_many_at_once_do_not_cross(here: Here, alone: Translator) -> None:
    """Short and long, narrow and wide, at the same time: each as if it were alone."""

    async def ask(http: httpx.AsyncClient, number: int) -> bool:
        text = " ".join(TEXTS[number % 20 : number % 20 + 1 + number % 7])
        beam = 1 + number % 3
        answer = await http.post("/translate", json={"q": text, **WAY, "beam_size": beam})
        return bool(answer.json()["translatedText"] == alone(text, source="en", beam_size=beam))

    async def crowd() -> list[bool]:
        async with httpx.AsyncClient(base_url=here.address, timeout=120) as http:
            return await asyncio.gather(*(ask(http, number) for number in range(30)))

    assert asyncio.run(crowd()) == [True] * 30


def post_and_leave(here: Here, body: bytes) -> None:
    line = socket.create_connection(("127.0.0.1", here.port), 30)
    line.sendall(
        b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    until(lambda: queued(here) > 0)
    line.close()


def test_nothing_is_done_for_a_client_that_has_gone(folder: Path) -> None:
    with Here(folder, workers=1) as here:
        post_and_leave(here, json.dumps(LONGER).encode())
        until(lambda: queued(here) == 0)
        until(lambda: any(e["event"] == "request" for e in here.log.events))
        assert here.log.events[-1]["status"] == 499


def test_what_takes_too_long_is_given_up(folder: Path) -> None:
    with Here(folder, workers=1, timeout=0.3) as here:
        answer = httpx.post(f"{here.address}/translate", json=LONGER, timeout=60)
        assert answer.status_code == 503
        assert "too long" in answer.json()["error"]
        assert int(answer.headers["retry-after"]) >= 1
        until(lambda: queued(here) == 0)


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        (b"", b""),
        (b"POST /translate HT", b""),
        (b"POST /translate HTTP/1.1\r\nHost: x\r\nX-Slow: ", b""),
        (b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{", b"HTTP/1.1 408"),
        (
            b"POST /translate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
            b"HTTP/1.1 408",
        ),
    ],
)
def test_slow_clients_are_not_waited_for(folder: Path, sent: bytes, answered: bytes) -> None:
    with Here(folder, client_timeout=0.5) as here:
        lines = [socket.create_connection(("127.0.0.1", here.port), 30) for _ in range(30)]
        for line in lines:
            line.sendall(sent)
        others = httpx.post(f"{here.address}/translate", json={"q": TEXTS[0], **WAY}, timeout=60)
        assert others.status_code == 200, "the others are served meanwhile"
        for line in lines:
            line.settimeout(30)
            assert line.recv(4000).startswith(answered)
            line.close()


def test_who_does_not_take_the_answer_is_not_waited_for() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x"})

    async def stuck(message: Any) -> None:
        await asyncio.Event().wait()

    metrics = PrometheusMetrics()
    guarded = RequestMiddleware(
        app, ServerSettings(client_timeout=0.2), metrics, JsonLog(quiet=True)
    )
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "client": None}

    async def run() -> None:
        await asyncio.wait_for(guarded(scope, stuck, stuck), 30)  # type: ignore[arg-type]

    asyncio.run(run())
    assert metrics.registry.get_sample_value("pellucid_requests_in_progress") == 0


def test_there_are_not_too_many_connections(folder: Path) -> None:
    with Here(folder, max_connections=20) as here:
        lines = [socket.create_connection(("127.0.0.1", here.port), 30) for _ in range(40)]
        time.sleep(0.5)
        closed = 0
        for line in lines:
            line.settimeout(0.05)
            try:
                closed += line.recv(10) == b""
            except ConnectionError:
                closed += 1
            except TimeoutError:
                pass
        assert closed == 20
        for line in lines:
            line.close()
        until(lambda: _alive(here))


def _alive(here: Here) -> bool:
    try:
        return httpx.get(f"{here.address}/health/live").status_code == 200
    except httpx.TransportError:
        return False


def test_stopping_finishes_what_is_under_way(folder: Path, alone: Translator) -> None:
    with Command(folder, options=("--workers", "1", "--drain", "2", "--req-limit", "0")) as here:
        found: list[httpx.Response] = []

        def ask() -> None:
            found.append(httpx.post(f"{here.address}/translate", json=LONG, timeout=120))

        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(0.3)
        here.process.send_signal(signal.SIGTERM)
        here.wait_for("stopping")
        ready = httpx.get(f"{here.address}/health/ready")
        assert ready.status_code == 503
        assert ready.headers["retry-after"]
        assert httpx.get(f"{here.address}/health/live").status_code == 200
        assert here.ended() == 0
        asking.join(60)
    assert found[0].status_code == 200
    assert found[0].json()["translatedText"] == alone(LONG["q"], source="en")
    assert "Traceback" not in "".join(here.said)


def test_killed_and_started_again_under_load(folder: Path, alone: Translator) -> None:
    """Clients that try again get right answers before and after, and never a wrong one."""
    expected = {text: alone(text, source="en") for text in TEXTS[:10]}
    right, wrong, lost = [], [], []
    stop = threading.Event()

    def ask(port: int) -> None:
        with httpx.Client(timeout=60, verify=False) as client:
            while not stop.is_set():
                for text, translation in expected.items():
                    try:
                        answer = client.post(
                            f"http://127.0.0.1:{port}/translate", json={"q": text, **WAY}
                        )
                    except httpx.TransportError:
                        lost.append(text)
                        time.sleep(0.1)
                        continue
                    good = answer.status_code == 200
                    good = good and answer.json()["translatedText"] == translation
                    (right if good else wrong).append((text, answer.text))

    options = ("--req-limit", "0", "--workers", "1")
    with Command(folder, options=options) as first:
        threads = [threading.Thread(target=ask, args=(first.port,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: len(right) > 20)
        first.process.kill()
        first.ended()
    before = len(right)
    with Command(folder, port=first.port, options=options):
        until(lambda: len(right) > before + 20)
        stop.set()
        for thread in threads:
            thread.join(60)
    assert lost
    assert wrong == []


def test_a_signal_reads_the_models_again(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "models"
    place.mkdir()
    (place / "one").symlink_to(folder)
    with Command(place, options=("--workers", "1")) as here:
        (place / "two").symlink_to(folder)
        here.process.send_signal(signal.SIGHUP)
        assert '"added": ["two"]' in here.wait_for("reloaded")
        broken = place / "three"
        broken.mkdir()
        (broken / "manifest.json").write_text("{")
        here.process.send_signal(signal.SIGHUP)
        assert "three" in here.wait_for("reload failed")
        answer = httpx.post(f"{here.address}/translate", json={"q": TEXTS[0], **WAY}, timeout=60)
        assert answer.status_code == 200
        here.process.send_signal(signal.SIGINT)
        assert here.ended() == 0


def test_small_answers_go_at_once() -> None:
    """Where the system may hold a small answer back (Nagle), each takes 40 ms longer."""

    async def accepted() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def come(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            own = writer.get_extra_info("socket")
            found.set_result(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listening = listen("127.0.0.1", 0)
        async with await asyncio.start_server(come, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname())
            answer = await found
            writer.close()
        return answer

    assert asyncio.run(accepted()) == 1
