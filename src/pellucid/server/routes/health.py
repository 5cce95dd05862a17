"""Routes for operators: liveness, readiness, metrics."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from pellucid.server.routes.openapi import errors
from pellucid.server.service.queue import BatchingEngine
from pellucid.server.service.state import ServerState


def health_routes(server: ServerState) -> APIRouter:
    """Make the routes for operators; they need no key and have no rate limit."""
    router = APIRouter(tags=["health"])

    @router.get("/health/live")
    async def live() -> dict[str, str]:
        """Liveness: the process responds. If it does not, restart it."""
        return {"status": "alive"}

    @router.get("/health/ready", responses=errors(503))
    async def ready() -> Response:
        """Readiness: whether to send requests here; 503 while the server is stopping."""
        if server.stopping:
            return JSONResponse({"error": "the server is stopping"}, 503)
        return JSONResponse({"status": "ready"})

    @router.get("/health")
    async def health() -> dict[str, str]:
        """Report that the server is up, as LibreTranslate does."""
        return {"status": "ok"}

    @router.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Metrics for Prometheus; they contain no text, key or address."""
        for model in server.models.table.models:
            engine = model.translator.engine
            if isinstance(engine, BatchingEngine):
                server.metrics.queued.labels(model.name).set(engine.queued)
        return Response(generate_latest(server.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return router
