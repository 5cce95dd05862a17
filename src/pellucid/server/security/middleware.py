"""What every request passes and every answer carries: sizes, times, numbers; headers, a log."""

from __future__ import annotations

import asyncio
import secrets
import time
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pellucid.server.service.batching import Patience
from pellucid.server.service.telemetry import Log, Metrics
from pellucid.server.settings import ServerSettings
from pellucid.web.page import content_security_policy

SLOWEST = 20_000
"""Bytes a second of a body that may take longer than the usual patience."""


@dataclass
class Visit:
    """One request under way."""

    id: str
    patience: Patience
    facts: dict[str, Any] = field(default_factory=dict)
    """What the log tells of it beside the usual."""
    status: int = 0


class _RefusedError(Exception):
    """Answered here, without the application."""

    def __init__(self, status: int, reason: str, error: str) -> None:
        self.status, self.reason, self.error = status, reason, error


class Guard:
    """Middleware: bounds the body, the time and the number of requests; adds headers; tells."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, metrics: Metrics, log: Log) -> None:
        self.app, self.settings, self.metrics, self.log = app, settings, metrics, log
        self._under_way = 0
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1000})
                return
            await self.app(scope, receive, send)
            return
        start = time.perf_counter()
        patience = Patience(time.monotonic() + self.settings.seconds)
        visit = Visit(secrets.token_hex(8), patience)
        scope.setdefault("state", {})["visit"] = visit
        answer = self._answering(scope, visit, send)
        self._under_way += 1
        self.metrics.under_way.set(self._under_way)
        try:
            await self._passed(scope, receive, answer, visit)
        except _RefusedError as refused:
            self.metrics.refused.labels(refused.reason).inc()
            await _say(refused.status, refused.error)(scope, receive, answer)
        except TimeoutError:  # the client does not take its answer
            self.metrics.refused.labels("slow").inc()
            visit.facts["error"] = "the client took its answer too slowly"
        except Exception as error:
            lines = traceback.format_exception(error)
            self.log.write("failure", id=visit.id, error=type(error).__name__, trace=lines[-6:])
            if not visit.status:
                await _say(500, f"this failed; the log has it as {visit.id}")(
                    scope, receive, answer
                )
        finally:
            patience.abandoned = True  # whatever is still done for it is for nobody
            self._under_way -= 1
            self.metrics.under_way.set(self._under_way)
            self._tell(scope, visit, time.perf_counter() - start)

    async def _passed(self, scope: Scope, receive: Receive, send: Send, visit: Visit) -> None:
        headers = {name: value for name, value in scope["headers"] if name in _OF_BODIES}
        if not headers:
            await self.app(scope, receive, send)
            return
        if self._under_way > self.settings.requests:
            raise _RefusedError(
                503, "requests", "too many requests are under way: try again shortly"
            )
        body = bytearray()
        try:
            await self._read(body, scope, headers, receive)
            async with _watched(receive, bytes(body), visit.patience) as replay:
                await self.app(scope, replay, send)
        finally:
            self._held -= len(body)

    async def _read(
        self, body: bytearray, scope: Scope, headers: dict[bytes, bytes], receive: Receive
    ) -> None:
        """The whole body, or a refusal as soon as it is known to be too large or too slow."""
        is_file = scope["path"].endswith("/translate_file")
        # A form with a file has some bytes around it.
        most = self.settings.file + 10_000 if is_file else self.settings.body
        told = headers.get(b"content-length", b"")
        if told.isdigit() and int(told[:12]) > most:
            raise _RefusedError(
                413, "size", f"the request is larger than {most:,} bytes: send less"
            )
        try:
            async with asyncio.timeout(self.settings.patience) as limit:
                end = limit.when() or 0.0
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise _RefusedError(499, "gone", "the client has gone")
                    part = message.get("body", b"")
                    body += part
                    self._held += len(part)
                    limit.reschedule(end + len(body) / SLOWEST)
                    if len(body) > most:
                        raise _RefusedError(
                            413, "size", f"the request is larger than {most:,} bytes: send less"
                        )
                    if self._held > self.settings.held:
                        raise _RefusedError(
                            503, "memory", "too much is under way: try again shortly"
                        )
                    if not message.get("more_body"):
                        return
        except TimeoutError:
            raise _RefusedError(408, "slow", "the request came too slowly") from None

    def _answering(self, scope: Scope, visit: Visit, send: Send) -> Send:
        root = scope.get("root_path", "")
        always = [
            (b"content-security-policy", content_security_policy(root).encode()),
            *_HEADERS,
            (b"x-request-id", visit.id.encode()),
        ]
        if not self.settings.cors:
            always.append((b"cross-origin-resource-policy", b"same-origin"))

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                visit.status = message["status"]
                given = list(message.get("headers", ()))
                names = {name.lower() for name, _ in given}
                added = [pair for pair in always if pair[0] not in names]
                if not names & {b"cache-control", b"etag"}:
                    added.append((b"cache-control", b"no-store"))
                if visit.status in (429, 503) and b"retry-after" not in names:
                    added.append((b"retry-after", b"1"))
                message = {**message, "headers": given + added}
            async with asyncio.timeout(self.settings.patience):
                await send(message)

        return answer

    def _tell(self, scope: Scope, visit: Visit, seconds: float) -> None:
        route = _route(scope)
        self.metrics.requests.labels(route, str(visit.status)).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        if route.startswith("/health") or route in ("/metrics", "/static"):
            return  # asked all the time
        client = scope.get("client")
        self.log.write(
            "request",
            id=visit.id,
            method=scope["method"],
            route=route,
            status=visit.status,
            ms=round(seconds * 1000, 1),
            client=client[0] if client else None,
            **visit.facts,
        )


_OF_BODIES = {b"content-length", b"transfer-encoding"}
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]


def _say(status: int, error: str) -> JSONResponse:
    # After a 413 the line stays open for a while: closed at once, with a body on its way, many
    # clients would not see the answer.
    headers = {"Connection": "close"} if status == 408 else {}
    return JSONResponse({"error": error}, status, headers)


def _route(scope: Scope) -> str:
    """The route's pattern: what a client writes into an address is not for labels."""
    route = scope.get("route")
    if route is not None:
        return str(getattr(route, "path", "other"))
    inner = scope["path"].removeprefix(scope.get("root_path", ""))
    return "/static" if inner.startswith("/static/") else "other"


@asynccontextmanager
async def _watched(receive: Receive, body: bytes, patience: Patience) -> AsyncIterator[Receive]:
    """A `receive` that gives the body, while somebody looks whether the client is still there."""
    gone = asyncio.Event()
    given = False

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        patience.abandoned = True
        gone.set()

    async def replay() -> Message:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    watcher = asyncio.ensure_future(watch())
    try:
        yield replay
    finally:
        watcher.cancel()
