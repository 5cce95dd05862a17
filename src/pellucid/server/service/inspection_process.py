"""Looking inside, in a process of its own.

A separate process keeps PyTorch away from CTranslate2, which is slower beside it; it can be killed
when a trace takes too long, and its memory goes with it. It starts, and imports PyTorch, with the
first question.
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

MAX_TRACES, TRACE_MINUTES = 16, 15
"""How many traces are kept for the page to fetch their tensors, and for how long."""


class UnavailableError(PellucidError):
    """Looking inside is not available."""


@dataclass(frozen=True)
class TraceQuestion:
    """Trace one sentence."""

    text: str
    direction: str
    options: dict[str, Any] = field(default_factory=dict)
    prefix: tuple[int, ...] = ()
    without: tuple[int, ...] = ()
    off: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True)
class MasksQuestion:
    """Read some sentences as one batch and return the masks."""

    texts: tuple[str, ...]
    direction: str


@dataclass(frozen=True)
class PositionsQuestion:
    """Compute a table of sinusoidal position encodings."""

    length: int
    width: int
    layout: Literal["interleaved", "halves"]


@dataclass(frozen=True)
class OutputProjectionQuestion:
    """Return the output projection W_O of one attention."""

    kind: str
    layer: int


Question = TraceQuestion | MasksQuestion | PositionsQuestion | OutputProjectionQuestion


class InspectionProcess:
    """The process that looks inside one model, and the traces that it has made.

    timeout: seconds for one question.
    """

    def __init__(self, folder: Path, *, timeout: float = 30.0) -> None:
        self.folder, self.timeout = folder, timeout
        self._traces: OrderedDict[str, tuple[float, Trace]] = OrderedDict()
        self._lock = threading.Lock()
        self._process_lock = threading.Lock()
        self._process: Any = None
        self._connection: Connection | None = None

    @property
    def obstacle(self) -> str | None:
        """Return why looking inside is not available, or None."""
        if find_spec("torch") is None:
            return "Looking inside needs PyTorch: pip install 'pellucid[train]', then start again."
        return None

    def trace(self, question: TraceQuestion) -> tuple[str, Trace]:
        """Make a trace; return its id and the trace."""
        made = self.answer(question)
        trace_id = token_urlsafe(9)
        with self._lock:
            self._expire()
            self._traces[trace_id] = (time.monotonic(), made)
            while len(self._traces) > MAX_TRACES:
                self._traces.popitem(last=False)
        return trace_id, made

    def answer(self, question: Question) -> Any:
        """Let the process answer a question; it gets one at a time."""
        if self.obstacle is not None:
            raise UnavailableError(self.obstacle)
        with self._process_lock:
            answer = self._ask(question)
        if isinstance(answer, PellucidError):
            raise answer
        return answer

    def get(self, trace_id: str) -> Trace | None:
        """Return a trace by its id, or None once it has expired."""
        with self._lock:
            self._expire()
            found = self._traces.get(trace_id)
            return None if found is None else found[1]

    def close(self) -> None:
        """Kill the process, whatever it is doing."""
        if (process := self._process) is not None:
            process.kill()
        with self._process_lock:
            self._stop()

    def _expire(self) -> None:
        oldest = time.monotonic() - 60 * TRACE_MINUTES
        while self._traces and next(iter(self._traces.values()))[0] < oldest:
            self._traces.popitem(last=False)

    def _ask(self, question: Question) -> Any:
        if self._process is None or not self._process.is_alive():
            self._start()
        assert self._connection is not None
        try:
            self._connection.send(question)
            if not self._connection.poll(self.timeout):
                self._stop()
                raise InputError(
                    f"looking inside took more than {self.timeout:.0f} seconds and was stopped: "
                    "try a shorter sentence"
                )
            return self._connection.recv()
        except (EOFError, OSError):
            self._stop()
            raise PellucidError("looking inside failed: its process ended; try again") from None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, str(self.folder)), daemon=True)
        process.start()
        theirs.close()
        self._process, self._connection = process, ours
        if not ours.poll(120) or ours.recv() != "ready":
            self._stop()
            raise PellucidError("looking inside failed: its process did not start")

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None


def _serve(connection: Connection, folder: str) -> None:
    """Load the model once, then answer questions: what the process runs."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server stops this process
    from pellucid.bundle import Bundle
    from pellucid.decoding.engine_selection import open_torch

    bundle = Bundle.open(Path(folder), lazily=True)
    engine = open_torch(bundle)
    connection.send("ready")
    while True:
        try:
            question = connection.recv()
        except EOFError:
            return
        try:
            connection.send(_answer(bundle, engine, question))
        except PellucidError as error:
            connection.send(type(error)(str(error)))


def _answer(bundle: Any, engine: Any, question: Question) -> Any:
    if isinstance(question, TraceQuestion):
        return _trace(bundle, engine, question)
    if isinstance(question, PositionsQuestion):
        from pellucid.model.positions import sinusoidal_table

        return sinusoidal_table(question.length, question.width, layout=question.layout).numpy()
    if isinstance(question, OutputProjectionQuestion):
        return _output_projection(engine.model, question)
    from pellucid.inspection.padding_masks import look_at_masks

    return look_at_masks(
        engine.model, bundle.tokenizer, engine.special, question.texts, question.direction
    )


def _output_projection(model: Any, question: OutputProjectionQuestion) -> Any:
    from pellucid.inspection.derived import attention_of

    stack = "encoder" if question.kind == "encoder" else "decoder"
    layers = len(getattr(model, stack).layers)
    if question.layer >= layers:
        raise InputError(f"no layer {question.layer} in the {stack}: it has {layers}, from 0")
    attention = attention_of(model, stack, question.layer, cross=question.kind == "cross")
    return attention.out.weight.detach().numpy()


def _trace(bundle: Any, engine: Any, question: TraceQuestion) -> Trace:
    from pellucid.decoding.options import DecodingOptions
    from pellucid.inspection.tracing import AblatedHead, look_inside

    return look_inside(
        engine.model,
        bundle.tokenizer,
        engine.special,
        question.text,
        question.direction,
        DecodingOptions(**question.options),
        prefix=question.prefix,
        without=question.without,
        off=[AblatedHead(*switch) for switch in question.off],
    )
