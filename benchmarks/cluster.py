"""Bulk translation on Ray against plain `pellucid translate`, and 2 workers against 1.

    python -m benchmarks.cluster [--sentences 100000] [--rounds 1] [--model DIR]

The same sentences in one file, the same model (the installed one, or one with random weights), on
the same cores, taking turns: "plain" reads lines from standard input; "one process" is --input
without a cluster; "N workers" is --cluster local with one core each. Of each the time on the clock
with all that it takes to start, and the processor time of the process and all its descendants,
which other work on the machine does not add to. All must write the same bytes.

What a job takes before its first row (Ray, its workers, the model) is measured with a job of one
row. From that and the time of one worker the model of docs/scale.md predicts the others;
`benchmarks/scale.py` carries it to many machines.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import scale

ENDS = 6.0  # the bias of the end symbol that gives outputs of some 17 tokens


def sentences(count: int, seed: int) -> list[str]:
    """Made-up sentences of 4 to 30 words, of which some are frequent and most are rare."""
    draw = random.Random(1)
    words = ["".join(draw.choices("aeioubcdlmnprst", k=draw.randint(2, 8))) for _ in range(9000)]
    weights = [1 / rank for rank in range(1, 9001)]
    draw = random.Random(seed)
    lengths = [min(30, max(4, round(draw.gauss(14, 6)))) for _ in range(count)]
    return [" ".join(draw.choices(words, weights, k=n)).capitalize() + "." for n in lengths]


def random_model(folder: Path) -> None:
    """A small model with random weights, whose outputs end after some tokens."""
    import torch

    from pellucid.bundle import Bundle
    from pellucid.config import ModelConfig, TokenizerConfig
    from pellucid.decoding.ct2_bundle import add_ct2
    from pellucid.model import Transformer
    from pellucid.text.tokenizer import Tokenizer

    words = Tokenizer.train(sentences(9000, 2), TokenizerConfig(vocab_size=8000), ("fr", "en"))
    torch.manual_seed(0)
    model = Transformer(ModelConfig.preset("small", vocab_size=words.vocab_size, output_bias=True))
    with torch.no_grad():
        model.output.bias[:6] = -40.0
        model.output.bias[words.eos_id] = ENDS
    add_ct2(
        Bundle.write(
            folder, model.config, model.state_dict(), words, directions=("fr-en",), about={}
        )
    )


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


def measure(model: str, source: Path, place: Path, number: int) -> dict[str, dict[str, Any]]:
    """Each way once, in an order that turns."""
    cores = len(os.sched_getaffinity(0))
    bulk = ["--model", model, "--input", str(source), "--json", "-o"]
    ways: dict[str, list[str]] = {
        "plain": ["--model", model],
        "one process": [*bulk, str(place / "bulk")],
        f"{cores} workers": [*bulk, str(place / "many"), "--cluster", "local"],
        "1 worker": [*bulk, str(place / "one"), "--cluster", "local", "--workers", "1"],
    }
    names = list(ways)
    turn = number % len(names)
    found = {}
    for name in names[turn:] + names[:turn]:
        plain = name == "plain"
        found[name] = timed(
            ways[name], source if plain else None, place / "plain.txt" if plain else None
        )
        print(
            f"{name}: {found[name]['clock']:.1f} s, {found[name]['processor']:.1f} s of processor"
        )
    outputs = {(place / d / source.name).read_bytes() for d in ("bulk", "many", "one")}
    if outputs != {(place / "plain.txt").read_bytes()}:
        raise SystemExit("benchmarks: the outputs differ")
    return {name: found[name] for name in names}


def main(count: int = 100_000, rounds: int = 1, model: str | None = None) -> dict[str, object]:
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as workspace:
        root = Path(workspace)
        if model is None:
            from pellucid.translator.loading import installed

            model = next((str(one.folder) for one in installed() if not one.trouble), None)
        if model is None:
            model = str(root / "model")
            random_model(Path(model))
        source, one_row = root / "all.txt", root / "one.txt"
        source.write_text("".join(f"{sentence}\n" for sentence in sentences(count, 3)))
        one_row.write_text("Le phare.\n")
        found, starts = [], []
        for number in range(rounds):
            (place := root / f"round{number}").mkdir()
            found.append(measure(model, source, place, number))
            start = ["--model", model, "--input", str(one_row), "--json", "-o", str(place / "s")]
            starts.append(timed([*start, "--cluster", "local"]))
        figures = summary(found, starts, cores, count)
        print(json.dumps(figures, indent=1))
        return {
            "sentences": count,
            "rounds": found,
            "figures": figures,
            **scale.main(model, figures),
        }


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
    part = 4096 / count * (one - start)  # the last worker is alone for half a part or so
    predicted = start + (one - start) / cores + part / 2
    return {
        "cores": cores,
        f"{many} against 1, clock": ratio("clock", "1 worker", many),
        f"{many} over plain, clock": ratio("clock", many, "plain"),
        f"{many} over plain, processor": ratio("processor", many, "plain"),
        "one process over plain, processor": ratio("processor", "one process", "plain"),
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sentences", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--model")
    arguments = parser.parse_args()
    main(arguments.sentences, arguments.rounds, arguments.model)
