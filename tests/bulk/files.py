"""Files and jobs for the tests of bulk translation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pellucid.bulk.job import Job, JobOptions
from pellucid.bulk.locations import Location
from pellucid.bulk.messages import Answer
from pellucid.bulk.run_job import Summary, answers_locally, run_job, survey
from pellucid.bundle import Bundle
from pellucid.translator import Translator
from tests.made_up import pairs


def sentences(count: int, seed: int = 3) -> list[str]:
    """Outcome-up French sentences, some of them with what makes lines difficult."""
    made = [french for _, french in pairs(count, seed)]
    for place, odd in enumerate(
        ["", "42", "\u2028 le phare", "une\tcarte\r", "https://a.example/b"]
    ):
        made[(place + 1) * count // 7] = odd
    return made


def write_text(path: Path, texts: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("\n".join(texts).encode())
    return path


def write_json(path: Path, texts: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"id": number, "text": text, "more": [number]} for number, text in enumerate(texts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def job_for(bundle: Bundle, output: str | Path | Location, **changes: Any) -> Job:
    """A job with small parts: windows of 32, 64, 128 lines and so on."""
    options = {"source": "fr", "target": "en", "beam_size": 1, "part_rows": 1, **changes}
    place = output if isinstance(output, Location) else Location.of(str(output))
    return Job(place, JobOptions(bundle.fingerprint, **options))


def first_few(answers: Iterator[Answer], count: int) -> Iterator[Answer]:
    """As if somebody pressed Ctrl-C."""
    for number, answer in enumerate(answers):
        if number == count:
            raise KeyboardInterrupt
        yield answer


def in_one_process(
    job: Job, translator: Translator, *patterns: object, stop: int | None = None
) -> Summary:
    todo, done = survey(job, [str(pattern) for pattern in patterns])
    answers = answers_locally(job, todo, translator)
    said = answers if stop is None else first_few(answers, stop)
    return run_job(job, todo, done, said, lambda _: None)


def contents(folder: Path) -> dict[str, bytes]:
    """The files that a user gets, by name."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "_pellucid" not in path.parts
    }
