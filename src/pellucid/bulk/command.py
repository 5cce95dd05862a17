"""`pellucid translate --input`: files in bulk, in this process or on a cluster."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import cast

from pellucid.bulk.job import Job, Options
from pellucid.bulk.places import Location
from pellucid.bulk.run_job import News, Summary, answers_here, run, survey
from pellucid.decoding.engine_selection import EngineName
from pellucid.errors import InputError, PellucidError
from pellucid.translator.directions import choose_direction
from pellucid.translator.loading import load, open_bundle

_EVERY = 30.0  # seconds between lines where there is no terminal


def run_bulk(
    inputs: Sequence[str],
    output: str | None,
    *,
    cluster: str | None,
    workers: str | None,
    column: str,
    into: str | None,
    source: str | None,
    target: str | None,
    model: str | None,
    beam_size: int,
    engine: str,
    as_json: bool,
) -> None:
    """Translate files into a folder, going on where an earlier run stopped."""
    if output is None:
        raise InputError("--input needs --output: a folder for the translated files")
    if engine not in ("auto", "ct2", "torch"):
        raise InputError(f"unknown engine {engine!r}: choose auto, ct2 or torch")
    least, most = _workers(workers)
    if workers and not cluster:
        raise InputError("--workers needs --cluster: local, or the address of a Ray cluster")
    bundle = open_bundle(model)
    way = choose_direction(bundle.settings, source, target)
    chosen = Options(
        bundle.fingerprint, way.source, way.target, beam_size, engine, column or "text", into
    )
    job = Job(Location.of(output), chosen)
    todo, done = survey(job, inputs)
    try:
        with _shown() as tell:
            if cluster is None or not todo:
                translator = load(bundle.folder, cast(EngineName, engine))
                summary = run(job, todo, done, answers_here(job, todo, translator), tell)
            else:
                from pellucid.bulk import on_ray

                with on_ray.connected(cluster, most) as cores:
                    local = cluster == "local"
                    most = most or cores
                    size = (min(least or (most if local else 1), most), most)
                    said = on_ray.answers(job, todo, bundle, size, send=not local)
                    summary = run(job, todo, done, said, tell, on_ray.assemble_there)
    except KeyboardInterrupt:
        raise StoppedError(f"stopped; the same command goes on from here ({output})") from None
    _tell(summary, as_json, output)


class StoppedError(PellucidError):
    """Somebody pressed Ctrl-C."""

    exit_code = 130


def _workers(given: str | None) -> tuple[int | None, int | None]:
    """The fewest and the most: "8" is as many all the time, "2:400" as many as are of use."""
    if given is None:
        return None, None
    least, _, most = given.partition(":")
    try:
        bounds = int(least), int(most or least)
    except ValueError:
        bounds = 0, 0
    if not 1 <= bounds[0] <= bounds[1]:
        raise InputError(f"--workers {given}: write a number, or the fewest and the most: 2:400")
    return bounds


@contextmanager
def _shown() -> Iterator[Callable[[News], None]]:
    """How far it is: a bar on a terminal, else a line now and then."""
    if not sys.stderr.isatty():
        start = last = time.monotonic()

        def line(news: News) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= _EVERY:
                last = now
                rate = news.rows / (now - start)
                print(
                    f"pellucid: {news.rows:,} rows, {rate:,.0f} a second; "
                    f"{news.files:,} of {news.of:,} files",
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

        def bar(news: News) -> None:
            nonlocal shown
            step.advance(news.rows - shown)
            shown = news.rows

        yield bar


def _tell(summary: Summary, as_json: bool, output: str) -> None:
    told = summary.as_dict()
    if as_json:
        print(json.dumps(told))
        return
    now = told["this_run"]
    print(
        f"{output}: {told['rows']:,} rows in {summary.files:,} files "
        f"({summary.here_before:,} were finished before), {told['tokens']:,} tokens; "
        f"this run: {now['rows']:,} rows in {now['seconds']:,.1f} s, "
        f"{now['rows_per_second']:,.1f} rows and {now['tokens_per_second']:,.0f} tokens a second",
        file=sys.stderr,
    )
    notes = [
        ("over-long sentences, translated in parts", told["split"]),
        ("sentences translated around an address, a number or the like", told["rescued"]),
        ("translations cut at the longest allowed length", told["cut"]),
        ("rows with bytes or characters that are not Unicode (now U+FFFD)", told["invalid"]),
        ("parts begun again after a worker was lost", told["again"]),
        *((f"not translated, see _failures: {kind}", n) for kind, n in told["failures"].items()),
    ]
    for what, count in notes:
        if count:
            print(f"pellucid: {what}: {count:,}", file=sys.stderr)
    failed = sum(told["failures"].values())
    if failed and failed == told["rows"]:
        raise PellucidError(f"none of the {failed:,} rows could be translated: see _failures")
