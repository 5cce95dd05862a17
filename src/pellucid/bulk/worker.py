"""A worker: translates one part at a time with one loaded translator."""

from __future__ import annotations

import json
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pellucid
from pellucid.bulk.job import Job
from pellucid.bulk.locations import Location
from pellucid.bulk.parts import Part
from pellucid.bulk.rows import Outcome, RowFailure, open_rows
from pellucid.errors import PellucidError
from pellucid.translator.translation_report import TranslationReport
from pellucid.translator.translator import Translator

TRIES = 4
"""Number of workers that may die over a part before its rows are tried one at a time."""


class Worker:
    """Translates parts of a job and writes the results."""

    def __init__(self, job: Job, translator: Translator) -> None:
        if job.version != pellucid.__version__:
            raise PellucidError(
                f"{platform.node()} has Pellucid {pellucid.__version__}, and the job was begun "
                f"by {job.version}: install the same everywhere"
            )
        job.check_shared()
        self.job, self.translator = job, translator

    def work(self, part: Part) -> dict[str, Any]:
        """Translate a part, unless it is finished; return its record."""
        folder, options = self.job.parts_of(part.file), self.job.options
        record_file = folder.child(f"{part.name}.json")
        if record_file.exists():  # of a worker that died before it could answer
            return dict(json.loads(record_file.read()))
        tries = _count_try(folder, part)
        began, cpu_began = time.perf_counter(), time.process_time()
        rows = open_rows(part, options.column, options.into)
        report = TranslationReport()
        if tries < TRIES:
            made = translated(self.translator, rows.texts, self._settings(), report, part.window)
        else:
            made = self._row_by_row(folder, part, rows.texts, report)
        failures: Counter[str] = Counter()
        failed_rows = []
        for row, outcome in enumerate(made):
            if isinstance(outcome, RowFailure):
                failures[outcome.kind] += 1
                about = {"row": part.first + row + 1, **outcome._asdict(), "data": rows.shown(row)}
                failed_rows.append(json.dumps(about, default=str) + "\n")
        folder.child(f"{part.name}.part").write(rows.rebuilt(made))
        if failed_rows:
            folder.child(f"{part.name}.failed").write("".join(failed_rows).encode())
        record = {
            "file": part.file,
            "number": part.number,
            "rows": len(made),
            "source_tokens": report.source_tokens,
            "tokens": report.tokens,
            "split": report.split,
            "rescued": report.rescued,
            "cut": report.cut,
            "invalid": rows.invalid,
            "again": tries,
            "seconds": round(time.perf_counter() - began, 3),
            "processor_seconds": round(time.process_time() - cpu_began, 3),
            "failures": dict(failures),
        }
        record_file.write(json.dumps(record).encode())
        return record

    def _settings(self) -> dict[str, Any]:
        options = self.job.options
        return {"source": options.source, "target": options.target, "beam_size": options.beam_size}

    def _row_by_row(
        self, folder: Location, part: Part, texts: Sequence[Outcome], report: TranslationReport
    ) -> list[Outcome]:
        """Translate one row at a time, after workers died over the part, to find the fatal row.

        Before each row its number is written to a file, from which the next worker learns which
        row the last one died over.
        """
        note = folder.child(f"{part.name}.row")
        noted = json.loads(note.read()) if note.exists() else {"now": None, "deadly": []}
        fatal = {*noted["deadly"], noted["now"]} - {None}
        made: list[Outcome] = []
        for row, text in enumerate(texts):
            if row in fatal:
                made.append(RowFailure("crash", "a worker died each time it was to translate this"))
                continue
            if isinstance(text, str):
                note.write(json.dumps({"now": row, "deadly": sorted(fatal)}).encode())
            made += translated(self.translator, [text], self._settings(), report)
        return made


def _count_try(folder: Location, part: Part) -> int:
    """Return how many workers have tried this part before, and record one more."""
    tries = 0
    while folder.child(f"{part.name}.try{tries}").exists():
        tries += 1
    who = {"machine": platform.node(), "process": os.getpid()}
    folder.child(f"{part.name}.try{tries}").write(json.dumps(who).encode())
    return tries


def translated(
    translator: Translator,
    texts: Sequence[Outcome],
    settings: dict[str, Any],
    report: TranslationReport,
    window: int | None = None,
) -> list[Outcome]:
    """Translate texts; failures and None stay as they are.

    If they cannot be translated together, each is tried alone, to find the one that fails.
    """
    given = settings if window is None else {**settings, "first_window": window}

    def together(some: list[str], counted: TranslationReport) -> list[str]:
        return list(translator.translate_lines(some, report=counted, **given))

    wanted = [text for text in texts if isinstance(text, str)]
    made = iter(_or_one_by_one(together, wanted, report))
    return [next(made) if isinstance(text, str) else text for text in texts]


def _or_one_by_one(
    together: Callable[[list[str], TranslationReport], list[str]],
    texts: list[str],
    report: TranslationReport,
) -> list[Outcome]:
    counted = TranslationReport()
    try:
        made: list[Outcome] = list(together(texts, counted))
    except Exception as error:
        if len(texts) == 1:
            reason = " ".join(str(error).split())[:300]
            return [RowFailure("not translated", f"{type(error).__name__}: {reason}")]
        return [one for text in texts for one in _or_one_by_one(together, [text], report)]
    report.merge(counted)
    return made
