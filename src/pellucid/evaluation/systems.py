"""The systems to evaluate: models that translate now, or translations made before."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from pellucid.console.machine import processor_name
from pellucid.console.progress import Progress
from pellucid.decoding.engine_selection import EngineName
from pellucid.errors import InputError
from pellucid.evaluation.test_set import load_lines
from pellucid.translator import Translator, load

WINDOW_SENTENCES = 512
"""Sentences that are sorted and batched together, between updates of the progress bar."""

SystemSpec = str | Path | Translator | Sequence[str]
"""A model (its name, its folder, or loaded), or translations (a file, or the lines)."""


class SentenceOutput(NamedTuple):
    """What a model wrote for one sentence."""

    text: str
    score: float
    """Log-probability divided by the length penalty."""
    tokens: int
    cut: bool
    """Whether it reached the maximum length."""


@dataclass(frozen=True)
class TranslationSpeed:
    """Speed of a model on this machine at this moment."""

    seconds: float
    """Wall-clock time; loading the model is not counted."""
    cpu_seconds: float
    """CPU time of all cores together, which says more on a busy machine."""
    sentences: int
    tokens: int
    """Output tokens, including end symbols."""
    engine: str
    machine: str
    cores: int

    @property
    def machine_busy(self) -> bool:
        """Whether other work took much of the machine: not even one core was ours throughout."""
        return self.cpu_seconds < 0.7 * self.seconds

    @property
    def sentences_per_second(self) -> float:
        """Sentences per second."""
        return self.sentences / self.seconds

    @property
    def tokens_per_second(self) -> float:
        """Output tokens per second."""
        return self.tokens / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
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
class OpenedSystem:
    """A system before it translates: it has either a translator or its lines."""

    name: str
    translator: Translator | None = None
    lines: list[str] | None = None


@dataclass(frozen=True)
class SystemOutput:
    """A system with its translations."""

    name: str
    texts: list[str]
    details: list[SentenceOutput] | None = None
    """Details of a model's outputs; None for translations made before."""
    speed: TranslationSpeed | None = None


def open_system(
    given: SystemSpec, engine: str = "auto", what: str = "translations"
) -> OpenedSystem:
    """Open a system: a file counts as translations, everything else as a model."""
    if engine not in ("auto", "ct2", "torch"):
        raise InputError(f"unknown engine {engine!r}: choose auto, ct2 or torch")
    if isinstance(given, Translator):
        return OpenedSystem(given.bundle.folder.name, translator=given)
    if not isinstance(given, str | Path):
        return OpenedSystem(what, lines=load_lines(given, what)[1])
    if Path(given).is_file():
        return OpenedSystem(str(given), lines=load_lines(Path(given))[1])
    try:
        return OpenedSystem(str(given), translator=load(given, cast(EngineName, engine)))
    except InputError as error:
        if "no model" not in str(error):
            raise
        raise InputError(f"{given} is not a file of translations, and there is {error}") from None


def with_unique_names(systems: Sequence[OpenedSystem]) -> list[OpenedSystem]:
    """Number the names that occur more than once, from the second system on."""
    seen: dict[str, int] = {}
    made = []
    for one in systems:
        seen[one.name] = seen.get(one.name, 0) + 1
        name = one.name if seen[one.name] == 1 else f"{one.name} ({seen[one.name]})"
        made.append(OpenedSystem(name, one.translator, one.lines))
    return made


def translate(
    system: OpenedSystem,
    sources: Sequence[str],
    direction: tuple[str, str],
    options: dict[str, Any],
    progress: Progress,
) -> SystemOutput:
    """Translate with a system, unless its translations were made before."""
    if system.translator is None:
        assert system.lines is not None
        return SystemOutput(system.name, system.lines)
    step = progress.step(f"translating with {system.name}", "sentences", len(sources))
    outputs: list[SentenceOutput] = []
    began, cpu_began = time.perf_counter(), time.process_time()
    for start in range(0, len(sources), WINDOW_SENTENCES):
        window = sources[start : start + WINDOW_SENTENCES]
        for made in system.translator.translate(window, *direction, **options):
            outputs.append(
                SentenceOutput(made.text, made.score, made.length, made.ended == "length")
            )
        step.advance(len(window))
    seconds = max(time.perf_counter() - began, 1e-9)
    speed = TranslationSpeed(
        seconds,
        time.process_time() - cpu_began,
        len(outputs),
        sum(one.tokens for one in outputs),
        system.translator.engine.name,
        processor_name(),
        os.cpu_count() or 1,
    )
    return SystemOutput(system.name, [one.text for one in outputs], outputs, speed)
