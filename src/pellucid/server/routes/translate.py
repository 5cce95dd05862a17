"""The routes that translate, as LibreTranslate's clients know them, and a stream."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from pellucid.errors import InputError, PellucidError
from pellucid.server.routes.body import read
from pellucid.server.routes.openapi import body_of, refusals
from pellucid.server.routes.schemas import (
    DetectAsked,
    Detection,
    LanguageServed,
    TranslateAsked,
    Translated,
)
from pellucid.server.service.shared import Service
from pellucid.server.service.translate import Made, check, stream, translate
from pellucid.text.documents import KINDS
from pellucid.text.languages import detect, name_of


def translating(service: Service) -> APIRouter:
    """Routes for texts."""
    router = APIRouter(tags=["translate"])

    @router.post(
        "/translate",
        openapi_extra=body_of(TranslateAsked),
        responses={200: {"model": Translated}, **refusals(401, 403, 408, 413, 415, 422, 429, 503)},
    )
    async def translated(request: Request) -> Response:
        """Translate a text, or several.

        The fields may come as JSON, as a form (urlencoded or multipart) or in the address.
        """
        asked = await read(request, TranslateAsked)
        texts = [asked.q] if isinstance(asked.q, str) else asked.q
        visit = service.admit(request, asked.api_key, min(len(texts), service.settings.batch_limit))
        check(service, asked, texts)
        made = await translate(service, asked, texts, visit)
        return JSONResponse(_answer(asked, made))

    @router.post(
        "/translate/stream",
        openapi_extra=body_of(TranslateAsked),
        responses={
            200: {"content": {"text/event-stream": {}}, "description": "Events."},
            **refusals(401, 403, 408, 413, 415, 422, 429, 503),
        },
    )
    async def streamed(request: Request) -> Response:
        """Translate one text sentence by sentence, as server-sent events.

        `detected` (where the source is "auto"), a `sentence` for each, in order, then `done` with
        the whole translation; or `error`.
        """
        asked = await read(request, TranslateAsked)
        if not isinstance(asked.q, str) or asked.format != "text":
            raise InputError("q: a stream is of one text, and of format text")
        visit = service.admit(request, asked.api_key)
        check(service, asked, [asked.q])
        plain = asked.model_copy(update={"alternatives": 0, "prefix": None, "details": False})
        events = stream(service, plain, asked.q, visit)
        first = await anext(events)  # what is wrong with the request is told by the status

        async def written() -> AsyncIterator[str]:
            yield _event(*first)
            try:
                async with aclosing(events):
                    async for event in events:
                        yield _event(*event)
            except PellucidError as error:
                yield _event("error", {"error": str(error)})

        return StreamingResponse(
            written(),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    @router.post(
        "/detect",
        openapi_extra=body_of(DetectAsked),
        responses={
            200: {"model": list[Detection]},
            **refusals(401, 403, 408, 413, 415, 422, 429, 503),
        },
    )
    async def detected(request: Request) -> Response:
        """Tell which languages a text may be in, the most probable first."""
        asked = await read(request, DetectAsked)
        visit = service.admit(request, asked.api_key)
        text = asked.q if isinstance(asked.q, str) else "\n".join(asked.q)
        if len(text) > service.settings.total_char_limit:
            raise HTTPException(413, f"q: more than {service.settings.total_char_limit} characters")
        found = await service.work.long.run(visit.patience, detect, text)
        return JSONResponse([one.as_dict() for one in found[:5]])

    @router.get("/languages", responses={200: {"model": list[LanguageServed]}})
    async def languages() -> Response:
        """List the languages, and for each those that it can be translated into."""
        ways = service.models.reachable()
        codes = dict.fromkeys(code for way in ways for code in way)
        return JSONResponse(
            [
                {
                    "code": code,
                    "name": name_of(code),
                    "targets": sorted(way.target for way in ways if way.source == code),
                }
                for code in codes
            ]
        )

    @router.get("/frontend/settings")
    async def frontend_settings() -> dict[str, Any]:
        """What LibreTranslate tells its page and some clients ask for."""
        table = service.models.table
        source, target = table.directions[0].split("-")
        return {
            "charLimit": service.settings.char_limit,
            "frontendTimeout": 500,
            "apiKeys": bool(service.keys.all()),
            "keyRequired": service.settings.require_key,
            "suggestions": False,
            "supportedFilesFormat": [f".{ending}" for ending in KINDS],
            "language": {
                "source": {"code": source, "name": name_of(source)},
                "target": {"code": target, "name": name_of(target)},
            },
        }

    return router


def _answer(asked: TranslateAsked, made: Sequence[Made]) -> dict[str, Any]:
    """As LibreTranslate answers, with our own fields where they were asked for."""

    def field(values: list[Any]) -> Any:
        return values[0] if isinstance(asked.q, str) else values

    answer: dict[str, Any] = {"translatedText": field([m.text for m in made])}
    if asked.source == "auto":
        answer["detectedLanguage"] = field([m.detected.as_dict() for m in made if m.detected])
    if asked.alternatives:
        answer["alternatives"] = field([m.others for m in made])
    if made and made[0].pivot:
        answer["pivot"] = made[0].pivot
    if asked.details:
        answer["score"] = field([m.score for m in made])
        answer["sentences"] = field([_sentences(m) for m in made])
    return answer


def _sentences(made: Made) -> list[dict[str, Any]]:
    if made.translation is None:
        return []
    return [{**s.as_dict(), "attention": s.attention} for s in made.translation.sentences]


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
