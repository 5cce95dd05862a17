"""The state that all routes of one server share, and access control."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from ipaddress import ip_network

from fastapi import HTTPException, Request

from pellucid.errors import PellucidError
from pellucid.server.security.api_keys import ApiKeys, default_file
from pellucid.server.security.middleware import RequestContext
from pellucid.server.security.rate_limit import RateLimiter
from pellucid.server.service.queue import BatchingEngine
from pellucid.server.service.served_models import ServedModel, ServedModels
from pellucid.server.service.telemetry import JsonLog, PrometheusMetrics
from pellucid.server.service.thread_pools import ThreadPools
from pellucid.server.settings import ServerSettings


@dataclass
class ServerState:
    """One server: its models, settings, API keys, rate limits, threads, log and metrics."""

    models: ServedModels
    settings: ServerSettings
    pools: ThreadPools
    log: JsonLog
    metrics: PrometheusMetrics = field(default_factory=PrometheusMetrics)
    stopping: bool = False

    def __post_init__(self) -> None:
        self.keys = ApiKeys(self.settings.keys or default_file())
        self.rate_limiter = RateLimiter(self.settings.req_limit)
        self.count_batches()

    def count_batches(self) -> None:
        """Count the batches of all models, including those that were loaded since."""
        for model in self.models.table.models:
            _count_batches(model, self.metrics)

    def admit(self, request: Request, api_key: str = "", cost: int = 1) -> RequestContext:
        """Check the API key and the rate limit of a request; raise with 401, 403 or 429.

        api_key: the key in the body, if any; a header or the query may have it as well. cost:
        number of texts that the request counts for.
        """
        context: RequestContext = request.state.context
        api_key = api_key or key_in(request)
        try:
            key = self.keys.find(api_key) if api_key else None
            # Where there are no keys at all, a client that sends one all the same is admitted.
            unknown = bool(api_key) and key is None
            unknown = unknown and bool(self.settings.require_key or self.keys.all())
        except PellucidError as error:  # it names a file, which is none of the client's business
            self.log.write("failure", id=context.id, error=str(error))
            raise HTTPException(500, f"internal error; the log has it under {context.id}") from None
        # Counted before a wrong key is refused, so that guessing keys is limited too.
        client = f"key {key.name}" if key else _client_of(request)
        self._limit_rate(client, key.per_minute if key else None, cost)
        if key is not None:
            context.fields["key"] = key.name
        elif unknown:
            self.metrics.refused.labels("key").inc()
            raise HTTPException(403, "unknown API key: ask whoever runs this server for one")
        elif self.settings.require_key:
            self.metrics.refused.labels("key").inc()
            raise HTTPException(
                401,
                "an API key is required: send it as api_key or in the header Authorization",
                {"WWW-Authenticate": "Bearer"},
            )
        return context

    def _limit_rate(self, client: str, per_minute: int | None, cost: int) -> None:
        wait = self.rate_limiter.acquire(client, per_minute, cost=max(1, cost))
        if wait > 0:
            self.metrics.refused.labels("rate").inc()
            seconds = max(1, math.ceil(wait))
            raise HTTPException(
                429,
                f"rate limit exceeded: try again in {seconds} s",
                {"Retry-After": str(seconds)},
            )


def key_in(request: Request) -> str:
    """Return the API key in a request's headers or query, or an empty string."""
    scheme, _, rest = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and rest:
        return rest.strip()[:200]
    found = request.headers.get("x-api-key") or request.query_params.get("api_key") or ""
    return found[:200]


def _client_of(request: Request) -> str:
    """Return the client's address; for IPv6 its /64 network, all of which one client has."""
    host = request.client.host if request.client else "unknown"
    if ":" not in host:
        return host
    try:
        return str(ip_network((host.partition("%")[0], 64), strict=False))
    except ValueError:
        return host


def _count_batches(model: ServedModel, metrics: PrometheusMetrics) -> None:
    if isinstance(model.translator.engine, BatchingEngine):
        model.translator.engine.on_batch = metrics.batches.labels(model.name).observe
