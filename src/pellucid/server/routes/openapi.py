"""Parts of the OpenAPI description that FastAPI cannot derive by itself."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from pellucid.server.routes.body import FORM_TYPES
from pellucid.server.routes.schemas import ErrorResponse


def body_of(kind: type[BaseModel]) -> dict[str, Any]:
    """Describe a request body that may be JSON or a form."""
    schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
    content = {media: {"schema": schema} for media in ("application/json", *FORM_TYPES)}
    return {"requestBody": {"required": True, "content": content}}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe error responses."""
    return {
        status: {"model": ErrorResponse, "description": _DESCRIPTIONS[status]}
        for status in statuses
    }


_DESCRIPTIONS = {
    401: "An API key is required.",
    403: "The API key is unknown.",
    404: "Not found.",
    408: "The request was sent too slowly.",
    413: "The request is too large.",
    415: "The content type is not supported.",
    422: "The request is invalid.",
    429: "Rate limit exceeded: `Retry-After` says when to try again.",
    501: "Looking inside is not available on this server.",
    503: "Overloaded: `Retry-After` says when to try again.",
}
