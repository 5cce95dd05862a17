"""metrics.jsonl: what was measured, a JSON object a line, in the order of the steps.

    {"kind": "run", ...}     once, first: parameters, data, machine and versions
    {"kind": "step", ...}    loss, rate, tokens ... of a step
    {"kind": "valid", ...}   a validation, with its samples
    {"kind": "end", ...}     last: how the run ended

The file is only ever appended to, except when a run is resumed: then what came after the resumed
step is cut off, so that the file tells the same story as if nothing had happened. What depends on
the clock is named in `CLOCK`; all the rest is equal, resumed or not.
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

from pellucid.errors import PellucidError
from pellucid.training.callbacks.callback import StepReport, ValidationReport

METRICS = "metrics.jsonl"

CLOCK = frozenset(
    {"time", "seconds", "waited", "elapsed", "tokens_per_second", "flops_share", "machine"}
)
"""Keys that differ from one run to the next although the recipe and the seed are the same."""


class Metrics:
    """A watcher that keeps metrics.jsonl."""

    def __init__(self, run_folder: Path) -> None:
        self.path = run_folder / METRICS
        self._file: TextIO | None = None
        self._elapsed = 0.0
        self._seen = {"step": 0, "valid": 0}

    def started(
        self,
        recipe: Any,
        model_parameters: int,
        prepared_report: Mapping[str, Any],
        resumed_from: int | None,
    ) -> None:
        """Begin the file, or cut it off after the step that the run goes on from."""
        kept = _kept(self.path, resumed_from) if resumed_from is not None else []
        for line in kept:
            self._elapsed = max(self._elapsed, line.get("elapsed") or 0.0)
            if line["kind"] in self._seen:
                self._seen[line["kind"]] = line["step"]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _replace(self.path, kept)
            self._file = self.path.open("a", encoding="utf-8")
        except OSError as error:
            raise PellucidError(f"cannot write {self.path}: {error.strerror}") from error
        if not kept:
            from pellucid.training.plan.hardware import this_machine

            self._add(
                "run",
                title=getattr(recipe, "title", ""),
                parameters=model_parameters,
                data={name: _counts(report) for name, report in prepared_report.items()},
                machine=this_machine(),
            )

    def stepped(self, report: StepReport) -> None:
        """Add a line for a step."""
        self._elapsed += report.seconds
        if report.step > self._seen["step"]:
            self._seen["step"] = report.step
            values = asdict(report)
            del values["total_steps"]  # a resumed run may be longer
            self._add(
                "step",
                **values,
                elapsed=self._elapsed,
                tokens_per_second=report.tokens_per_second,
            )

    def validated(self, report: ValidationReport) -> None:
        """Add a line for a validation."""
        self._elapsed += report.seconds
        if report.step > self._seen["valid"]:
            self._seen["valid"] = report.step
            self._add("valid", **asdict(report), elapsed=self._elapsed)

    def saved(self, path: Path) -> None:
        """Make sure that what was measured up to a checkpoint is on the disk too."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def said(self, line: str) -> None:
        """Words are not measured."""

    def finished(self, summary: Mapping[str, Any]) -> None:
        """Add the last line and close the file."""
        if self._file is not None:
            self._add("end", step=self._seen["step"], elapsed=self._elapsed, summary=dict(summary))
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
    """The lines of a run, one after another; a half-written one at the end is left out."""
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


def _kept(path: Path, resumed_from: int) -> list[dict[str, Any]]:
    lines = read_metrics(path.parent)
    return [
        line
        for line in lines
        if line["kind"] == "run"
        or (line["kind"] in ("step", "valid") and line["step"] <= resumed_from)
    ]


def _replace(path: Path, lines: list[dict[str, Any]]) -> None:
    """Write the file anew beside itself, and rename it into its place."""
    draft = path.with_name(f".{path.name}.writing")
    with draft.open("w", encoding="utf-8") as file:
        file.writelines(_as_line(line) for line in lines)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


def _as_line(values: Mapping[str, Any]) -> str:
    return json.dumps(_finite(values), ensure_ascii=True, allow_nan=False, default=str) + "\n"


def _finite(value: Any) -> Any:
    """The value with null for what JSON has no number for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _counts(report: Any) -> Any:
    """A split's cleaning report without its example sentences."""
    if isinstance(report, Mapping):
        return {key: value for key, value in report.items() if key != "examples"}
    return report
