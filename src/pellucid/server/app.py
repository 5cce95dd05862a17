"""The web page and the HTTP API, put together."""

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
from pellucid.server.routes.body import mistakes
from pellucid.server.routes.documents import file_routes
from pellucid.server.routes.health import health
from pellucid.server.routes.inspect import panels, tracing
from pellucid.server.routes.reference import POLICY, reference
from pellucid.server.routes.translate import translating
from pellucid.server.security.middleware import Guard
from pellucid.server.service.batching import AbandonedError, DeadlineError, OverloadedError
from pellucid.server.service.inspect_process import Looks, UnavailableError
from pellucid.server.service.models import Models, Served
from pellucid.server.service.queue import Work
from pellucid.server.service.shared import Service
from pellucid.server.service.telemetry import Log
from pellucid.server.settings import ServerSettings
from pellucid.translator import Translator
from pellucid.web.page import index, static

ABOUT = (
    "Translate texts and documents, in the way of LibreTranslate, and look inside of the model "
    "that does it."
)


def create_app(
    translator: Translator,
    looks: Looks | None = None,
    settings: ServerSettings | None = None,
    log: Log | None = None,
) -> FastAPI:
    """The server for one model, for whoever runs it inside of a program of their own."""
    folder = translator.bundle.folder
    served = Served(folder.name, translator, looks or Looks(Path(folder)))
    settings = settings or ServerSettings()
    models = Models([served], pivot=settings.pivot)
    return app_for(service_for(models, settings, log or Log(quiet=True)))


def service_for(models: Models, settings: ServerSettings, log: Log) -> Service:
    """What the routes share. Twice as many threads as batches keep the batches full."""
    engines = [model.translator.engine for model in models.table.models]
    workers = max(getattr(engine, "workers", 1) for engine in engines)
    work = Work(2 * workers, waiting=settings.waiting, looks=settings.looks)
    return Service(models, settings, work, log)


def app_for(service: Service) -> FastAPI:
    """The application of a service."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.work.close()
        service.models.close()

    app = FastAPI(
        title="Pellucid",
        description=ABOUT,
        version=__version__,
        lifespan=life,
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    app.mount("/static", StaticFiles(directory=str(static())), name="static")
    for router in (
        translating(service),
        file_routes(service),
        tracing(service),
        panels(service),
        health(service),
    ):
        app.include_router(router)
    _pages(app)
    _errors(app, service)
    app.add_middleware(Guard, settings=service.settings, metrics=service.metrics, log=service.log)
    if service.settings.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(service.settings.cors),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-API-Key"],
            allow_credentials=False,
        )
    return app


def _pages(app: FastAPI) -> None:
    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def page(request: Request) -> HTMLResponse:
        return HTMLResponse(index(request.scope.get("root_path", "")))

    @app.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    async def docs(request: Request) -> HTMLResponse:
        text = reference(app.openapi(), request.scope.get("root_path", ""))
        return HTMLResponse(text, headers={"Content-Security-Policy": POLICY})

    @app.get("/favicon.ico", include_in_schema=False)
    async def icon() -> Response:
        return Response(status_code=204)


def _errors(app: FastAPI, service: Service) -> None:
    """Every refusal is JSON with one line."""

    @app.exception_handler(PellucidError)
    async def told(request: Request, error: PellucidError) -> JSONResponse:
        status = 422 if isinstance(error, InputError) else 500
        for kind, other in _STATUS.items():
            if isinstance(error, kind):
                status = other
                service.metrics.refused.labels(kind.__name__.removesuffix("Error").lower()).inc()
        return JSONResponse({"error": str(error)}, status)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        # A body that cannot be read is as wrong as one whose fields are.
        status = 422 if error.status_code == 400 else error.status_code
        return JSONResponse({"error": error.detail}, status, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"error": mistakes(error.errors())}, 422)


_STATUS = {OverloadedError: 503, DeadlineError: 503, AbandonedError: 499, UnavailableError: 501}
