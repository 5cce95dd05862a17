"""Routes of the page: what is served, alternatives to a token, and looking inside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import Response

from pellucid import __version__
from pellucid.errors import InputError
from pellucid.server.routes.openapi import errors
from pellucid.server.routes.schemas import (
    AlternativesRequest,
    MasksRequest,
    SentenceRequest,
    TraceRequest,
)
from pellucid.server.service.inspection_process import (
    MasksQuestion,
    OutputProjectionQuestion,
    PositionsQuestion,
    TraceQuestion,
)
from pellucid.server.service.served_models import TranslationStep
from pellucid.server.service.state import ServerState
from pellucid.translator import Alternative

ERRORS = errors(401, 403, 408, 413, 422, 429, 501, 503)


@contextmanager
def _direct(
    server: ServerState, asked: SentenceRequest | MasksRequest
) -> Iterator[TranslationStep]:
    """Yield the one step of a direct translation."""
    with server.models.using(asked.source, asked.target) as steps:
        if len(steps) > 1:
            raise InputError(
                "looking inside needs a direct translation, and this one takes two steps"
            )
        yield steps[0]


def about_routes(server: ServerState) -> APIRouter:
    """Make the routes of the translation part of the page."""
    router = APIRouter(tags=["look inside"], responses=ERRORS)

    @router.get("/about", responses={})
    async def about() -> dict[str, Any]:
        """Describe what is served here, for the page."""
        table = server.models.table
        first = table.default
        return {
            "version": __version__,
            "directions": table.directions,
            "default": table.directions[0],
            "model": first.translator.bundle.config.model_dump(mode="json"),
            "models": {m.name: list(m.translator.directions) for m in table.models},
            "look": first.inspection.obstacle is None,
            "obstacle": first.inspection.obstacle,
        }

    @router.post("/alternatives")
    async def alternatives(asked: AlternativesRequest, request: Request) -> list[dict[str, Any]]:
        """List alternatives to one token, each completed to a whole sentence."""
        context = server.admit(request)
        with _direct(server, asked) as step:
            found = await server.pools.long_texts.run(
                context.deadline,
                step.model.translator.alternatives,
                asked.q,
                asked.position,
                asked.count,
                *step.direction,
                asked.beam_size,
                begin=asked.begin,
            )
        return [_alternative(one) for one in found]

    return router


def trace_routes(server: ServerState) -> APIRouter:
    """Make the routes of one sentence's trace and its tensors."""
    router = APIRouter(tags=["look inside"], responses=ERRORS)

    @router.post("/trace")
    async def trace(asked: TraceRequest, request: Request) -> dict[str, Any]:
        """Trace a sentence: everything but the large tensors, which are fetched by name."""
        context = server.admit(request)
        options: dict[str, Any] = {"beam_size": asked.beam_size}
        if asked.sample:
            options = {"sample": True, "temperature": asked.temperature, "seed": asked.seed}
        with _direct(server, asked) as step:
            question = TraceQuestion(
                asked.q,
                step.direction.name,
                options,
                tuple(asked.prefix),
                tuple(asked.without),
                tuple((switch.kind, switch.layer, switch.head) for switch in asked.off),
            )
            trace_id, made = await server.pools.inspections.run(
                context.deadline, step.model.inspection.trace, question
            )
        return {"id": trace_id, **made.as_dict()}

    @router.get("/trace/{trace_id}/tensor", response_class=Response, responses=errors(404))
    async def tensor(
        trace_id: str,
        path: Annotated[str, Query(max_length=200)],
        row: Annotated[int | None, Query(ge=0, le=10_000)] = None,
    ) -> Response:
        """Return one tensor, or one row of it: float32, little-endian, row-major."""
        kept = (model.inspection.get(trace_id) for model in server.models.table.models)
        made = next((one for one in kept if one is not None), None)
        if made is None:
            raise HTTPException(404, "this trace has expired: look inside again")
        if path not in made:
            raise HTTPException(404, f"no tensor {path[:80]!r} in this trace")
        found = made[path]
        if row is not None:
            if found.ndim == 0 or row >= len(found):
                raise HTTPException(404, f"no row {row} in {path[:80]!r}")
            found = found[row]
        return _float32(found)

    return router


def panel_routes(server: ServerState) -> APIRouter:
    """Make the routes of the panels: masks of a batch, position encodings, a weight matrix."""
    router = APIRouter(tags=["look inside"], responses=ERRORS)

    @router.post("/masks")
    async def masks(asked: MasksRequest, request: Request) -> dict[str, Any]:
        """Read some sentences as one batch: their tokens with padding, and the masks."""
        context = server.admit(request)
        with _direct(server, asked) as step:
            question = MasksQuestion(tuple(asked.q), step.direction.name)
            found = await server.pools.inspections.run(
                context.deadline, step.model.inspection.answer, question
            )
        return found.as_dict()  # type: ignore[no-any-return]

    @router.get("/positions", response_class=Response)
    async def positions(
        request: Request,
        length: Annotated[int, Query(ge=1, le=256)] = 20,
        width: Annotated[int, Query(ge=2, le=1024, multiple_of=2)] = 512,
        layout: Literal["interleaved", "halves"] = "interleaved",
    ) -> Response:
        """Return sinusoidal position encodings (length, width): float32, little-endian."""
        context = server.admit(request)
        process = server.models.table.default.inspection
        question = PositionsQuestion(length, width, layout)
        found = await server.pools.inspections.run(context.deadline, process.answer, question)
        return _float32(found)

    @router.get("/output_projection", response_class=Response)
    async def output_projection(
        request: Request,
        kind: Literal["encoder", "decoder", "cross"],
        layer: Annotated[int, Query(ge=0, le=1000)],
    ) -> Response:
        """Return W_O of a layer's attention (D, H · K): float32, little-endian."""
        context = server.admit(request)
        process = server.models.table.default.inspection
        question = OutputProjectionQuestion(kind, layer)
        found = await server.pools.inspections.run(context.deadline, process.answer, question)
        return _float32(found)

    return router


def _alternative(one: Alternative) -> dict[str, Any]:
    return {
        "token": one.token,
        "probability": one.probability,
        "text": one.text,
        "score": one.score,
        "tokens": one.tokens,
        "begin": one.begin,
    }


def _float32(array: Any) -> Response:
    """Send an array as the page reads it: float32, little-endian, row-major."""
    return Response(array.astype("<f4").tobytes(), media_type="application/octet-stream")
