"""Bulk translation on Ray against plain `pellucid translate`, and 2 workers against 1.

    python -m benchmarks cluster [--sentences 100000] [--rounds 1] [--beam-size 4] [--model DIR]
        [--short]

The same sentences in one file (those of recipes/toy, drawn at random), the same model (the one that
comes with Pellucid, unless named), on the same cores, taking turns: "plain" reads lines from
standard input; "one process" is --input without a cluster; "N workers" is --cluster local with one
core each; --short leaves out "one process". Of each the time on the clock with all that it takes to
start, and the processor time of the process and all its descendants, which other work on the
machine does not add to. All must write the same bytes.

What a job takes before its first row (Ray, its workers, the model) is measured with a job of one
row. From that and the time of one worker the model of docs/scale.md predicts the others;
`benchmarks/scale.py` carries it to many machines.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import scale
from benchmarks.translate import sentences
from pellucid.bulk.parts import PART_ROWS
from pellucid.decoding import DecodingOptions
from pellucid.translator.loading import open_bundle


def processor_times(root: int) -> dict[int, float]:
    """Processor seconds of a process and of each of its living descendants."""
    tick = os.sysconf("SC_CLK_TCK")
    parents, used = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat[1])
            used[int(entry.name)] = (int(stat[11]) + int(stat[12])) / tick
    family = {root}
    while more := {child for child, p in parents.items() if p in family} - family:
        family |= more
    return {process: used[process] for process in family if process in used}


def timed(
    command: list[str], source: Path | None = None, out: Path | None = None
) -> dict[str, Any]:
    """Seconds on the clock and of all processors, and what the command told as JSON."""
    start, used = time.perf_counter(), {}
    with tempfile.TemporaryFile() as told:
        process = subprocess.Popen(
            [sys.executable, "-m", "pellucid", "translate", *command],
            stdin=source.open("rb") if source else None,
            stdout=out.open("wb") if out else told,
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None:
            used.update(processor_times(process.pid))
            time.sleep(0.2)
        clock = time.perf_counter() - start
        if process.returncode:
            raise SystemExit(f"benchmarks: pellucid translate {' '.join(command)} failed")
        told.seek(0)
        text = told.read()
    return {
        "clock": clock,
        "processor": sum(used.values()),
        "told": json.loads(text) if text else None,
    }


def measure(
    how: list[str], source: Path, place: Path, number: int, short: bool
) -> dict[str, dict[str, Any]]:
    """Each way once, in an order that turns."""
    cores = len(os.sched_getaffinity(0))
    bulk = [*how, "--input", str(source), "--json", "-o"]
    ways: dict[str, list[str]] = {
        "plain": how,
        "one process": [*bulk, str(place / "bulk")],
        f"{cores} workers": [*bulk, str(place / "many"), "--cluster", "local"],
        "1 worker": [*bulk, str(place / "one"), "--cluster", "local", "--workers", "1"],
    }
    names = [name for name in ways if not (short and name == "one process")]
    turn = number % len(names)
    found = {}
    for name in names[turn:] + names[:turn]:
        plain = name == "plain"
        found[name] = timed(
            ways[name], source if plain else None, place / "plain.txt" if plain else None
        )
        print(
            f"{name}: {found[name]['clock']:.1f} s, {found[name]['processor']:.1f} s of processor",
            flush=True,
        )
    folders = [place / folder for folder in ("bulk", "many", "one")]
    outputs = {(f / source.name).read_bytes() for f in folders if f.is_dir()}
    if outputs != {(place / "plain.txt").read_bytes()}:
        raise SystemExit("benchmarks: the outputs differ")
    return {name: found[name] for name in names}


def main(arguments: Sequence[str] = ()) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks cluster")
    parser.add_argument("--sentences", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--beam-size", type=int, default=DecodingOptions().beam_size)
    parser.add_argument("--model")
    parser.add_argument("--short", action="store_true")
    options = parser.parse_args(arguments)
    count, cores = options.sentences, len(os.sched_getaffinity(0))
    bundle = open_bundle(options.model)
    lines = sentences(bundle.default_direction.split("-")[0], count)
    with tempfile.TemporaryDirectory() as workspace:
        root = Path(workspace)
        source, one_row = root / "all.txt", root / "one.txt"
        source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        one_row.write_text(f"{lines[0]}\n", encoding="utf-8")
        how = ["--model", str(bundle.folder), "--beam-size", str(options.beam_size)]
        found, starts = [], []
        for number in range(options.rounds):
            (place := root / f"round{number}").mkdir()
            found.append(measure(how, source, place, number, options.short))
            start = [*how, "--input", str(one_row), "--json", "-o", str(place / "s")]
            starts.append(timed([*start, "--cluster", "local"]))
    figures = {"beam": options.beam_size, **summary(found, starts, cores, count)}
    print(json.dumps(figures, indent=1))
    return {
        "title": "Bulk translation on Ray",
        "table": _table(found, figures, cores),
        "note": f"{count:,} short sentences, the model {bundle.folder.name}, "
        f"beam {options.beam_size}, int8; everything from the start of the command to its "
        "end; all wrote the same bytes.",
        "goals": {
            "2 workers at least 1.7 times as fast as 1": figures.get("2 workers against 1, clock"),
            "the engine costs at most 1.10 times plain": figures.get("2 workers over plain, clock"),
        },
        "rounds": found,
        "figures": figures,
        **scale.main(str(bundle.folder), figures),
    }


def _table(found: list[dict[str, Any]], figures: dict[str, Any], cores: int) -> dict[str, Any]:
    def seconds(name: str, what: str) -> str:
        return f"{statistics.median(one[name][what] for one in found):.0f} s"

    rows = [[name, seconds(name, "clock"), seconds(name, "processor")] for name in found[0]]
    many = f"{cores} workers"
    against = figures[f"{many} against 1, clock"], figures[f"{many} over plain, clock"]
    rows.append([f"{many}: times as fast as 1", f"{against[0]:.2f}x", ""])
    rows.append([f"{many}: time over plain", f"{against[1]:.2f}x",
                 f"{figures[f'{many} over plain, processor']:.2f}x"])  # fmt: skip
    return {"columns": ["", "on the clock", "of the processors"], "rows": rows}


def summary(
    found: list[dict[str, Any]], starts: list[dict[str, Any]], cores: int, count: int
) -> dict[str, Any]:
    """Medians over the rounds of the rounds' own ratios, and what the model predicts."""
    many = f"{cores} workers"

    def ratio(what: str, a: str, b: str) -> float:
        return statistics.median(r[a][what] / r[b][what] for r in found)

    start = statistics.median(one["clock"] for one in starts)
    one = statistics.median(r["1 worker"]["clock"] for r in found)
    told = found[0]["1 worker"]["told"]
    part = PART_ROWS / count * (one - start)  # the last worker is alone for half a part or so
    predicted = start + (one - start) / cores + part / 2
    return {
        "cores": cores,
        f"{many} against 1, clock": ratio("clock", "1 worker", many),
        f"{many} over plain, clock": ratio("clock", many, "plain"),
        f"{many} over plain, processor": ratio("processor", many, "plain"),
        **(
            {"one process over plain, processor": ratio("processor", "one process", "plain")}
            if "one process" in found[0]
            else {}
        ),
        "start, seconds": start,
        "processor seconds a sentence, plain": statistics.median(
            r["plain"]["processor"] / count for r in found
        ),
        "processor seconds a sentence, worker": statistics.median(
            r["1 worker"]["told"]["processor_seconds"] / count for r in found
        ),
        "share of a worker's time that is work": statistics.median(
            r[many]["told"]["seconds"] / cores / r[many]["told"]["this_run"]["seconds"]
            for r in found
        ),
        f"{many}, predicted seconds": predicted,
        f"{many}, measured seconds": statistics.median(r[many]["clock"] for r in found),
        "source tokens a sentence": told["source_tokens"] / count,
        "output tokens a sentence": told["tokens"] / count,
    }
