"""Who is judged: a model that translates now, or a file of translations made before."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from pellucid.console.progress import Progress
from pellucid.decoding.engine_selection import EngineName
from pellucid.errors import InputError
from pellucid.evaluation.test_set import lines_of
from pellucid.training.plan.hardware import processor_name
from pellucid.translator import Translator, load

AT_ONCE = 512
"""Sentences that are sorted and batched together, and then reported to the bar."""

Given = str | Path | Translator | Sequence[str]
"""A model (its name, its folder, or loaded), or translations (a file, or the lines)."""


class Written(NamedTuple):
    """What a model wrote for one sentence."""

    text: str
    score: float
    """Log-probability over the length penalty: how sure the model was."""
    tokens: int
    cut: bool
    """Whether it reached the longest allowed length."""


@dataclass(frozen=True)
class Speed:
    """How fast a model translated, here and today."""

    seconds: float
    """By the clock; loading the model is not counted."""
    cpu_seconds: float
    """Of all cores together: on a busy machine this tells more."""
    sentences: int
    tokens: int
    """Of the output, end symbols counted."""
    engine: str
    machine: str
    cores: int

    @property
    def disturbed(self) -> bool:
        """Whether other work took much of the machine: not even one core was ours all the time."""
        return self.cpu_seconds < 0.7 * self.seconds

    @property
    def sentences_per_second(self) -> float:
        """Sentences a second."""
        return self.sentences / self.seconds

    @property
    def tokens_per_second(self) -> float:
        """Tokens of the output a second."""
        return self.tokens / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "sentences_per_second": self.sentences_per_second,
            "tokens_per_second": self.tokens_per_second,
            "tokens": self.tokens,
            "engine": self.engine,
            "machine": self.machine,
            "cores": self.cores,
        }


@dataclass(frozen=True)
class Candidate:
    """A system before it has translated: it has either a translator or its lines."""

    name: str
    translator: Translator | None = None
    lines: list[str] | None = None


@dataclass(frozen=True)
class System:
    """A system with its translations."""

    name: str
    texts: list[str]
    written: list[Written] | None = None
    """Of a model; None for translations that were made before."""
    speed: Speed | None = None


def open_candidate(given: Given, engine: str = "auto", what: str = "translations") -> Candidate:
    """The system that is meant; a file counts as translations, all else as a model."""
    if engine not in ("auto", "ct2", "torch"):
        raise InputError(f"unknown engine {engine!r}: choose auto, ct2 or torch")
    if isinstance(given, Translator):
        return Candidate(given.bundle.folder.name, translator=given)
    if not isinstance(given, str | Path):
        return Candidate(what, lines=lines_of(given, what)[1])
    if Path(given).is_file():
        return Candidate(str(given), lines=lines_of(Path(given))[1])
    try:
        return Candidate(str(given), translator=load(given, cast(EngineName, engine)))
    except InputError as error:
        if "no model" not in str(error):
            raise
        raise InputError(f"{given} is no file of translations, and there is {error}") from None


def named_apart(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The same systems; where two have one name, the later ones get a number."""
    seen: dict[str, int] = {}
    made = []
    for one in candidates:
        seen[one.name] = seen.get(one.name, 0) + 1
        name = one.name if seen[one.name] == 1 else f"{one.name} ({seen[one.name]})"
        made.append(Candidate(name, one.translator, one.lines))
    return made


def translate(
    candidate: Candidate,
    sources: Sequence[str],
    way: tuple[str, str],
    options: dict[str, Any],
    progress: Progress,
) -> System:
    """Let a system translate, if it has not."""
    if candidate.translator is None:
        assert candidate.lines is not None
        return System(candidate.name, candidate.lines)
    step = progress.step(f"translating with {candidate.name}", "sentences", len(sources))
    written: list[Written] = []
    begin, cpu = time.perf_counter(), time.process_time()
    for start in range(0, len(sources), AT_ONCE):
        some = sources[start : start + AT_ONCE]
        for made in candidate.translator.translate(some, *way, **options):
            written.append(Written(made.text, made.score, made.length, made.ended == "length"))
        step.advance(len(some))
    seconds = max(time.perf_counter() - begin, 1e-9)
    speed = Speed(
        seconds,
        time.process_time() - cpu,
        len(written),
        sum(one.tokens for one in written),
        _engine_name(candidate.translator),
        processor_name(),
        os.cpu_count() or 1,
    )
    return System(candidate.name, [one.text for one in written], written, speed)


def _engine_name(translator: Translator) -> str:
    kind = type(translator.engine).__name__
    return {"Ct2Engine": "ct2", "AutoEngine": "ct2", "TorchEngine": "torch"}.get(kind, kind)
