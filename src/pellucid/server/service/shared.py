"""What all routes of one server share, and who is let in."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from ipaddress import ip_network

from fastapi import HTTPException, Request

from pellucid.errors import PellucidError
from pellucid.server.security.keys import Keys, default_file
from pellucid.server.security.middleware import Visit
from pellucid.server.security.rate_limit import RateLimit
from pellucid.server.service.batching import BatchingEngine
from pellucid.server.service.models import Models, Served
from pellucid.server.service.queue import Work
from pellucid.server.service.telemetry import Log, Metrics
from pellucid.server.settings import ServerSettings


@dataclass
class Service:
    """One server: its models, its settings, its keys, its threads."""

    models: Models
    settings: ServerSettings
    work: Work
    log: Log
    metrics: Metrics = field(default_factory=Metrics)
    stopping: bool = False

    def __post_init__(self) -> None:
        self.keys = Keys(self.settings.keys or default_file())
        self.rate = RateLimit(self.settings.req_limit)
        for model in self.models.table.models:
            watch(model, self.metrics)

    def admit(self, request: Request, given: str = "", cost: int = 1) -> Visit:
        """Check the key and the rate of a request; the visit, or an error with 401, 403 or 429.

        given: the key that the body or the query has. A header may have it as well.
        """
        visit: Visit = request.state.visit
        given = given or key_in(request)
        client = _client(request)
        try:
            key = self.keys.find(given) if given else None
            # Where there are no keys at all, a client that sends one all the same is let in.
            wrong = bool(given) and key is None and (self.settings.require_key or self.keys.all())
        except PellucidError as error:  # which names a file
            self.log.write("failure", id=visit.id, error=str(error))
            raise HTTPException(500, f"this failed; the log has it as {visit.id}") from None
        self._count(f"key {key.name}" if key else client, key.per_minute if key else None, cost)
        if key is not None:
            visit.facts["key"] = key.name
        elif wrong:
            self.metrics.refused.labels("key").inc()
            raise HTTPException(403, "this API key is not known: ask whoever runs this server")
        elif self.settings.require_key:
            self.metrics.refused.labels("key").inc()
            raise HTTPException(
                401,
                "an API key is needed here: send it as api_key or in the header Authorization",
                {"WWW-Authenticate": "Bearer"},
            )
        return visit

    def _count(self, client: str, per_minute: int | None, cost: int) -> None:
        wait = self.rate.wait(client, per_minute, cost=max(1, cost))
        if wait > 0:
            self.metrics.refused.labels("rate").inc()
            seconds = max(1, math.ceil(wait))
            raise HTTPException(
                429, f"slow down: try again in {seconds} s", {"Retry-After": str(seconds)}
            )


def _client(request: Request) -> str:
    """Who asks: an address, or the network of an IPv6 address, which one client has whole."""
    host = request.client.host if request.client else "unknown"
    if ":" not in host:
        return host
    try:
        return str(ip_network((host.partition("%")[0], 64), strict=False))
    except ValueError:
        return host


def key_in(request: Request) -> str:
    """The key of a request's headers or query."""
    scheme, _, rest = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and rest:
        return rest.strip()[:200]
    found = request.headers.get("x-api-key") or request.query_params.get("api_key") or ""
    return found[:200]


def watch(model: Served, metrics: Metrics) -> None:
    """Count the batches of a model."""
    if isinstance(model.translator.engine, BatchingEngine):
        model.translator.engine.seen = metrics.batches.labels(model.name).observe
