"""The routes for whoever runs the server: is it alive, is it ready, how is it doing."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from pellucid.server.routes.openapi import refusals
from pellucid.server.service.batching import BatchingEngine
from pellucid.server.service.shared import Service


def health(service: Service) -> APIRouter:
    """Routes without a key and without a limit."""
    router = APIRouter(tags=["health"])

    @router.get("/health/live")
    async def live() -> dict[str, str]:
        """Tell that the process answers; if not, start it again."""
        return {"status": "alive"}

    @router.get("/health/ready", responses=refusals(503))
    async def ready() -> Response:
        """Tell whether to send requests here: not while it stops."""
        if service.stopping:
            return JSONResponse({"error": "the server is stopping"}, 503)
        return JSONResponse({"status": "ready"})

    @router.get("/health")
    async def well() -> dict[str, str]:
        """Tell that all is well, as LibreTranslate does."""
        return {"status": "ok"}

    @router.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Give numbers for Prometheus; there is no text, key or address in them."""
        for model in service.models.table.models:
            engine = model.translator.engine
            if isinstance(engine, BatchingEngine):
                service.metrics.waiting.labels(model.name).set(engine.waiting)
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return router
