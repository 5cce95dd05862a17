"""The web page and the HTTP API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.concurrency import run_in_threadpool

from pellucid import __version__
from pellucid.errors import InputError, PellucidError
from pellucid.server.inside import add_inside, numbers
from pellucid.server.looking import Looks, Question, UnavailableError
from pellucid.server.page import content_security_policy, index, static
from pellucid.server.schemas import AlternativesAsked, TraceAsked, TranslateAsked
from pellucid.translator import Translator


def create_app(translator: Translator, looks: Looks) -> FastAPI:
    """The server for one model."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(looks.close)

    app = FastAPI(title="Pellucid", version=__version__, lifespan=life)
    _page(app)
    _translating(app, translator)
    _looking(app, translator, looks)
    add_inside(app, translator, looks)
    _errors(app)
    return app


def _page(app: FastAPI) -> None:
    app.mount("/static", StaticFiles(directory=str(static())), name="static")

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def page(request: Request) -> HTMLResponse:
        return HTMLResponse(index(request.scope.get("root_path", "")))

    @app.middleware("http")
    async def headers(
        request: Request, go_on: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        response = await go_on(request)
        root = request.scope.get("root_path", "")
        response.headers["Content-Security-Policy"] = content_security_policy(root)
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        return response


def _translating(app: FastAPI, translator: Translator) -> None:
    @app.post("/translate")
    def translate(asked: TranslateAsked) -> dict[str, Any]:
        """Translate a text; with `details`, what is known of each sentence and token."""
        more: dict[str, Any] = (
            {"attention": True, "token_log_probabilities": True} if asked.details else {}
        )
        made = translator.translate([asked.q], asked.source, asked.target, asked.beam, **more)[0]
        answer: dict[str, Any] = {"translatedText": made.text}
        if asked.details:
            answer["sentences"] = [
                {**sentence.as_dict(), "attention": sentence.attention}
                for sentence in made.sentences
            ]
        return answer


def _looking(app: FastAPI, translator: Translator, looks: Looks) -> None:
    @app.get("/about")
    def about() -> dict[str, Any]:
        """What is served here, for the page."""
        config = translator.bundle.config
        return {
            "version": __version__,
            "directions": list(translator.directions),
            "default": translator.bundle.default_direction,
            "model": config.model_dump(mode="json"),
            "look": looks.obstacle is None,
            "obstacle": looks.obstacle,
        }

    @app.post("/alternatives")
    def alternatives(asked: AlternativesAsked) -> list[dict[str, Any]]:
        """What else could stand at a position, each completed to a whole sentence."""
        found = translator.alternatives(
            asked.q,
            asked.position,
            asked.count,
            asked.source,
            asked.target,
            asked.beam,
            begin=asked.begin,
        )
        return [
            {
                "token": a.token,
                "probability": a.probability,
                "text": a.text,
                "score": a.score,
                "tokens": a.tokens,
                "begin": a.begin,
            }
            for a in found
        ]

    @app.post("/trace")
    def trace(asked: TraceAsked) -> dict[str, Any]:
        """Look inside: all but the large tensors, which are fetched by name when looked at."""
        way = translator.direction(asked.source, asked.target)
        options: dict[str, Any] = {"beam": asked.beam}
        if asked.sample:
            options = {"sample": True, "temperature": asked.temperature, "seed": asked.seed}
        question = Question(
            asked.q,
            way.name,
            options,
            tuple(asked.prefix),
            tuple(asked.without),
            tuple((switch.kind, switch.layer, switch.head) for switch in asked.off),
        )
        name, made = looks.make(question)
        return {"id": name, **made.as_dict()}

    @app.get("/trace/{name}/tensor", response_class=Response)
    def tensor(
        name: str,
        path: Annotated[str, Query(max_length=200)],
        row: Annotated[int | None, Query(ge=0, le=10_000)] = None,
    ) -> Response:
        """One tensor, or one row of it: float32, little-endian, rows in order."""
        made = looks.get(name)
        if made is None:
            raise HTTPException(404, "this look has been forgotten: look again")
        if path not in made:
            raise HTTPException(404, f"no tensor {path[:80]!r} in this trace")
        found = made[path]
        if row is not None:
            if found.ndim == 0 or row >= len(found):
                raise HTTPException(404, f"no row {row} in {path[:80]!r}")
            found = found[row]
        return numbers(found)


def _errors(app: FastAPI) -> None:
    @app.exception_handler(PellucidError)
    async def told(request: Request, error: PellucidError) -> JSONResponse:
        status = 422 if isinstance(error, InputError) else 500
        status = 501 if isinstance(error, UnavailableError) else status
        return JSONResponse({"error": str(error)}, status_code=status)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": error.detail}, status_code=error.status_code)
