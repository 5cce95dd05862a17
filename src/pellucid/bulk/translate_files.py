"""`pellucid translate --input`: files in bulk, in this process or on a cluster."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pellucid.bulk.job import Job, JobOptions
from pellucid.bulk.locations import Location
from pellucid.bulk.run_job import JobProgress, Summary, answers_locally, run_job, survey
from pellucid.decoding.engine_selection import EngineName
from pellucid.errors import InputError, PellucidError
from pellucid.translator.directions import choose_direction
from pellucid.translator.loading import load, open_bundle

_PROGRESS_SECONDS = 30.0  # between progress lines where there is no terminal


class JobStoppedError(PellucidError):
    """The user pressed Ctrl-C."""

    exit_code = 130


def translate_files(
    inputs: Sequence[str],
    output: str | None,
    *,
    model: str | None,
    languages: tuple[str | None, str | None],
    beam_size: int,
    engine: EngineName,
    columns: tuple[str, str | None],
    cluster: str | None,
    workers: str | None,
    as_json: bool,
) -> None:
    """Translate files into a folder, continuing where an earlier run stopped.

    languages: source and target. columns: the one to translate, and the one for the translation
    (None: it replaces the text). cluster: "local" or the address of a Ray cluster; None: this
    process.
    """
    if output is None:
        raise InputError("--input needs --output: a folder for the translated files")
    least, most = _worker_range(workers)
    if workers and not cluster:
        raise InputError("--workers needs --cluster: local, or the address of a Ray cluster")
    bundle = open_bundle(model)
    source, target = choose_direction(bundle.settings, *languages)
    column, into = columns
    options = JobOptions(
        bundle.fingerprint, source, target, beam_size, engine, column or "text", into
    )
    job = Job(Location.of(output), options)
    todo, done = survey(job, inputs)
    try:
        with _progress() as report_progress:
            if cluster is None or not todo:
                translator = load(bundle.folder, engine)
                summary = run_job(
                    job, todo, done, answers_locally(job, todo, translator), report_progress
                )
            else:
                from pellucid.bulk import on_ray

                with on_ray.connected(cluster, most) as cores:
                    local = cluster == "local"
                    most = most or cores
                    size = (min(least or (most if local else 1), most), most)
                    answers = on_ray.answers(job, todo, bundle, size, send=not local)
                    summary = run_job(
                        job, todo, done, answers, report_progress, on_ray.assemble_remotely
                    )
    except KeyboardInterrupt:
        raise JobStoppedError(f"stopped; the same command resumes it ({output})") from None
    _print_summary(summary, as_json, output)


def _worker_range(given: str | None) -> tuple[int | None, int | None]:
    """Parse the minimum and maximum: "8" is both, "2:400" is as many as have work."""
    if given is None:
        return None, None
    least, _, most = given.partition(":")
    try:
        bounds = int(least), int(most or least)
    except ValueError:
        bounds = 0, 0
    if not 1 <= bounds[0] <= bounds[1]:
        raise InputError(f"--workers {given}: give a number, or a minimum and maximum: 2:400")
    return bounds


@contextmanager
def _progress() -> Iterator[Callable[[JobProgress], None]]:
    """Show the progress: a bar on a terminal, else a line every 30 seconds."""
    if not sys.stderr.isatty():
        start = last = time.monotonic()

        def line(done: JobProgress) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= _PROGRESS_SECONDS:
                last = now
                rate = done.rows / (now - start)
                print(
                    f"pellucid: {done.rows:,} rows, {rate:,.0f} a second; "
                    f"{done.files:,} of {done.of:,} files",
                    file=sys.stderr,
                    flush=True,
                )

        yield line
        return
    from rich.console import Console

    from pellucid.console.progress import Progress

    with Progress(Console(stderr=True)) as progress:
        step = progress.step("translating", "rows")
        shown = 0

        def bar(done: JobProgress) -> None:
            nonlocal shown
            step.advance(done.rows - shown)
            shown = done.rows

        yield bar


def _print_summary(summary: Summary, as_json: bool, output: str) -> None:
    totals = summary.as_dict()
    if as_json:
        print(json.dumps(totals))
        return
    now = totals["this_run"]
    print(
        f"{output}: {totals['rows']:,} rows in {summary.files:,} files "
        f"({summary.finished_before:,} were finished before), {totals['tokens']:,} tokens; "
        f"this run: {now['rows']:,} rows in {now['seconds']:,.1f} s, "
        f"{now['rows_per_second']:,.1f} rows and {now['tokens_per_second']:,.0f} tokens a second",
        file=sys.stderr,
    )
    notes = [
        ("over-long sentences, translated in parts", totals["split"]),
        ("sentences translated around an address, a number or the like", totals["rescued"]),
        ("translations cut at the maximum length", totals["cut"]),
        ("rows with bytes or characters that are not Unicode (now U+FFFD)", totals["invalid"]),
        ("parts restarted after a worker was lost", totals["again"]),
        *((f"not translated, see _failures: {kind}", n) for kind, n in totals["failures"].items()),
    ]
    for what, count in notes:
        if count:
            print(f"pellucid: {what}: {count:,}", file=sys.stderr)
    failed = sum(totals["failures"].values())
    if failed and failed == totals["rows"]:
        raise PellucidError(f"none of the {failed:,} rows could be translated: see _failures")
