"""Routes for documents: translate a file, download its translation."""

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
from pellucid.server.routes.body import read_form, upload, validation_message
from pellucid.server.routes.openapi import errors
from pellucid.server.routes.schemas import TranslateFileResponse, TranslateRequest
from pellucid.server.security.middleware import RequestContext
from pellucid.server.service.state import ServerState
from pellucid.server.service.translate import (
    check_beam_size,
    detect_sources,
    extend_deadline,
    translate_document,
    without_extras,
)
from pellucid.text.documents import kind_of, open_document
from pellucid.text.languages import Detected

KEPT_MINUTES, MAX_KEPT_FILES, MAX_KEPT_BYTES = 15, 64, 200_000_000
"""Limits of the translated files that are kept in memory until they are downloaded."""

DETECTION_TEXTS = 40
"""Texts at the beginning of a document from which its language is detected."""

_UNSAFE = re.compile(r"[^\w.-]+", re.ASCII)


class StoredFile(NamedTuple):
    """A translated file."""

    name: str
    data: bytes
    created: float


class FileStore:
    """Translated files in memory, until they are downloaded or have expired."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, StoredFile] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, name: str, data: bytes) -> str:
        """Store a file; return the key to download it with."""
        key = token_urlsafe(18)
        with self._lock:
            self._files[key] = StoredFile(name, data, time.monotonic())
            self._expire()
        return key

    def get(self, key: str) -> StoredFile | None:
        """Return a file, or None if there is none or it has expired."""
        with self._lock:
            self._expire()
            return self._files.get(key)

    def _expire(self) -> None:
        oldest = time.monotonic() - 60 * KEPT_MINUTES
        while self._files and (
            len(self._files) > MAX_KEPT_FILES
            or next(iter(self._files.values())).created < oldest
            or (
                len(self._files) > 1
                and sum(len(file.data) for file in self._files.values()) > MAX_KEPT_BYTES
            )
        ):
            self._files.popitem(last=False)


def document_routes(server: ServerState) -> APIRouter:
    """Make the routes for documents."""
    router = APIRouter(tags=["files"])
    store = FileStore()

    @router.post(
        "/translate_file",
        openapi_extra=_FORM,
        responses={
            200: {"model": TranslateFileResponse},
            **errors(401, 403, 408, 413, 415, 422, 429, 503),
        },
    )
    async def translate_file(request: Request) -> Response:
        """Translate a document; everything in it but its text stays as it is."""
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type != "multipart/form-data":
            raise HTTPException(415, "send a form (multipart/form-data) with a file named 'file'")
        form = await read_form(request)
        try:
            asked = TranslateRequest.model_validate({**form, "q": ""})
        except ValidationError as error:
            raise InputError(validation_message(error.errors(include_url=False))) from None
        context = server.admit(request, asked.api_key)
        file = upload(form)
        name, data = _safe_name(file.filename or ""), await file.read()
        if len(data) > server.settings.max_file_bytes:
            raise HTTPException(413, f"file: larger than {server.settings.max_file_bytes:,} bytes")
        check_beam_size(server, asked)
        extend_deadline(context, server.settings.file_timeout)
        kind_of(name)
        name, data = await _translate_file(server, asked, context, name, data)
        url = request.url_for("download_file", key=store.put(name, data))
        return JSONResponse({"translatedFileUrl": str(url)})

    @router.get("/download_file/{key}", response_class=Response, responses=errors(404))
    async def download_file(key: str) -> Response:
        """Download the translation of a file."""
        found = store.get(key)
        if found is None:
            raise HTTPException(404, "no such file, or it has expired: translate it again")
        return Response(
            found.data,
            media_type="application/octet-stream",
            headers={"Content-Disposition": f'attachment; filename="{found.name}"'},
        )

    return router


async def _translate_file(
    server: ServerState, asked: TranslateRequest, context: RequestContext, name: str, data: bytes
) -> tuple[str, bytes]:
    """Return the name and the content of the translated file."""
    pool, deadline = server.pools.long_texts, context.deadline
    source = Detected(asked.source, 100.0)
    if asked.source == "auto":
        document = await pool.run(deadline, open_document, data, name=name, target=asked.target)
        beginning = "\n".join(document.texts()[:DETECTION_TEXTS])
        (source,) = await detect_sources(server, asked, [beginning], deadline)
    with server.models.using(source.language, asked.target, asked.model) as steps:
        source_code, target_code = steps[0].direction.source, steps[-1].direction.target
        document = await pool.run(
            deadline, open_document, data, name=name, source=source_code, target=target_code
        )
        characters, limit = sum(map(len, document.texts())), server.settings.file_char_limit
        if characters > limit:
            raise HTTPException(
                413, f"file: {characters:,} characters of text, and the limit is {limit:,}"
            )
        direction = f"{source_code}-{target_code}"
        context.fields |= {"direction": direction, "characters": characters}
        server.metrics.characters.labels(direction).inc(characters)
        made = await translate_document(server, without_extras(asked), steps, document, deadline)
    path = PurePath(name)
    return f"{path.stem}.{target_code}{path.suffix}", document.rebuilt(made)


def _safe_name(filename: str) -> str:
    """Make a file name safe to send back: letters, digits and dots, without folders."""
    name = _UNSAFE.sub("_", PurePath(filename.replace("\\", "/")).name)[-100:].lstrip(".")
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
