"""What the page asks for beside the trace: masks of a batch, positions, a matrix of weights."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query
from fastapi.responses import Response

from pellucid.server.looking import Batch, Looks, Waves, Weight
from pellucid.server.schemas import MasksAsked
from pellucid.translator import Translator


def add_inside(app: FastAPI, translator: Translator, looks: Looks) -> None:
    """The addresses of the panels."""

    @app.post("/masks")
    def masks(asked: MasksAsked) -> dict[str, Any]:
        """Some sentences as one batch: their tokens with padding, and the masks as used."""
        way = translator.direction(asked.source, asked.target)
        found = looks.answer(Batch(tuple(asked.q), way.name))
        return found.as_dict()  # type: ignore[no-any-return]

    @app.get("/positions", response_class=Response)
    def positions(
        length: Annotated[int, Query(ge=1, le=256)] = 20,
        width: Annotated[int, Query(ge=2, le=1024, multiple_of=2)] = 512,
        layout: Literal["interleaved", "halves"] = "interleaved",
    ) -> Response:
        """The sinusoidal positions of the paper (length, width): float32, little-endian."""
        return numbers(looks.answer(Waves(length, width, layout)))

    @app.get("/joining", response_class=Response)
    def joining(
        kind: Literal["encoder", "decoder", "cross"],
        layer: Annotated[int, Query(ge=0, le=1000)],
    ) -> Response:
        """W_O of a layer's attention (D, H · K): float32, little-endian."""
        return numbers(looks.answer(Weight(kind, layer)))


def numbers(array: Any) -> Response:
    """An array as the page reads it: float32, little-endian, rows in order."""
    return Response(array.astype("<f4").tobytes(), media_type="application/octet-stream")
