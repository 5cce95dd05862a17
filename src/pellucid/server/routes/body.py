"""Request bodies: JSON, a form, or the query string, as clients of LibreTranslate send them."""

from __future__ import annotations

from typing import Any, TypeVar

from fastapi import HTTPException, Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile

from pellucid.errors import InputError

Body = TypeVar("Body", bound=BaseModel)

FORM_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data")


async def read_body(request: Request, kind: type[Body]) -> Body:
    """Read and validate the fields of a request."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if content_type == "application/json":
            return kind.model_validate_json(await request.body())
        if content_type in FORM_TYPES:
            return kind.model_validate(await read_form(request))
        if await request.body():
            raise HTTPException(415, f"send one of {', '.join(('application/json', *FORM_TYPES))}")
        return kind.model_validate(_by_name(request.query_params.multi_items()))
    except ValidationError as error:
        raise InputError(validation_message(error.errors(include_url=False))) from None


async def read_form(request: Request) -> dict[str, Any]:
    """Read the fields of a form; those that it lacks may come from the query string."""
    form = await request.form(max_files=1, max_fields=200, max_part_size=10_000_000)
    given = _by_name(form.multi_items())
    return {**_by_name(request.query_params.multi_items()), **given}


def _by_name(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return fields by name; several values of q become a list."""
    found: dict[str, list[Any]] = {}
    for name, value in items:
        if isinstance(value, str) and name != "file":
            # Invalid UTF-8 in a form arrives as lone surrogates, which no text may have.
            value = value.encode("utf-8", "replace").decode()
        found.setdefault(name, []).append(value)
    return {
        name: values if len(values) > 1 and name == "q" else values[0]
        for name, values in found.items()
    }


def upload(given: dict[str, Any]) -> UploadFile:
    """Return the file of a form."""
    file = given.get("file")
    if not isinstance(file, UploadFile):
        raise InputError("the form has no file: send one in the field named 'file'")
    return file


def validation_message(errors: Any) -> str:
    """Say in one line what is wrong with a request, without repeating its values."""
    messages = []
    for error in errors[:3]:
        field = ".".join(str(part) for part in error["loc"] if part not in ("body", "query"))
        messages.append(f"{field[:60]}: {error['msg']}" if field else str(error["msg"]))
    return "; ".join(messages)[:500] or "the request is not valid"
