"""The routes of the page: what is served, other words, and what happens inside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import Response

from pellucid import __version__
from pellucid.errors import InputError
from pellucid.server.routes.openapi import refusals
from pellucid.server.routes.schemas import AlternativesAsked, MasksAsked, SentenceAsked, TraceAsked
from pellucid.server.service.inspect_process import PaddedExample, Question, Waves, Weight
from pellucid.server.service.models import RouteStep
from pellucid.server.service.shared import Service
from pellucid.translator import Alternative

Asked = SentenceAsked | MasksAsked
REFUSALS = refusals(401, 403, 408, 413, 422, 429, 501, 503)


@contextmanager
def _direct(service: Service, asked: Asked) -> Iterator[RouteStep]:
    with service.models.using(asked.source, asked.target) as steps:
        if len(steps) > 1:
            raise InputError("looking inside is for a direct translation: this takes two steps")
        yield steps[0]


def tracing(service: Service) -> APIRouter:
    """Routes for a sentence."""
    router = APIRouter(tags=["look inside"], responses=REFUSALS)

    @router.get("/about", responses={})
    async def about() -> dict[str, Any]:
        """Tell what is served here, for the page."""
        table = service.models.table
        first = table.default
        return {
            "version": __version__,
            "directions": table.directions,
            "default": table.directions[0],
            "model": first.translator.bundle.config.model_dump(mode="json"),
            "models": {m.name: list(m.translator.directions) for m in table.models},
            "look": first.looks.obstacle is None,
            "obstacle": first.looks.obstacle,
        }

    @router.post("/alternatives")
    async def alternatives(asked: AlternativesAsked, request: Request) -> list[dict[str, Any]]:
        """Tell what else could stand at a position, each completed to a whole sentence."""
        visit = service.admit(request)
        with _direct(service, asked) as step:
            found = await service.work.long.run(
                visit.patience,
                step.model.translator.alternatives,
                asked.q,
                asked.position,
                asked.count,
                *step.way,
                asked.beam_size,
                begin=asked.begin,
            )
        return [_alternative(one) for one in found]

    @router.post("/trace")
    async def trace(asked: TraceAsked, request: Request) -> dict[str, Any]:
        """Look inside: all but the large tensors, which are fetched by name when looked at."""
        visit = service.admit(request)
        options: dict[str, Any] = {"beam": asked.beam_size}
        if asked.sample:
            options = {"sample": True, "temperature": asked.temperature, "seed": asked.seed}
        with _direct(service, asked) as step:
            question = Question(
                asked.q,
                step.way.name,
                options,
                tuple(asked.prefix),
                tuple(asked.without),
                tuple((switch.kind, switch.layer, switch.head) for switch in asked.off),
            )
            name, made = await service.work.looks.run(
                visit.patience, step.model.looks.make, question
            )
        return {"id": name, **made.as_dict()}

    @router.get("/trace/{name}/tensor", response_class=Response, responses=refusals(404))
    async def tensor(
        name: str,
        path: Annotated[str, Query(max_length=200)],
        row: Annotated[int | None, Query(ge=0, le=10_000)] = None,
    ) -> Response:
        """Fetch one tensor, or one row of it: float32, little-endian, rows in order."""
        kept = (model.looks.get(name) for model in service.models.table.models)
        made = next((one for one in kept if one is not None), None)
        if made is None:
            raise HTTPException(404, "this look has been forgotten: look again")
        if path not in made:
            raise HTTPException(404, f"no tensor {path[:80]!r} in this trace")
        found = made[path]
        if row is not None:
            if found.ndim == 0 or row >= len(found):
                raise HTTPException(404, f"no row {row} in {path[:80]!r}")
            found = found[row]
        return _numbers(found)

    return router


def panels(service: Service) -> APIRouter:
    """Routes of the panels: masks of a batch, positions, a matrix of weights."""
    router = APIRouter(tags=["look inside"], responses=REFUSALS)

    @router.post("/masks")
    async def masks(asked: MasksAsked, request: Request) -> dict[str, Any]:
        """Show some sentences as one batch: their tokens with padding, and the masks as used."""
        visit = service.admit(request)
        with _direct(service, asked) as step:
            question = PaddedExample(tuple(asked.q), step.way.name)
            found = await service.work.looks.run(visit.patience, step.model.looks.answer, question)
        return found.as_dict()  # type: ignore[no-any-return]

    @router.get("/positions", response_class=Response)
    async def positions(
        request: Request,
        length: Annotated[int, Query(ge=1, le=256)] = 20,
        width: Annotated[int, Query(ge=2, le=1024, multiple_of=2)] = 512,
        layout: Literal["interleaved", "halves"] = "interleaved",
    ) -> Response:
        """Give the sinusoidal positions of the paper (length, width): float32, little-endian."""
        visit = service.admit(request)
        looks = service.models.table.default.looks
        question = Waves(length, width, layout)
        return _numbers(await service.work.looks.run(visit.patience, looks.answer, question))

    @router.get("/joining", response_class=Response)
    async def joining(
        request: Request,
        kind: Literal["encoder", "decoder", "cross"],
        layer: Annotated[int, Query(ge=0, le=1000)],
    ) -> Response:
        """Give W_O of a layer's attention (D, H · K): float32, little-endian."""
        visit = service.admit(request)
        looks = service.models.table.default.looks
        question = Weight(kind, layer)
        return _numbers(await service.work.looks.run(visit.patience, looks.answer, question))

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


def _numbers(array: Any) -> Response:
    """An array as the page reads it: float32, little-endian, rows in order."""
    return Response(array.astype("<f4").tobytes(), media_type="application/octet-stream")
