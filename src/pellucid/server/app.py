"""The application: the web page and the HTTP API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from pellucid import __version__
from pellucid.errors import InputError, PellucidError
from pellucid.server.routes.api_docs import CONTENT_SECURITY_POLICY, api_docs
from pellucid.server.routes.body import validation_message
from pellucid.server.routes.documents import document_routes
from pellucid.server.routes.health import health_routes
from pellucid.server.routes.inspect import about_routes, panel_routes, trace_routes
from pellucid.server.routes.translate import language_routes, translation_routes
from pellucid.server.security.middleware import RequestMiddleware
from pellucid.server.service.inspection_process import InspectionProcess, UnavailableError
from pellucid.server.service.queue import AbandonedError, DeadlineError, OverloadedError
from pellucid.server.service.served_models import ServedModel, ServedModels
from pellucid.server.service.state import ServerState
from pellucid.server.service.telemetry import JsonLog
from pellucid.server.service.thread_pools import ThreadPools
from pellucid.server.settings import ServerSettings
from pellucid.translator import Translator
from pellucid.web.page import index, static

DESCRIPTION = (
    "Translate texts and documents with LibreTranslate's API, and look inside the model that "
    "does it."
)


def create_app(
    translator: Translator,
    inspection: InspectionProcess | None = None,
    settings: ServerSettings | None = None,
    log: JsonLog | None = None,
) -> FastAPI:
    """Create the application for one model, to be run inside another program."""
    folder = translator.bundle.folder
    served = ServedModel(folder.name, translator, inspection or InspectionProcess(Path(folder)))
    settings = settings or ServerSettings()
    models = ServedModels([served], pivot=settings.pivot)
    return build_app(create_state(models, settings, log or JsonLog(quiet=True)))


def create_state(models: ServedModels, settings: ServerSettings, log: JsonLog) -> ServerState:
    """Create the state that the routes share."""
    workers = max(model.translator.engine.threads for model in models.table.models)
    pools = ThreadPools(
        workers, max_queued=settings.max_queued, max_inspections=settings.max_inspections
    )
    return ServerState(models, settings, pools, log)


def build_app(server: ServerState) -> FastAPI:
    """Build the application: routes, error responses and middleware."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        server.pools.close()
        server.models.close()

    app = FastAPI(
        title="Pellucid",
        description=DESCRIPTION,
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.server = server
    app.mount("/static", StaticFiles(directory=str(static())), name="static")
    for router in (
        translation_routes(server),
        language_routes(server),
        document_routes(server),
        about_routes(server),
        trace_routes(server),
        panel_routes(server),
        health_routes(server),
    ):
        app.include_router(router)
    _add_pages(app)
    _add_error_handlers(app, server)
    app.add_middleware(
        RequestMiddleware, settings=server.settings, metrics=server.metrics, log=server.log
    )
    if server.settings.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(server.settings.cors),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-API-Key"],
            allow_credentials=False,
        )
    return app


def _add_pages(app: FastAPI) -> None:
    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def page(request: Request) -> HTMLResponse:
        return HTMLResponse(index(request.scope.get("root_path", "")))

    @app.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    async def docs(request: Request) -> HTMLResponse:
        text = api_docs(app.openapi(), request.scope.get("root_path", ""))
        return HTMLResponse(text, headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY})

    @app.get("/favicon.ico", include_in_schema=False)
    async def icon() -> Response:
        return Response(status_code=204)


def _add_error_handlers(app: FastAPI, server: ServerState) -> None:
    """Answer every error with JSON: {"error": "one line"}."""

    @app.exception_handler(PellucidError)
    async def failed(request: Request, error: PellucidError) -> JSONResponse:
        status = 422 if isinstance(error, InputError) else 500
        for kind, other in _STATUS.items():
            if isinstance(error, kind):
                status = other
                server.metrics.refused.labels(kind.__name__.removesuffix("Error").lower()).inc()
        return JSONResponse({"error": str(error)}, status)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        # A body that cannot be parsed gets the same status as one whose fields are wrong.
        status = 422 if error.status_code == 400 else error.status_code
        return JSONResponse({"error": error.detail}, status, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"error": validation_message(error.errors())}, 422)


_STATUS = {OverloadedError: 503, DeadlineError: 503, AbandonedError: 499, UnavailableError: 501}
