"""The routes for documents: translate one, fetch the translation."""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from pathlib import PurePath
from secrets import token_urlsafe
from typing import Any, NamedTuple

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import JSONResponse, Response
from pydantic import ValidationError

from pellucid.errors import InputError
from pellucid.server.routes.body import fields, mistakes, upload
from pellucid.server.routes.openapi import refusals
from pellucid.server.routes.schemas import TranslateAsked, TranslatedFile
from pellucid.server.service.shared import Service
from pellucid.server.service.translate import longer, sources_of, translate_document
from pellucid.text.documents import kind_of, open_document
from pellucid.text.languages import Detected

MINUTES, MOST_FILES, MOST_BYTES = 15, 64, 200_000_000
"""For how long, how many, and how much of translated files is kept, in memory."""

_ODD = re.compile(r"[^\w.-]+", re.ASCII)


class File(NamedTuple):
    """A translated file."""

    name: str
    data: bytes
    made: float


class Shelf:
    """Translated files until they are fetched; the oldest make room."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, File] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, name: str, data: bytes) -> str:
        """Keep a file; under what name it is fetched."""
        key = token_urlsafe(18)
        with self._lock:
            self._files[key] = File(name, data, time.monotonic())
            self._tidy()
        return key

    def get(self, key: str) -> File | None:
        """A file that was made not long ago."""
        with self._lock:
            self._tidy()
            return self._files.get(key)

    def _tidy(self) -> None:
        oldest = time.monotonic() - 60 * MINUTES
        while self._files and (
            len(self._files) > MOST_FILES
            or next(iter(self._files.values())).made < oldest
            or (
                len(self._files) > 1 and sum(len(f.data) for f in self._files.values()) > MOST_BYTES
            )
        ):
            self._files.popitem(last=False)


def file_routes(service: Service) -> APIRouter:
    """Routes for documents."""
    router = APIRouter(tags=["files"])
    shelf = Shelf()

    @router.post(
        "/translate_file",
        openapi_extra=_FORM,
        responses={
            200: {"model": TranslatedFile},
            **refusals(401, 403, 408, 413, 415, 422, 429, 503),
        },
    )
    async def translate_file(request: Request) -> Response:
        """Translate a document; everything in it but its text stays as it is."""
        content = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content != "multipart/form-data":
            raise HTTPException(415, "send a form (multipart/form-data) with a file named 'file'")
        given = await fields(request)
        try:
            asked = TranslateAsked.model_validate({**given, "q": ""})
        except ValidationError as error:
            raise InputError(mistakes(error.errors(include_url=False))) from None
        visit = service.admit(request, asked.api_key)
        file = upload(given)
        name, data = _name(file.filename or ""), await file.read()
        if len(data) > service.settings.file:
            raise HTTPException(413, f"file: more than {service.settings.file:,} bytes")
        if asked.beam_size > service.settings.beam_size:
            raise InputError(
                f"beam: {asked.beam_size}, and {service.settings.beam_size} are allowed"
            )
        longer(visit, service.settings.file_seconds)
        kind_of(name)
        source = Detected(asked.source, 100.0)
        if asked.source == "auto":
            read = await service.work.long.run(
                visit.patience, open_document, data, name=name, target=asked.target
            )
            (source,) = await sources_of(
                service, asked, ["\n".join(read.texts()[:40])], visit.patience
            )
        with service.models.using(source.language, asked.target, asked.model) as steps:
            source_code, target_code = steps[0].way.source, steps[-1].way.target
            document = await service.work.long.run(
                visit.patience, open_document, data,
                name=name, source=source_code, target=target_code,
            )  # fmt: skip
            characters = sum(map(len, document.texts()))
            if characters > service.settings.file_characters:
                raise HTTPException(
                    413,
                    f"file: {characters:,} characters of text, and "
                    f"{service.settings.file_characters:,} are allowed",
                )
            visit.facts |= {"way": f"{source_code}-{target_code}", "characters": characters}
            service.metrics.characters.labels(visit.facts["way"]).inc(characters)
            plain = asked.model_copy(update={"alternatives": 0, "prefix": None, "details": False})
            made = await translate_document(service, plain, steps, document, visit.patience)
        stem, ending = PurePath(name).stem, PurePath(name).suffix
        key = shelf.put(f"{stem}.{target_code}{ending}", document.rebuilt(made))
        address = request.url_for("download_file", key=key)
        return JSONResponse({"translatedFileUrl": str(address)})

    @router.get("/download_file/{key}", response_class=Response, responses=refusals(404))
    async def download_file(key: str) -> Response:
        """Fetch the translation of a file."""
        found = shelf.get(key)
        if found is None:
            raise HTTPException(404, "there is no such file, or no longer: translate it again")
        return Response(
            found.data,
            media_type="application/octet-stream",
            headers={"Content-Disposition": f'attachment; filename="{found.name}"'},
        )

    return router


def _name(given: str) -> str:
    """A file name that is safe to send back: letters, digits, dots; no folders."""
    name = _ODD.sub("_", PurePath(given.replace("\\", "/")).name)[-100:].lstrip(".")
    return name or "file"


_FORM: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "source": {"type": "string", "default": "auto"},
                        "target": {"type": "string"},
                        "api_key": {"type": "string", "default": ""},
                    },
                    "required": ["file", "target"],
                }
            }
        },
    }
}
