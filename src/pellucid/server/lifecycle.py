"""Running the server: connections that are too slow or too many, and signals.

SIGTERM or Ctrl-C: not ready at once, still listening for a moment so that a balancer notices, then
no new connections, requests under way are finished, and the process ends with 0. A second signal
ends it at once. SIGHUP: models that changed on disk are loaded in place of the old ones.
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
from pellucid.server.service.models import Library, reload
from pellucid.server.service.shared import Service, watch

NEVER_LOGGED: dict[str, Any] = {"version": 1, "disable_existing_loggers": False}
"""uvicorn's own log would have addresses with their queries, and so texts and keys."""


def protocol_for(seconds: float, most: int) -> type[H11Protocol]:
    """HTTP over connections of which there are not too many, and none idles in mid-request."""

    class Bounded(H11Protocol):
        _late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > most:
                transport.abort()
                return
            self._expect()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._expect()

        def connection_lost(self, exc: Exception | None) -> None:
            self._relax()
            super().connection_lost(exc)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if not self.transport.is_closing():
                self._expect()

        def _expect(self) -> None:
            """Give the next request's headers, or the rest of a refused body, some time."""
            if self.cycle is not None and not self.cycle.response_complete:
                self._relax()
            elif self._late is None and self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
                self._late = self.loop.call_later(seconds, self._give_up)

        def _relax(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

        def _give_up(self) -> None:
            self._late = None
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

    return Bounded


class Running(uvicorn.Server):
    """A server that stops as it should."""

    def __init__(
        self, config: uvicorn.Config, service: Service, library: Library, greeting: str = ""
    ) -> None:
        super().__init__(config)
        self.service, self.library, self.greeting = service, library, greeting
        self._reloading = threading.Lock()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        if self.greeting:
            print(self.greeting, file=sys.stderr, flush=True)
        self.service.log.write("started", directions=self.service.models.table.directions)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Listen for signals while the server runs."""
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
        """Begin to stop; told a second time, stop at once."""
        if self.service.stopping:
            self.force_exit = self.should_exit = True
            return
        self.service.stopping = True
        name = signal.Signals(sig).name
        threading.Thread(target=self._drain, args=(name,), daemon=True).start()

    def _drain(self, name: str) -> None:
        self.service.log.write("stopping", signal=name)
        threading.Event().wait(self.service.settings.drain if name == "SIGTERM" else 0.0)
        self.should_exit = True

    def _handle_reload(self, sig: int, frame: FrameType | None) -> None:
        threading.Thread(target=self.reload, daemon=True).start()

    def reload(self) -> None:
        """Load what changed on disk. If that fails, all stays as it was."""
        with self._reloading:
            try:
                came, went = reload(self.service.models, self.library)
            except PellucidError as error:
                self.service.log.write("reload failed", error=str(error))
                return
            for model in self.service.models.table.models:
                watch(model, self.service.metrics)
            self.service.log.write("reloaded", came=came, went=went)


def config_for(
    app: Any, service: Service, *, host: str, port: int, root_path: str, proxies: str
) -> uvicorn.Config:
    """What uvicorn has to know. proxies: addresses whose forwarded headers are believed."""
    settings = service.settings
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        http=protocol_for(settings.patience, settings.connections),
        ws="none",
        log_config=NEVER_LOGGED,
        log_level="critical",
        access_log=False,
        server_header=False,
        root_path=root_path.rstrip("/"),
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies or None,
        backlog=1024,
        timeout_keep_alive=max(1, round(settings.patience)),
        timeout_graceful_shutdown=max(1, round(settings.grace)),
    )
