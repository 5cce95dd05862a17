"""Middleware of all requests: size limits, timeouts, security headers, log and metrics."""

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

from pellucid.server.service.queue import Deadline
from pellucid.server.service.telemetry import JsonLog, PrometheusMetrics
from pellucid.server.settings import ServerSettings
from pellucid.web.page import content_security_policy

MIN_BYTES_PER_SECOND = 20_000
"""Upload speed from which on a large body may take longer than the client timeout."""


@dataclass
class RequestContext:
    """One request in progress."""

    id: str
    deadline: Deadline
    fields: dict[str, Any] = field(default_factory=dict)
    """Further fields of its line in the log."""
    status: int = 0


class _RefusedError(Exception):
    """The request is refused here, before it reaches the application."""

    def __init__(self, status: int, reason: str, error: str) -> None:
        self.status, self.reason, self.error = status, reason, error


class RequestMiddleware:
    """Limits the size, time and number of requests, adds headers, writes the log and metrics."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        metrics: PrometheusMetrics,
        log: JsonLog,
    ) -> None:
        self.app, self.settings, self.metrics, self.log = app, settings, metrics, log
        self._in_progress = 0
        self._held_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection, as ASGI specifies."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1000})
                return
            await self.app(scope, receive, send)
            return
        start = time.perf_counter()
        deadline = Deadline(time.monotonic() + self.settings.timeout)
        context = RequestContext(secrets.token_hex(8), deadline)
        scope.setdefault("state", {})["context"] = context
        respond = self._with_headers(scope, context, send)
        self._in_progress += 1
        self.metrics.in_progress.set(self._in_progress)
        try:
            await self._handle(scope, receive, respond, context)
        except _RefusedError as refused:
            self.metrics.refused.labels(refused.reason).inc()
            await _error(refused.status, refused.error)(scope, receive, respond)
        except TimeoutError:  # sending the response took too long
            self.metrics.refused.labels("slow").inc()
            context.fields["error"] = "the client received the response too slowly"
        except Exception as error:
            lines = traceback.format_exception(error)
            self.log.write("failure", id=context.id, error=type(error).__name__, trace=lines[-6:])
            if not context.status:
                message = f"internal error; the log has it under {context.id}"
                await _error(500, message)(scope, receive, respond)
        finally:
            deadline.abandoned = True  # cancels what is still being computed for it
            self._in_progress -= 1
            self.metrics.in_progress.set(self._in_progress)
            self._record(scope, context, time.perf_counter() - start)

    async def _handle(
        self, scope: Scope, receive: Receive, send: Send, context: RequestContext
    ) -> None:
        headers = {name: value for name, value in scope["headers"] if name in _BODY_HEADERS}
        if not headers:
            await self.app(scope, receive, send)
            return
        if self._in_progress > self.settings.max_requests:
            raise _RefusedError(
                503, "requests", "too many requests are in progress: try again shortly"
            )
        body = bytearray()
        try:
            await self._read_body(body, scope, headers, receive)
            async with _watch_for_disconnect(receive, bytes(body), context.deadline) as replay:
                await self.app(scope, replay, send)
        finally:
            self._held_bytes -= len(body)

    async def _read_body(
        self, body: bytearray, scope: Scope, headers: dict[bytes, bytes], receive: Receive
    ) -> None:
        """Read the whole body; refuse it as soon as it is known to be too large or too slow."""
        is_file = scope["path"].endswith("/translate_file")
        # A form has some bytes around its file.
        limits = self.settings
        size_limit = limits.max_file_bytes + 10_000 if is_file else limits.max_body_bytes
        too_large = f"the request is larger than {size_limit:,} bytes: send less"
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length[:12]) > size_limit:
            raise _RefusedError(413, "size", too_large)
        try:
            async with asyncio.timeout(limits.client_timeout) as timer:
                end = timer.when() or 0.0
                while True:
                    event = await receive()
                    if event["type"] != "http.request":
                        raise _RefusedError(499, "gone", "the client has closed the connection")
                    part = event.get("body", b"")
                    body += part
                    self._held_bytes += len(part)
                    timer.reschedule(end + len(body) / MIN_BYTES_PER_SECOND)
                    if len(body) > size_limit:
                        raise _RefusedError(413, "size", too_large)
                    if self._held_bytes > limits.max_held_bytes:
                        message = "too many bytes are in progress: try again shortly"
                        raise _RefusedError(503, "memory", message)
                    if not event.get("more_body"):
                        return
        except TimeoutError:
            raise _RefusedError(408, "slow", "the request was sent too slowly") from None

    def _with_headers(self, scope: Scope, context: RequestContext, send: Send) -> Send:
        """Wrap `send`: security headers on every response, and a timeout."""
        root = scope.get("root_path", "")
        always = [
            (b"content-security-policy", content_security_policy(root).encode()),
            *_SECURITY_HEADERS,
            (b"x-request-id", context.id.encode()),
        ]
        if not self.settings.cors:
            always.append((b"cross-origin-resource-policy", b"same-origin"))

        async def respond(message: Message) -> None:
            if message["type"] == "http.response.start":
                context.status = message["status"]
                headers = list(message.get("headers", ()))
                names = {name.lower() for name, _ in headers}
                added = [pair for pair in always if pair[0] not in names]
                if not names & {b"cache-control", b"etag"}:
                    added.append((b"cache-control", b"no-store"))
                if context.status in (429, 503) and b"retry-after" not in names:
                    added.append((b"retry-after", b"1"))
                message = {**message, "headers": headers + added}
            async with asyncio.timeout(self.settings.client_timeout):
                await send(message)

        return respond

    def _record(self, scope: Scope, context: RequestContext, seconds: float) -> None:
        """Add the request to the metrics and the log."""
        route = _route_of(scope)
        self.metrics.requests.labels(route, str(context.status)).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        if route.startswith("/health") or route in ("/metrics", "/static"):
            return  # requested all the time
        client = scope.get("client")
        self.log.write(
            "request",
            id=context.id,
            method=scope["method"],
            route=route,
            status=context.status,
            ms=round(seconds * 1000, 1),
            client=client[0] if client else None,
            **context.fields,
        )


_BODY_HEADERS = {b"content-length", b"transfer-encoding"}
_SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]


def _error(status: int, error: str) -> JSONResponse:
    # After a 413 the connection stays open for a while: if it were closed while the body is still
    # being sent, many clients would not see the response.
    headers = {"Connection": "close"} if status == 408 else {}
    return JSONResponse({"error": error}, status, headers)


def _route_of(scope: Scope) -> str:
    """Return the pattern of the route; a path as the client chose it is no label for metrics."""
    route = scope.get("route")
    if route is not None:
        return str(getattr(route, "path", "other"))
    inner = scope["path"].removeprefix(scope.get("root_path", ""))
    return "/static" if inner.startswith("/static/") else "other"


@asynccontextmanager
async def _watch_for_disconnect(
    receive: Receive, body: bytes, deadline: Deadline
) -> AsyncIterator[Receive]:
    """Yield a `receive` that returns the body; meanwhile notice when the client disconnects."""
    disconnected = asyncio.Event()
    returned = False

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        deadline.abandoned = True
        disconnected.set()

    async def replay() -> Message:
        nonlocal returned
        if not returned:
            returned = True
            return {"type": "http.request", "body": body, "more_body": False}
        await disconnected.wait()
        return {"type": "http.disconnect"}

    watcher = asyncio.ensure_future(watch())
    try:
        yield replay
    finally:
        watcher.cancel()
