"""Lifecycle of the server process: connections, signals, graceful shutdown, reloading.

SIGTERM or Ctrl-C: report "not ready" at once, keep listening for a moment so that a load balancer
notices, then accept no new connections, finish the requests in progress and exit with 0. A second
signal exits at once. SIGHUP: reload the models that have changed on disk.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from pellucid.errors import PellucidError
from pellucid.server.service.served_models import ModelLoader, reload
from pellucid.server.service.state import ServerState

NO_LOGGING: dict[str, Any] = {"version": 1, "disable_existing_loggers": False}
"""uvicorn's own log would contain paths with their queries, and so texts and keys."""


def limited_protocol(client_timeout: float, max_connections: int) -> type[H11Protocol]:
    """Make an HTTP protocol that limits connections, and the time that each may stay silent."""

    class LimitedProtocol(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > max_connections:
                transport.abort()
                return
            self._expect_data()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._expect_data()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if not self.transport.is_closing():
                self._expect_data()

        def _expect_data(self) -> None:
            """Start the timer for the next request's headers, or the rest of a refused body."""
            if self.cycle is not None and not self.cycle.response_complete:
                self._stop_timer()
            elif self._timer is None and self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
                self._timer = self.loop.call_later(client_timeout, self._time_out)

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _time_out(self) -> None:
            self._timer = None
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

    return LimitedProtocol


class GracefulServer(uvicorn.Server):
    """A uvicorn server that shuts down gracefully and reloads its models."""

    def __init__(
        self, config: uvicorn.Config, state: ServerState, loader: ModelLoader, greeting: str = ""
    ) -> None:
        super().__init__(config)
        self.state, self.loader, self.greeting = state, loader, greeting
        self._reload_lock = threading.Lock()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then print the greeting and log the directions."""
        await super().startup(sockets)
        if self.greeting:
            print(self.greeting, file=sys.stderr, flush=True)
        self.state.log.write("started", directions=self.state.models.table.directions)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Handle signals while the server runs."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers: dict[int, Any] = {
            signal.SIGTERM: self.handle_exit,
            signal.SIGINT: self.handle_exit,
            signal.SIGHUP: self._handle_reload,
        }
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin the shutdown; on a second signal, exit at once."""
        if self.state.stopping:
            self.force_exit = self.should_exit = True
            return
        self.state.stopping = True
        name = signal.Signals(sig).name
        threading.Thread(target=self._drain, args=(name,), daemon=True).start()

    def _drain(self, name: str) -> None:
        self.state.log.write("stopping", signal=name)
        threading.Event().wait(self.state.settings.drain if name == "SIGTERM" else 0.0)
        self.should_exit = True

    def _handle_reload(self, sig: int, frame: FrameType | None) -> None:
        threading.Thread(target=self.reload, daemon=True).start()

    def reload(self) -> None:
        """Load the models that have changed on disk. If that fails, nothing changes."""
        with self._reload_lock:
            try:
                added, removed = reload(self.state.models, self.loader)
            except PellucidError as error:
                self.state.log.write("reload failed", error=str(error))
                return
            self.state.count_batches()
            self.state.log.write("reloaded", added=added, removed=removed)


def uvicorn_config(
    app: Any, state: ServerState, *, host: str, port: int, root_path: str, proxies: str
) -> uvicorn.Config:
    """Make uvicorn's configuration. proxies: addresses whose forwarded headers are trusted."""
    settings = state.settings
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        http=limited_protocol(settings.client_timeout, settings.max_connections),
        ws="none",
        log_config=NO_LOGGING,
        log_level="critical",
        access_log=False,
        server_header=False,
        root_path=root_path.rstrip("/"),
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies or None,
        backlog=1024,
        timeout_keep_alive=max(1, round(settings.client_timeout)),
        timeout_graceful_shutdown=max(1, round(settings.graceful_timeout)),
    )
