"""How soon things start: a new process each time, taking turns.

    python -m benchmarks startup [--model NAME|DIR] [--rounds 9]

`pellucid translate` of one word against importing CTranslate2 and SentencePiece, the least that any
program around them must do, and against importing what Hugging Face's `generate` needs. Processor
time, which a busy machine disturbs less, stands beside the time on the clock.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

LEAST = "import ctranslate2, sentencepiece"


def main(arguments: Sequence[str] = ()) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks startup")
    parser.add_argument("--model")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args(arguments)
    python = [sys.executable]
    model = ["--model", options.model] if options.model else []
    contestants = {
        LEAST: [*python, "-c", LEAST],
        "pellucid --version": [*python, "-m", "pellucid", "--version"],
        "import pellucid": [*python, "-c", "import pellucid"],
        'pellucid translate "bonjour"': [*python, "-m", "pellucid", "translate", *model, "bonjour"],
        "from transformers import MarianMTModel": [
            *python, "-c", "from transformers import MarianMTModel, MarianTokenizer",
        ],
    }  # fmt: skip
    # An installed package has its compiled files; let the first round write them.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    clock: dict[str, list[float]] = {name: [] for name in contestants}
    work: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(-1, options.rounds):  # the first warms the disk's cache
        for name, command in contestants.items():
            before, start = os.times(), time.perf_counter()
            run = subprocess.run(command, capture_output=True, env=environment, text=True)
            if run.returncode:
                sys.exit(f"benchmarks: {' '.join(command)} failed: {run.stderr.strip()[-300:]}")
            after = os.times()
            if number >= 0:
                clock[name].append(time.perf_counter() - start)
                work[name].append(
                    after.children_user + after.children_system
                    - before.children_user - before.children_system
                )  # fmt: skip
    rows, figures = [], {}
    for name in contestants:
        pairs = zip(clock[name], clock[LEAST], strict=True)
        figures[name] = {
            "clock": statistics.median(clock[name]),
            "processor": statistics.median(work[name]),
            "times_least_by_clock": statistics.median(a / b for a, b in pairs),
            "times_least_by_processor": min(work[name]) / min(work[LEAST]),
        }
        one = figures[name]
        rows.append([
            f"`{name}`", f"{one['clock']:.2f} s", f"{one['processor']:.2f} s",
            f"{one['times_least_by_processor']:.2f}x",
        ])  # fmt: skip
        print("  ".join(rows[-1]), flush=True)
    return {
        "title": "Start-up",
        "table": {
            "columns": ["", "on the clock", "of the processor", "against the first"],
            "rows": rows,
        },
        "note": f"new processes, {options.rounds} rounds, medians; the last column by processor "
        "time, the least of the rounds.",
        "figures": figures,
    }
