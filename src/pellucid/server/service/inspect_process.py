"""Looking inside, in a process of its own.

CTranslate2 runs several times slower in a process that has also loaded PyTorch, a look may take
much memory, and it can be stopped: so it happens elsewhere. The process starts with the first look
and loads PyTorch then.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from secrets import token_urlsafe
from typing import Any, Literal

from pellucid.errors import InputError, PellucidError
from pellucid.inspection.trace import Trace

KEPT, MINUTES = 16, 15
"""How many traces are kept, and for how long."""


class UnavailableError(PellucidError):
    """There is no looking inside here."""


@dataclass(frozen=True)
class Question:
    """What to look at."""

    text: str
    direction: str
    options: dict[str, Any] = field(default_factory=dict)
    prefix: tuple[int, ...] = ()
    without: tuple[int, ...] = ()
    off: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True)
class PaddedExample:
    """Sentences to read as one batch, for their masks."""

    texts: tuple[str, ...]
    direction: str


@dataclass(frozen=True)
class Waves:
    """A table of sinusoidal positions."""

    length: int
    width: int
    layout: Literal["interleaved", "halves"]


@dataclass(frozen=True)
class Weight:
    """The matrix W_O of one attention."""

    kind: str
    layer: int


class Looks:
    """Traces of one model, made by another process and kept for a while under a name."""

    def __init__(self, folder: Path, *, seconds: float = 30.0) -> None:
        self.folder, self.seconds = folder, seconds
        self._kept: OrderedDict[str, tuple[float, Trace]] = OrderedDict()
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._process: Any = None
        self._line: Connection | None = None

    @property
    def obstacle(self) -> str | None:
        """Why there is no looking inside, or None."""
        if find_spec("torch") is None:
            return "Looking inside needs PyTorch: pip install 'pellucid[train]', then start again."
        return None

    def make(self, question: Question) -> tuple[str, Trace]:
        """A trace and its name."""
        answer = self.answer(question)
        name = token_urlsafe(9)
        with self._lock:
            self._forget()
            self._kept[name] = (time.monotonic(), answer)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return name, answer

    def answer(self, question: Question | PaddedExample | Waves | Weight) -> Any:
        """What the other process has to say. It is asked one question at a time."""
        if self.obstacle is not None:
            raise UnavailableError(self.obstacle)
        with self._asking:
            answer = self._ask(question)
        if isinstance(answer, PellucidError):
            raise answer
        return answer

    def get(self, name: str) -> Trace | None:
        """A trace that was made not long ago."""
        with self._lock:
            self._forget()
            found = self._kept.get(name)
            return None if found is None else found[1]

    def close(self) -> None:
        """Stop the process, whatever it is doing."""
        if (process := self._process) is not None:
            process.kill()
        with self._asking:
            self._stop()

    def _forget(self) -> None:
        oldest = time.monotonic() - 60 * MINUTES
        while self._kept and next(iter(self._kept.values()))[0] < oldest:
            self._kept.popitem(last=False)

    def _ask(self, question: object) -> Any:
        if self._process is None or not self._process.is_alive():
            self._start()
        assert self._line is not None
        try:
            self._line.send(question)
            if not self._line.poll(self.seconds):
                self._stop()
                raise InputError(
                    f"the look took more than {self.seconds:.0f} seconds and was stopped: "
                    "look at a shorter sentence"
                )
            return self._line.recv()
        except (EOFError, OSError):
            self._stop()
            raise PellucidError("looking inside failed: its process ended; try again") from None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, str(self.folder)), daemon=True)
        process.start()
        theirs.close()
        self._process, self._line = process, ours
        if not ours.poll(120) or ours.recv() != "ready":
            self._stop()
            raise PellucidError("looking inside failed: its process did not start")

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._line is not None:
            self._line.close()
        self._process = self._line = None


def _serve(line: Connection, folder: str) -> None:
    """The other process: load the model once, answer question after question."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server says when to stop
    from pellucid.bundle import Bundle
    from pellucid.decoding.engine_selection import open_torch

    bundle = Bundle.open(Path(folder), lazily=True)
    engine = open_torch(bundle)
    line.send("ready")
    while True:
        try:
            question = line.recv()
        except EOFError:
            return
        try:
            line.send(_answered(bundle, engine, question))
        except PellucidError as error:
            line.send(type(error)(str(error)))


def _answered(bundle: Any, engine: Any, question: Question | PaddedExample | Waves | Weight) -> Any:
    if isinstance(question, Question):
        return _looked(bundle, engine, question)
    if isinstance(question, Waves):
        from pellucid.model.positions import sinusoidal_table

        return sinusoidal_table(question.length, question.width, layout=question.layout).numpy()
    if isinstance(question, Weight):
        return _joining(engine.model, question)
    from pellucid.inspection.padding_masks import look_at_masks

    return look_at_masks(
        engine.model, bundle.tokenizer, engine.special, question.texts, question.direction
    )


def _joining(model: Any, question: Weight) -> Any:
    from pellucid.inspection.derived import attention_of

    stack = "encoder" if question.kind == "encoder" else "decoder"
    layers = len(getattr(model, stack).layers)
    if question.layer >= layers:
        raise InputError(f"no layer {question.layer} in the {stack}: it has {layers}, from 0")
    attention = attention_of(model, stack, question.layer, cross=question.kind == "cross")
    return attention.out.weight.detach().numpy()


def _looked(bundle: Any, engine: Any, question: Question) -> Trace:
    from pellucid.decoding.options import DecodingOptions
    from pellucid.inspection.tracing import HeadOff, look_inside

    return look_inside(
        engine.model,
        bundle.tokenizer,
        engine.special,
        question.text,
        question.direction,
        DecodingOptions(**question.options),
        prefix=question.prefix,
        without=question.without,
        off=[HeadOff(*switch) for switch in question.off],
    )
