"""The most memory that training and translating take.

    python -m benchmarks memory [--shape S] [--model NAME|DIR] [--skip-translating]

Training: each contestant in a process of its own takes three steps at each batch size; what counts
is the process's highest resident size, PyTorch itself included. Translating: a process translates
a hundred sentences and ends, with the model that is installed or named.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks import peers
from benchmarks.training import prepared_data, same_batches, save_batches, workers_for
from benchmarks.translate import sentences

TOKENS = (500, 1500, 4000, 8000)
NAMES = ("marian", "torch")
DIRECT = """
import sys, ctranslate2, sentencepiece
folder, tag, lines = sys.argv[1], sys.argv[2].split(), sys.stdin.read().splitlines()
words = sentencepiece.SentencePieceProcessor(model_file=folder + "/tokenizer.model")
engine = ctranslate2.Translator(folder + "/ct2", inter_threads=1, intra_threads=1)
rows = [[*tag, *row, "</s>"] for row in words.encode(lines, out_type=str)]
engine.translate_batch(rows, beam_size=4, max_batch_size=1024, batch_type="tokens")
"""

STARTER = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
print(usage.ru_maxrss)
sys.exit(status != 0)
"""  # Linux counts to a command what its parent held, so a small process starts it


def peak_of(command: Sequence[str], text: str) -> int:
    """Bytes that a command holds at most, with some text on its input."""
    with tempfile.TemporaryFile("w+") as file:
        file.write(text)
        file.seek(0)
        started = [sys.executable, "-I", "-S", "-c", STARTER, *command]
        run = subprocess.run(started, stdin=file, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"benchmarks: {' '.join(command[:5])} failed: {run.stderr}")
    return int(run.stdout.split()[-1]) * 1024


def training(shape: str, threads: int) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for tokens in TOKENS:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            batches = same_batches(prepared_data(folder, None), tokens)
            save_batches(folder / "batches.npz", batches)
            workers = workers_for(folder, shape, NAMES, tokens=tokens, dropout=0.1, threads=threads)
            for who, worker in workers.items():
                answer = worker.ask({"batches": [0, 1, 2]})
                found.setdefault(who, {})[tokens] = answer["memory"]
                worker.close()
    return found


def translating(model: str | None) -> dict[str, int]:
    from pellucid.translator.loading import open_bundle

    bundle = open_bundle(model)
    source, target = bundle.default_direction.split("-")
    text = "\n".join(sentences(source, 100)) + "\n"
    pieces = [f"<2{target}>"] if bundle.tokenizer.tag_ids(target) else []
    python = sys.executable
    ours = [python, "-m", "pellucid", "translate", "--model", str(bundle.folder)]
    return {
        "import ctranslate2, sentencepiece": peak_of(
            [python, "-c", "import ctranslate2, sentencepiece"], ""
        ),
        "CTranslate2 called directly": peak_of(
            [python, "-c", DIRECT, str(bundle.folder), " ".join(pieces)], text
        ),
        "pellucid translate": peak_of(ours, text),
        "pellucid translate --engine torch": peak_of([*ours, "--engine", "torch"], text),
    }


def main(arguments: Sequence[str] = ()) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks memory")
    parser.add_argument("--shape", choices=("S", "B"), default="S")
    parser.add_argument("--model")
    parser.add_argument("--skip-translating", action="store_true")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args(arguments)
    learned = training(options.shape, options.threads)
    rows = [
        [f"training {options.shape}, {who}", *(f"{sizes[n] / 1e6:,.0f} MB" for n in TOKENS)]
        for who, sizes in learned.items()
    ]
    used = {} if options.skip_translating else translating(options.model)
    rows += [[f"`{who}`", f"{size / 1e6:,.0f} MB", "", "", ""] for who, size in used.items()]
    for row in rows:
        print("  ".join(row), flush=True)
    return {
        "title": "Memory",
        "table": {
            "columns": ["", *(f"{n} tokens a batch" for n in TOKENS)],
            "rows": rows,
        },
        "note": "the highest resident size of a process; translating: a hundred sentences.",
        "training": {who: {str(n): b for n, b in sizes.items()} for who, sizes in learned.items()},
        "translating": used,
        "peers": peers.versions(),
    }
