"""Translation of requests: language detection, the models to use, formats, streams."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from fastapi import HTTPException

from pellucid.errors import InputError
from pellucid.server.routes.schemas import TranslateRequest
from pellucid.server.security.middleware import RequestContext
from pellucid.server.service.queue import Deadline
from pellucid.server.service.served_models import TranslationStep
from pellucid.server.service.state import ServerState
from pellucid.text.documents import Document, open_document
from pellucid.text.languages import Detected, detect
from pellucid.translator import Translation

DOCUMENT_WINDOW = 128
"""Texts of a document that are translated at a time, which bounds what is held in memory."""

SHORT_CHARACTERS, SHORT_TEXTS = 1000, 64
"""Size up to which a request counts as short."""


@dataclass(frozen=True)
class TranslatedText:
    """The translation of one text of a request."""

    text: str
    alternatives: list[str]
    score: float
    detected: Detected | None = None
    pivot: str | None = None
    translation: Translation | None = None


def check_limits(server: ServerState, asked: TranslateRequest, texts: Sequence[str]) -> None:
    """Raise an error with 413 or 422 if a request exceeds a limit."""
    limits = server.settings
    if len(texts) > limits.batch_limit:
        raise HTTPException(413, f"q: {len(texts)} texts, and the limit is {limits.batch_limit}")
    longest = max(map(len, texts), default=0)
    if longest > limits.char_limit:
        raise HTTPException(
            413, f"q: {longest:,} characters, and the limit is {limits.char_limit:,}"
        )
    if (total := sum(map(len, texts))) > limits.total_char_limit:
        raise HTTPException(
            413, f"q: {total:,} characters in all, and the limit is {limits.total_char_limit:,}"
        )
    check_beam_size(server, asked)
    if asked.alternatives > limits.alternatives:
        raise InputError(
            f"alternatives: {asked.alternatives}, and the limit is {limits.alternatives}"
        )


def check_beam_size(server: ServerState, asked: TranslateRequest) -> None:
    """Raise an error if a request asks for a larger beam than is allowed."""
    limit = server.settings.beam_size
    if asked.beam_size > limit:
        raise InputError(f"beam_size: {asked.beam_size}, and the limit is {limit}")


async def translate(
    server: ServerState, asked: TranslateRequest, texts: Sequence[str], context: RequestContext
) -> list[TranslatedText]:
    """Translate each text, those of one language together."""
    sources = await detect_sources(server, asked, texts, context.deadline)
    made: list[TranslatedText | None] = [None] * len(texts)
    for language in dict.fromkeys(source.language for source in sources):
        indices = [i for i, source in enumerate(sources) if source.language == language]
        part = await _translate_from(server, asked, language, [texts[i] for i in indices], context)
        for i, one in zip(indices, part, strict=True):
            made[i] = one
    found = [one for one in made if one is not None]
    if asked.source != "auto":
        return found
    return [replace(one, detected=d) for one, d in zip(found, sources, strict=True)]


async def detect_sources(
    server: ServerState, asked: TranslateRequest, texts: Sequence[str], deadline: Deadline
) -> list[Detected]:
    """Return the source language of each text: the given one, or with "auto" the detected one."""
    if asked.source != "auto":
        return [Detected(asked.source, 100.0)] * len(texts)
    served = server.models.sources_for(asked.target)
    candidates = [*served, asked.target]

    def choose(text: str) -> Detected:
        for found in detect(text):
            for code in candidates:
                if code.replace("-", "_").partition("_")[0].lower() == found.language:
                    return Detected(code, found.confidence)
        # A language that is not served, or one that cannot be detected.
        return Detected(served[0] if served else asked.target, 0.0)

    return await server.pools.long_texts.run(deadline, lambda: [choose(text) for text in texts])


async def _translate_from(
    server: ServerState,
    asked: TranslateRequest,
    source: str,
    texts: list[str],
    context: RequestContext,
) -> list[TranslatedText]:
    if _same_language(source, asked.target) and asked.model is None:
        return [TranslatedText(text, [], 0.0) for text in texts]
    context.fields |= {
        "direction": f"{source[:24]}-{asked.target[:24]}",
        "texts": context.fields.get("texts", 0) + len(texts),
        "characters": context.fields.get("characters", 0) + sum(map(len, texts)),
    }
    if server.settings.log_texts:
        context.fields["q"] = context.fields.get("q", []) + texts
    with server.models.using(source, asked.target, asked.model) as steps:
        languages = [steps[0].direction.source, *(step.direction.target for step in steps)]
        context.fields["direction"] = "-".join(languages)
        characters = server.metrics.characters.labels(context.fields["direction"])
        characters.inc(sum(map(len, texts)))
        if asked.format == "html":
            return await _translate_html(server, asked, steps, texts, context.deadline)
        done = await translate_steps(server, asked, steps, texts, context.deadline)
    pivot = languages[1] if len(steps) > 1 else None
    return [
        TranslatedText(t.text, list(t.n_best[1:]), t.score, pivot=pivot, translation=t)
        for t in done
    ]


async def _translate_html(
    server: ServerState,
    asked: TranslateRequest,
    steps: Sequence[TranslationStep],
    texts: Sequence[str],
    deadline: Deadline,
) -> list[TranslatedText]:
    """Translate HTML fragments. They have no alternatives, as in LibreTranslate."""
    made = []
    for text in texts:
        document = open_document(text.encode(), "html", target=steps[-1].direction.target)
        parts = await translate_document(server, without_extras(asked), steps, document, deadline)
        made.append(TranslatedText(document.rebuilt(parts).decode(), [], 0.0))
    return made


def without_extras(asked: TranslateRequest) -> TranslateRequest:
    """Copy a request without alternatives, prefix and details, which are for plain texts."""
    return asked.model_copy(update={"alternatives": 0, "prefix": None, "details": False})


async def translate_document(
    server: ServerState,
    asked: TranslateRequest,
    steps: Sequence[TranslationStep],
    document: Document,
    deadline: Deadline,
) -> list[str]:
    """Translate the texts of a document, a window at a time."""
    rest, made = iter(document.texts()), []
    while window := list(islice(rest, DOCUMENT_WINDOW)):
        made += [t.text for t in await translate_steps(server, asked, steps, window, deadline)]
    return made


async def translate_steps(
    server: ServerState,
    asked: TranslateRequest,
    steps: Sequence[TranslationStep],
    texts: Sequence[str],
    deadline: Deadline,
) -> list[Translation]:
    """Translate texts with one model, or with two through a third language."""
    if len(steps) > 1 and asked.details:
        raise InputError("details need a direct translation, and this one takes two steps")
    for step in steps[:-1]:
        texts = [t.text for t in await _decode(server, step, texts, deadline, asked.beam_size)]
    more: dict[str, Any] = {"n_best": asked.alternatives + 1, "prefix": asked.prefix or None}
    if asked.details:
        more |= {"attention": True, "token_log_probabilities": True}
    return await _decode(server, steps[-1], texts, deadline, asked.beam_size, **more)


async def _decode(
    server: ServerState,
    step: TranslationStep,
    texts: Sequence[str],
    deadline: Deadline,
    beam_size: int,
    **options: Any,
) -> list[Translation]:
    """Translate texts with one model, in the thread pool for texts of this length."""

    def call() -> list[Translation]:
        return step.model.translator.translate(
            texts, *step.direction, beam_size=beam_size, **options
        )

    long = sum(map(len, texts)) > SHORT_CHARACTERS or len(texts) > SHORT_TEXTS
    if long or "attention" in options:
        return await server.pools.long_texts.run(deadline, call)
    return await server.pools.short_texts.run_sized(len(texts), deadline, call)


async def stream_sentences(
    server: ServerState, asked: TranslateRequest, text: str, context: RequestContext
) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
    """Yield events (name and data) for one text, sentence by sentence, as they are ready."""
    (source,) = await detect_sources(server, asked, [text], context.deadline)
    if asked.source == "auto":
        yield "detected", source.as_dict()
    with server.models.using(source.language, asked.target, asked.model) as steps:
        direction, target = steps[0].direction, steps[-1].direction.target
        passage = await server.pools.long_texts.run(
            context.deadline, steps[0].model.translator.passage, text, *direction
        )
        context.fields |= {"direction": f"{direction.source}-{target}", "characters": len(text)}
        server.metrics.characters.labels(context.fields["direction"]).inc(len(text))
        sentences, size = [unit.text for unit in passage.units], 1
        made: list[str] = []
        while len(made) < len(sentences):
            # One sentence first, so that something appears soon; then more, to fill batches.
            part = sentences[len(made) : len(made) + size]
            for one in await translate_steps(server, asked, steps, part, context.deadline):
                index = len(made)
                yield "sentence", {"index": index, "source": sentences[index], "text": one.text}
                made.append(one.text)
            size = min(2 * size, 32)
        yield "done", {"translatedText": passage.joined(made, target)}


def extend_deadline(context: RequestContext, seconds: float) -> None:
    """Give a request this many seconds from now on."""
    context.deadline.until = time.monotonic() + seconds


def _same_language(one: str, other: str) -> bool:
    return one.strip().replace("-", "_").lower() == other.strip().replace("-", "_").lower()
