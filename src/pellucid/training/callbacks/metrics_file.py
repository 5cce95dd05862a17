"""metrics.jsonl: the measurements of a run, one JSON object per line, in the order of the steps.

    {"kind": "run", ...}     once, first: parameters, data, machine and versions
    {"kind": "step", ...}    loss, learning_rate, grad_norm, tokens ... of a step
    {"kind": "valid", ...}   a validation, with its samples
    {"kind": "end", ...}     last: how the run ended

The file is append-only, except when a run is resumed: then the lines after the resumed step are
removed, so that the file equals that of an uninterrupted run. Only the keys in `CLOCK`, which
depend on the clock, differ.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from pellucid.console.machine import this_machine
from pellucid.errors import PellucidError
from pellucid.storage.files import open_atomic
from pellucid.training.callbacks.callback import Callback, StepReport, ValidationReport

METRICS = "metrics.jsonl"

CLOCK = frozenset({"time", "seconds", "waited", "elapsed", "tokens_per_second", "mfu", "machine"})
"""Keys whose values differ between two runs with the same recipe and seed."""


class MetricsFile(Callback):
    """Callback that writes metrics.jsonl."""

    def __init__(self, run_folder: Path) -> None:
        self.path = run_folder / METRICS
        self._file: TextIO | None = None
        self._elapsed = 0.0
        self._written = {"step": 0, "valid": 0}

    def on_start(
        self,
        recipe: Any,
        model_parameters: int,
        prepared_report: Mapping[str, Any],
        resumed_from: int | None,
    ) -> None:
        """Start the file, or remove the lines after the step that the run resumes from."""
        kept = _lines_until(self.path, resumed_from) if resumed_from is not None else []
        for line in kept:
            self._elapsed = max(self._elapsed, line.get("elapsed") or 0.0)
            if line["kind"] in self._written:
                self._written[line["kind"]] = line["step"]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _rewrite(self.path, kept)
            self._file = self.path.open("a", encoding="utf-8")
        except OSError as error:
            raise PellucidError(f"cannot write {self.path}: {error.strerror}") from error
        if not kept:
            self._add(
                "run",
                title=getattr(recipe, "title", ""),
                parameters=model_parameters,
                data={name: _counts(report) for name, report in prepared_report.items()},
                machine=this_machine(),
            )

    def on_step(self, report: StepReport) -> None:
        """Write the line of a step."""
        self._elapsed += report.seconds
        if report.step > self._written["step"]:
            self._written["step"] = report.step
            values = asdict(report)
            del values["total_steps"]  # a resumed run may be longer
            self._add(
                "step",
                **values,
                elapsed=self._elapsed,
                tokens_per_second=report.tokens_per_second,
            )

    def on_validation(self, report: ValidationReport) -> None:
        """Write the line of a validation."""
        self._elapsed += report.seconds
        if report.step > self._written["valid"]:
            self._written["valid"] = report.step
            self._add("valid", **asdict(report), elapsed=self._elapsed)

    def on_save(self, path: Path) -> None:
        """Sync the file to disk, so that it covers every checkpoint."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """Write the last line and close the file."""
        if self._file is not None:
            self._add(
                "end", step=self._written["step"], elapsed=self._elapsed, summary=dict(summary)
            )
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None

    def _add(self, kind: str, **values: Any) -> None:
        if self._file is None:
            return
        line = {"kind": kind, **values, "time": round(time.time(), 3)}
        try:
            self._file.write(_as_line(line))
            self._file.flush()
        except OSError as error:
            raise PellucidError(f"cannot write {self.path}: {error.strerror}") from error


def read_metrics(run_folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a run; an incomplete last line is left out."""
    path = run_folder / METRICS
    try:
        with path.open("rb") as file:
            for raw in file:
                if not raw.endswith(b"\n"):
                    return
                try:
                    line = json.loads(raw)
                except ValueError:
                    return
                if not isinstance(line, dict) or not isinstance(line.get("kind"), str):
                    return
                if line["kind"] != "run" and not isinstance(line.get("step"), int):
                    return
                yield line
    except FileNotFoundError:
        return
    except OSError as error:
        raise PellucidError(f"cannot read {path}: {error.strerror}") from error


def _lines_until(path: Path, resumed_from: int) -> list[dict[str, Any]]:
    lines = read_metrics(path.parent)
    return [
        line
        for line in lines
        if line["kind"] == "run"
        or (line["kind"] in ("step", "valid") and line["step"] <= resumed_from)
    ]


def _rewrite(path: Path, lines: list[dict[str, Any]]) -> None:
    """Replace the file as a whole by these lines."""
    with open_atomic(path) as stream:
        stream.writelines(_as_line(line).encode() for line in lines)


def _as_line(values: Mapping[str, Any]) -> str:
    return json.dumps(_finite(values), ensure_ascii=True, allow_nan=False, default=str) + "\n"


def _finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON lacks, by null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _counts(report: Any) -> Any:
    """Return a split's cleaning report without its example sentences."""
    if isinstance(report, Mapping):
        return {key: value for key, value in report.items() if key != "examples"}
    return report
