"""Routes for texts: translation and detection with LibreTranslate's API, and a stream."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from pellucid.errors import InputError, PellucidError
from pellucid.server.routes.body import read_body
from pellucid.server.routes.openapi import body_of, errors
from pellucid.server.routes.schemas import (
    Detection,
    DetectRequest,
    LanguageResponse,
    TranslateRequest,
    TranslateResponse,
)
from pellucid.server.service.state import ServerState
from pellucid.server.service.translate import (
    TranslatedText,
    check_limits,
    stream_sentences,
    translate,
    without_extras,
)
from pellucid.text.documents import KINDS
from pellucid.text.languages import detect, name_of


def translation_routes(server: ServerState) -> APIRouter:
    """Make the routes that translate texts."""
    router = APIRouter(tags=["translate"])

    @router.post(
        "/translate",
        openapi_extra=body_of(TranslateRequest),
        responses={
            200: {"model": TranslateResponse},
            **errors(401, 403, 408, 413, 415, 422, 429, 503),
        },
    )
    async def translate_texts(request: Request) -> Response:
        """Translate a text, or a list of texts.

        The fields may come as JSON, as a form (urlencoded or multipart) or in the query string.
        """
        asked = await read_body(request, TranslateRequest)
        texts = [asked.q] if isinstance(asked.q, str) else asked.q
        cost = min(len(texts), server.settings.batch_limit)
        context = server.admit(request, asked.api_key, cost)
        check_limits(server, asked, texts)
        return JSONResponse(_body(asked, await translate(server, asked, texts, context)))

    @router.post(
        "/translate/stream",
        openapi_extra=body_of(TranslateRequest),
        responses={
            200: {"content": {"text/event-stream": {}}, "description": "Events."},
            **errors(401, 403, 408, 413, 415, 422, 429, 503),
        },
    )
    async def translate_stream(request: Request) -> Response:
        """Translate one text sentence by sentence, as server-sent events.

        The events are `detected` (if the source is "auto"), a `sentence` for each sentence, in
        order, then `done` with the whole translation; or `error`.
        """
        asked = await read_body(request, TranslateRequest)
        if not isinstance(asked.q, str) or asked.format != "text":
            raise InputError("q: a stream takes one text, in format text")
        context = server.admit(request, asked.api_key)
        check_limits(server, asked, [asked.q])
        events = stream_sentences(server, without_extras(asked), asked.q, context)
        first = await anext(events)  # so that an invalid request gets its status code

        async def encoded() -> AsyncIterator[str]:
            yield _event(*first)
            try:
                async with aclosing(events):
                    async for event in events:
                        yield _event(*event)
            except PellucidError as error:
                yield _event("error", {"error": str(error)})

        return StreamingResponse(
            encoded(),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    return router


def language_routes(server: ServerState) -> APIRouter:
    """Make the routes about languages: detection, what is served, settings."""
    router = APIRouter(tags=["translate"])

    @router.post(
        "/detect",
        openapi_extra=body_of(DetectRequest),
        responses={
            200: {"model": list[Detection]},
            **errors(401, 403, 408, 413, 415, 422, 429, 503),
        },
    )
    async def detect_language(request: Request) -> Response:
        """Detect the language of a text; the most probable ones, best first."""
        asked = await read_body(request, DetectRequest)
        context = server.admit(request, asked.api_key)
        text = asked.q if isinstance(asked.q, str) else "\n".join(asked.q)
        if len(text) > (limit := server.settings.total_char_limit):
            raise HTTPException(413, f"q: more than {limit:,} characters")
        found = await server.pools.long_texts.run(context.deadline, detect, text)
        return JSONResponse([one.as_dict() for one in found[:5]])

    @router.get("/languages", responses={200: {"model": list[LanguageResponse]}})
    async def languages() -> Response:
        """List the languages, and for each those that it can be translated into."""
        directions = server.models.directions()
        codes = dict.fromkeys(code for direction in directions for code in direction)
        return JSONResponse(
            [
                {
                    "code": code,
                    "name": name_of(code),
                    "targets": sorted(d.target for d in directions if d.source == code),
                }
                for code in codes
            ]
        )

    @router.get("/frontend/settings")
    async def frontend_settings() -> dict[str, Any]:
        """Return the settings that LibreTranslate's page and some clients ask for."""
        table = server.models.table
        source, target = table.directions[0].split("-")
        return {
            "charLimit": server.settings.char_limit,
            "frontendTimeout": 500,
            "apiKeys": bool(server.keys.all()),
            "keyRequired": server.settings.require_key,
            "suggestions": False,
            "supportedFilesFormat": [f".{ending}" for ending in KINDS],
            "language": {
                "source": {"code": source, "name": name_of(source)},
                "target": {"code": target, "name": name_of(target)},
            },
        }

    return router


def _body(asked: TranslateRequest, made: Sequence[TranslatedText]) -> dict[str, Any]:
    """Make LibreTranslate's response body, with our own fields if they were asked for."""

    def one_or_all(values: list[Any]) -> Any:
        return values[0] if isinstance(asked.q, str) else values

    body: dict[str, Any] = {"translatedText": one_or_all([m.text for m in made])}
    if asked.source == "auto":
        body["detectedLanguage"] = one_or_all([m.detected.as_dict() for m in made if m.detected])
    if asked.alternatives:
        body["alternatives"] = one_or_all([m.alternatives for m in made])
    if made and made[0].pivot:
        body["pivot"] = made[0].pivot
    if asked.details:
        body["score"] = one_or_all([m.score for m in made])
        body["sentences"] = one_or_all([_sentences(m) for m in made])
    return body


def _sentences(made: TranslatedText) -> list[dict[str, Any]]:
    if made.translation is None:
        return []
    return [{**s.as_dict(), "attention": s.attention} for s in made.translation.sentences]


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
