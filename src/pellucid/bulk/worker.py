"""What a worker does: one part at a time, with one translator that it has loaded."""

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
from pellucid.bulk.parts import Part
from pellucid.bulk.places import Location
from pellucid.bulk.rows import Failure, Made, open_rows
from pellucid.errors import PellucidError
from pellucid.translator.translation_report import TranslationReport
from pellucid.translator.translator import Translator

TRIES = 4
"""Workers that may die over a part before its rows are tried one at a time."""


class Worker:
    """Translates parts of a job and writes what comes of them."""

    def __init__(self, job: Job, translator: Translator) -> None:
        if job.version != pellucid.__version__:
            raise PellucidError(
                f"{platform.node()} has Pellucid {pellucid.__version__}, and the job was begun "
                f"by {job.version}: install the same everywhere"
            )
        job.check_seen()
        self.job, self.translator = job, translator

    def work(self, part: Part) -> dict[str, Any]:
        """Translate a part, unless it is done; what is recorded of it."""
        folder, options = self.job.parts_of(part.file), self.job.options
        record_place = folder.child(f"{part.name}.json")
        if record_place.exists():  # by a worker that died before it could say so
            return dict(json.loads(record_place.read()))
        tries = _count_try(folder, part)
        clock, processor = time.perf_counter(), time.process_time()
        rows = open_rows(part, options.column, options.into)
        report = TranslationReport()
        if tries < TRIES:
            made = translated(self.translator, rows.texts, self._settings(), report, part.window)
        else:
            made = self._carefully(folder, part, rows.texts, report)
        failures: Counter[str] = Counter()
        side = []
        for row, outcome in enumerate(made):
            if isinstance(outcome, Failure):
                failures[outcome.kind] += 1
                about = {"row": part.first + row + 1, **outcome._asdict(), "data": rows.shown(row)}
                side.append(json.dumps(about, default=str) + "\n")
        folder.child(f"{part.name}.part").write(rows.rebuilt(made))
        if side:
            folder.child(f"{part.name}.failed").write("".join(side).encode())
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
            "seconds": round(time.perf_counter() - clock, 3),
            "processor_seconds": round(time.process_time() - processor, 3),
            "failures": dict(failures),
        }
        record_place.write(json.dumps(record).encode())
        return record

    def _settings(self) -> dict[str, Any]:
        options = self.job.options
        return {"source": options.source, "target": options.target, "beam": options.beam_size}

    def _carefully(
        self, folder: Location, part: Part, texts: Sequence[Made], report: TranslationReport
    ) -> list[Made]:
        """One row at a time, after workers died over the part: the row that kills them is noted.

        Before each row its number is written down, so the next worker knows over which the last
        one died.
        """
        place = folder.child(f"{part.name}.row")
        noted = json.loads(place.read()) if place.exists() else {"now": None, "deadly": []}
        deadly = {*noted["deadly"], noted["now"]} - {None}
        made: list[Made] = []
        for row, text in enumerate(texts):
            if row in deadly:
                made.append(Failure("crash", "a worker died each time it was to translate this"))
                continue
            if isinstance(text, str):
                place.write(json.dumps({"now": row, "deadly": sorted(deadly)}).encode())
            made += translated(self.translator, [text], self._settings(), report)
        return made


def _count_try(folder: Location, part: Part) -> int:
    """How many have tried this part before; one more from now on."""
    tries = 0
    while folder.child(f"{part.name}.try{tries}").exists():
        tries += 1
    who = {"machine": platform.node(), "process": os.getpid()}
    folder.child(f"{part.name}.try{tries}").write(json.dumps(who).encode())
    return tries


def translated(
    translator: Translator,
    texts: Sequence[Made],
    settings: dict[str, Any],
    report: TranslationReport,
    window: int | None = None,
) -> list[Made]:
    """What becomes of each text; failures stay what they are, and so does None.

    If they cannot be translated together, each is tried alone, to find which it is.
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
) -> list[Made]:
    counted = TranslationReport()
    try:
        made: list[Made] = list(together(texts, counted))
    except Exception as error:
        if len(texts) == 1:
            reason = " ".join(str(error).split())[:300]
            return [Failure("not translated", f"{type(error).__name__}: {reason}")]
        return [one for text in texts for one in _or_one_by_one(together, [text], report)]
    report.include(counted)
    return made
