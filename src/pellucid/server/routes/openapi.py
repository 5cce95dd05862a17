"""What the description of the API says beyond what FastAPI finds out by itself."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from pellucid.server.routes.body import FORMS
from pellucid.server.routes.schemas import Refusal


def body_of(kind: type[BaseModel]) -> dict[str, Any]:
    """A body that may come as JSON or as a form."""
    schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
    content = {media: {"schema": schema} for media in ("application/json", *FORMS)}
    return {"requestBody": {"required": True, "content": content}}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Answers that say no."""
    return {status: {"model": Refusal, "description": _MEANING[status]} for status in statuses}


_MEANING = {
    401: "A key is needed.",
    403: "The key is not known.",
    404: "There is no such thing.",
    408: "The request came too slowly.",
    413: "It is too much.",
    415: "The body is of a kind that is not read here.",
    422: "Something is wrong with the request.",
    429: "Too many requests: `Retry-After` says when.",
    501: "This server cannot look inside.",
    503: "Too much to do: `Retry-After` says when.",
}
