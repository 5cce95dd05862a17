"""A request's body in any of the ways in which clients send it: JSON, a form, or the address."""

from __future__ import annotations

from typing import Any, TypeVar

from fastapi import HTTPException, Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile

from pellucid.errors import InputError

A = TypeVar("A", bound=BaseModel)

FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


async def read(request: Request, kind: type[A]) -> A:
    """What was asked, checked."""
    content = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if content == "application/json":
            return kind.model_validate_json(await request.body())
        if content in FORMS:
            return kind.model_validate(await fields(request))
        if await request.body():
            raise HTTPException(415, f"send {', '.join(('application/json', *FORMS))}")
        return kind.model_validate(_values(request.query_params.multi_items()))
    except ValidationError as error:
        raise InputError(mistakes(error.errors(include_url=False))) from None


async def fields(request: Request) -> dict[str, Any]:
    """The fields of a form, and those of the address for what it does not have."""
    form = await request.form(max_files=1, max_fields=200, max_part_size=10_000_000)
    given = _values(form.multi_items())
    return {**_values(request.query_params.multi_items()), **given}


def _values(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """Fields by name; several of one name are a list."""
    found: dict[str, list[Any]] = {}
    for name, value in items:
        if isinstance(value, str) and name != "file":
            # Not UTF-8 in a form arrives as lone surrogates, which no text may have.
            value = value.encode("utf-8", "replace").decode()
        found.setdefault(name, []).append(value)
    return {
        name: values if len(values) > 1 and name == "q" else values[0]
        for name, values in found.items()
    }


def upload(given: dict[str, Any]) -> UploadFile:
    """The file of a form."""
    file = given.get("file")
    if not isinstance(file, UploadFile):
        raise InputError("there is no file: send a form with a file named 'file'")
    return file


def mistakes(errors: Any) -> str:
    """What is wrong with a request, in one line, without what it said."""
    told = []
    for error in errors[:3]:
        place = ".".join(str(part) for part in error["loc"] if part not in ("body", "query"))
        told.append(f"{place[:60]}: {error['msg']}" if place else str(error["msg"]))
    return "; ".join(told)[:500] or "the request is not valid"
