"""A request to translate, made into translations: which language, which models, which format."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from fastapi import HTTPException

from pellucid.errors import InputError
from pellucid.server.routes.schemas import TranslateAsked
from pellucid.server.security.middleware import Visit
from pellucid.server.service.batching import Patience
from pellucid.server.service.models import RouteStep
from pellucid.server.service.queue import Asking
from pellucid.server.service.shared import Service
from pellucid.text.documents import Document, open_document
from pellucid.text.languages import Detected, detect
from pellucid.translator import Translation

WINDOW = 128
"""Texts of a document that go to the model at a time, so that others get their turn."""


@dataclass(frozen=True)
class Made:
    """What became of one text."""

    text: str
    others: list[str]
    score: float
    detected: Detected | None = None
    pivot: str | None = None
    translation: Translation | None = None


def check(service: Service, asked: TranslateAsked, texts: Sequence[str]) -> None:
    """Refuse what is too much."""
    limits = service.settings
    if len(texts) > limits.batch_limit:
        raise HTTPException(413, f"q: {len(texts)} texts, and {limits.batch_limit} are allowed")
    longest = max(map(len, texts), default=0)
    if longest > limits.char_limit:
        raise HTTPException(
            413, f"q: {longest:,} characters, and {limits.char_limit:,} are allowed"
        )
    if (total := sum(map(len, texts))) > limits.total_char_limit:
        raise HTTPException(
            413, f"q: {total:,} characters in all, and {limits.total_char_limit:,} are allowed"
        )
    if asked.beam_size > limits.beam_size:
        raise InputError(f"beam: {asked.beam_size}, and {limits.beam_size} are allowed")
    if asked.alternatives > limits.alternatives:
        raise InputError(
            f"alternatives: {asked.alternatives}, and {limits.alternatives} are allowed"
        )


async def translate(
    service: Service, asked: TranslateAsked, texts: Sequence[str], visit: Visit
) -> list[Made]:
    """Each text translated, those of one language together."""
    sources = await sources_of(service, asked, texts, visit.patience)
    made: list[Made | None] = [None] * len(texts)
    for source in dict.fromkeys(found.language for found in sources):
        places = [i for i, found in enumerate(sources) if found.language == source]
        part = await _from(service, asked, source, [texts[i] for i in places], visit)
        for i, one in zip(places, part, strict=True):
            made[i] = one
    found = [one for one in made if one is not None]
    if asked.source != "auto":
        return found
    return [
        Made(m.text, m.others, m.score, d, m.pivot, m.translation)
        for m, d in zip(found, sources, strict=True)
    ]


async def sources_of(
    service: Service, asked: TranslateAsked, texts: Sequence[str], patience: Patience
) -> list[Detected]:
    """The language of each text: as it was said, or as it seems."""
    if asked.source != "auto":
        return [Detected(asked.source, 100.0)] * len(texts)
    there = service.models.sources_for(asked.target)
    known = [*there, asked.target]

    def chosen(text: str) -> Detected:
        for found in detect(text):
            for code in known:
                if code.replace("-", "_").partition("_")[0].lower() == found.language:
                    return Detected(code, found.confidence)
        # It is in none that is served; or nobody can tell.
        return Detected(there[0] if there else asked.target, 0.0)

    return await service.work.long.run(patience, lambda: [chosen(text) for text in texts])


async def _from(
    service: Service, asked: TranslateAsked, source: str, texts: list[str], visit: Visit
) -> list[Made]:
    if _same(source, asked.target) and asked.model is None:
        return [Made(text, [], 0.0) for text in texts]  # it is there already
    visit.facts |= {
        "way": f"{source[:24]}-{asked.target[:24]}",
        "texts": visit.facts.get("texts", 0) + len(texts),
        "characters": visit.facts.get("characters", 0) + sum(map(len, texts)),
    }
    if service.settings.log_texts:
        visit.facts["q"] = visit.facts.get("q", []) + texts
    with service.models.using(source, asked.target, asked.model) as steps:
        visit.facts["way"] = "-".join([steps[0].way.source, *(s.way.target for s in steps)])
        service.metrics.characters.labels(visit.facts["way"]).inc(sum(map(len, texts)))
        if asked.format == "html":
            return await _html(service, asked, steps, texts, visit.patience)
        done = await through(service, asked, steps, texts, visit.patience)
    middle = steps[0].way.target if len(steps) > 1 else None
    return [Made(t.text, list(t.n_best[1:]), t.score, pivot=middle, translation=t) for t in done]


async def _html(
    service: Service,
    asked: TranslateAsked,
    steps: Sequence[RouteStep],
    texts: Sequence[str],
    patience: Patience,
) -> list[Made]:
    """Fragments of HTML. There are no alternatives for them, as with LibreTranslate."""
    made = []
    plain = asked.model_copy(update={"alternatives": 0, "prefix": None, "details": False})
    for text in texts:
        document = open_document(text.encode(), "html", target=steps[-1].way.target)
        parts = await translate_document(service, plain, steps, document, patience)
        made.append(Made(document.rebuilt(parts).decode(), [], 0.0))
    return made


async def translate_document(
    service: Service,
    asked: TranslateAsked,
    steps: Sequence[RouteStep],
    document: Document,
    patience: Patience,
) -> list[str]:
    """The translations of a document's texts, a window at a time."""
    rest, made = iter(document.texts()), []
    while window := list(islice(rest, WINDOW)):
        made += [t.text for t in await through(service, asked, steps, window, patience)]
    return made


async def through(
    service: Service,
    asked: TranslateAsked,
    steps: Sequence[RouteStep],
    texts: Sequence[str],
    patience: Patience,
) -> list[Translation]:
    """Texts through one model, or through two."""
    if len(steps) > 1 and asked.details:
        raise InputError("details are for a direct translation, and this one takes two steps")
    for step in steps[:-1]:
        asking = Asking(step.model.translator, step.way, asked.beam_size)
        texts = [t.text for t in await service.work.translate(asking, texts, patience)]
    last = Asking(
        steps[-1].model.translator,
        steps[-1].way,
        asked.beam_size,
        asked.alternatives + 1,
        asked.prefix or None,
        asked.details,
    )
    return await service.work.translate(last, texts, patience)


async def stream(
    service: Service, asked: TranslateAsked, text: str, visit: Visit
) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
    """Events (their names and data) for one text, sentence by sentence, as they are ready."""
    (source,) = await sources_of(service, asked, [text], visit.patience)
    if asked.source == "auto":
        yield "detected", source.as_dict()
    with service.models.using(source.language, asked.target, asked.model) as steps:
        way = steps[0].way
        passage = await service.work.long.run(
            visit.patience, steps[0].model.translator.passage, text, *way
        )
        visit.facts |= {"way": f"{way.source}-{steps[-1].way.target}", "characters": len(text)}
        service.metrics.characters.labels(visit.facts["way"]).inc(len(text))
        units, size = [unit.text for unit in passage.units], 1
        made: list[str] = []
        while len(made) < len(units):
            begin = len(made)
            part = units[begin : begin + size]
            for translation in await through(service, asked, steps, part, visit.patience):
                yield (
                    "sentence",
                    {
                        "index": len(made),
                        "source": units[len(made)],
                        "text": translation.text,
                    },
                )
                made.append(translation.text)
            size = min(2 * size, 32)
        yield "done", {"translatedText": passage.joined(made, steps[-1].way.target)}


def longer(visit: Visit, seconds: float) -> None:
    """Give a visit more time."""
    visit.patience.until = time.monotonic() + seconds


def _same(one: str, other: str) -> bool:
    return one.strip().replace("-", "_").lower() == other.strip().replace("-", "_").lower()
