"""Training speed: target tokens a second against the peers, and the share of the machine's rate.

    python -m benchmarks training [--shape S|B] [--rounds 9] [--tokens 1500] [--threads N]
        [--data train.tsv] [--batches plain|same] [--dropout 0.1] [--peers marian,torch,eole]

S is width 256 with 3 + 3 layers, B the paper's base; both have a vocabulary of 8,000. All do the
same mathematics: post-norm, sinusoidal positions, tied embeddings, label smoothing 0.1, dropout on
the sub-layers' outputs, fp32, gradients clipped at 1, Adam. Ours is the real loop's step with its
data loader; Hugging Face's Marian and torch.nn.Transformer stand in plain loops. Contestants are
processes that take turns, a batch each, in an order that turns; the table has medians over the
rounds. With `--batches plain` (the default) the peers make their batches by sorting pools of
sentences by length, as plain loops do; with `same` they get ours, which have next to no padding.
A token of padding is never counted. Eole (norm before the sub-layers, its default) takes its own
steps: its loss, its optimizer, its handling of a batch.

Without `--data` the sentences are made up, as long as Multi30k's (English to German).
"""

import argparse
import json
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import peers
from benchmarks.measure import matmul_gflops
from benchmarks.peers.plain import batches_of
from benchmarks.workers import Worker, spread
from pellucid.config import (
    BatchConfig,
    CorpusConfig,
    DataConfig,
    ModelConfig,
    Recipe,
    TokenizerConfig,
)
from pellucid.data.batches import Batches
from pellucid.data.prepare import prepare
from pellucid.data.store import PreparedData
from pellucid.model import Transformer
from pellucid.model.flops import BatchShape
from pellucid.training.checkpoint.checkpoints import Checkpoints
from pellucid.training.distributed.process_group import SingleProcess
from pellucid.training.loop import Loop
from pellucid.training.optim.optimizers import Optimizers
from pellucid.training.plan.training_flops import training_flops
from pellucid.training.signals import Signals

VOCAB, PAIRS = 8000, 12_000
PRESETS = {"S": "small", "B": "base"}
GOALS = {"S": 1.2, "B": 1.1}
SYLLABLES = [
    a + b + c for a in "bdfgklmnprstvz" for b in "aeiou" for c in ("", "n", "r", "s", "st")
]


def write_pairs(path: Path, pairs: int = PAIRS) -> None:
    """Made-up sentences with the lengths of Multi30k's: mostly 8 to 18 words, both sides alike."""
    draw = random.Random(0)
    words = ["".join(draw.choices(SYLLABLES, k=draw.randint(1, 3))) for _ in range(15000)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]

    def sentence(length: float) -> str:
        count = max(3, round(length))
        return " ".join(draw.choices(words, weights, k=count)).capitalize() + "."

    with path.open("w", encoding="utf-8") as file:
        for _ in range(pairs):
            length = 11 * draw.lognormvariate(0, 0.3)
            file.write(f"{sentence(length)}\t{sentence(length * draw.gauss(0.97, 0.13))}\n")


def prepared_data(folder: Path, corpus: Path | None) -> PreparedData:
    if corpus is None:
        corpus = folder / "pairs.tsv"
        write_pairs(corpus)
    source = CorpusConfig(path=corpus, languages=("en", "de"))
    data = DataConfig(directions=("en-de",), train=(source,))
    return prepare(data, TokenizerConfig(vocab_size=VOCAB), folder / "prepared")


def model_config(shape: str, dropout: float) -> ModelConfig:
    return ModelConfig.preset(PRESETS[shape], vocab_size=VOCAB, dropout=dropout)


def our_worker(folder: Path, shape: str, tokens: int, dropout: float, threads: int) -> None:
    """The real loop's steps, one for each question."""
    torch.set_num_threads(threads)
    prepared = PreparedData.open(folder / "prepared")
    config = model_config(shape, dropout)
    recipe = Recipe(
        data={"directions": ["en-de"], "train": [{"path": "pairs.tsv", "languages": ["en", "de"]}]},
        training={
            "steps": 10**9, "optimizer": "adam", "learning_rate": 1e-4, "schedule": "constant"
        },
        batches={"max_tokens": tokens},
    )  # fmt: skip
    torch.manual_seed(1)
    model = Transformer(config)
    loop = Loop(
        recipe, model, Optimizers(model, recipe.training), Batches(prepared, recipe.batches),
        None, Checkpoints(folder / "none"), [], SingleProcess(torch.device("cpu")), Signals(),
    )  # fmt: skip
    model.train()
    stream = loop._step_batches(loop.batches.stream())
    print(json.dumps({"ready": {"parameters": model.num_parameters()}}), flush=True)
    for line in sys.stdin:
        clock, before, done = time.perf_counter(), os.times(), 0
        for _ in json.loads(line)["batches"]:
            began = time.monotonic()
            done += loop._step(next(stream), began, 0.0).target_tokens
        after = os.times()
        answer = {
            "seconds": time.perf_counter() - clock,
            "cpu": after.user + after.system - before.user - before.system,
            "tokens": done,
            "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }
        print(json.dumps(answer), flush=True)


Padded = tuple[np.ndarray, np.ndarray, np.ndarray]


def same_batches(prepared: PreparedData, tokens: int) -> list[Padded]:
    """Our own, in the order of our loop."""
    batches = Batches(prepared, BatchConfig(max_tokens=tokens)).epoch(0)
    return [(batch.source, batch.target_in, batch.target_out) for batch in batches]


def rows_of(batches: Sequence[Padded]) -> list[Padded]:
    """Their sentences without padding."""
    return [
        tuple(row[row != 0] for row in parts)
        for batch in batches
        for parts in zip(*batch, strict=True)
    ]


def padding_of(batches: list[Padded]) -> float:
    places = sum(source.size + out.size for source, _, out in batches)
    return 1 - sum(int((s != 0).sum() + (o != 0).sum()) for s, _, o in batches) / places


def save_batches(path: Path, batches: list[Padded]) -> None:
    arrays = {
        f"{part}{number}": array
        for number, batch in enumerate(batches)
        for part, array in zip("sio", batch, strict=True)
    }
    np.savez(path, **arrays)


def workers_for(
    folder: Path, shape: str, names: Sequence[str], *, tokens: int, dropout: float, threads: int
) -> dict[str, Worker]:
    """Ours and the peers', ready for their first turn; batches.npz must be in the folder."""
    config = model_config(shape, dropout)
    described = {
        "vocab_size": VOCAB, "d_model": config.d_model, "num_heads": config.num_heads,
        "d_ff": config.d_ff, "layers": config.encoder_layers,
        "dropout": dropout, "label_smoothing": 0.1, "learning_rate": 1e-4,
    }  # fmt: skip
    found = {
        "pellucid": Worker("pellucid", [
            sys.executable, "-m", "benchmarks.training", "worker",
            str(folder), shape, str(tokens), str(dropout), str(threads),
        ])
    }  # fmt: skip
    program = str(Path(peers.__file__).parent / "training.py")
    for name in names:
        given = [json.dumps(described), str(folder / "batches.npz"), str(threads)]
        found[name] = Worker(name, [peers.python(), program, name, *given])
    return found


def contest(folder: Path, shape: str, options: argparse.Namespace) -> dict[str, Any]:
    """Rounds of one shape, and what comes of them."""
    prepared = prepared_data(folder, options.data)
    ours = same_batches(prepared, options.tokens)
    theirs = ours if options.batches == "same" else batches_of(rows_of(ours), options.tokens, 0)
    save_batches(folder / "batches.npz", theirs)
    config = model_config(shape, options.dropout)
    workers = workers_for(
        folder, shape, options.peers,
        tokens=options.tokens, dropout=options.dropout, threads=options.threads,
    )  # fmt: skip
    names, answers, peak = list(workers), {name: [] for name in workers}, []
    for number in range(-1, options.rounds):  # the first one warms up
        turn = number % len(names)
        batch = (number + 1) % min(len(ours), len(theirs))
        for name in names[turn:] + names[:turn]:
            answer = workers[name].ask({"batches": [batch]})
            if number >= 0:
                answers[name].append(answer)
        peak.append(matmul_gflops())
    for worker in workers.values():
        worker.close()
    shapes = [BatchShape(len(s), s.shape[1], i.shape[1]) for s, i, _ in ours]
    flops = sum(training_flops(config, one) for one in shapes)
    per_token = flops / sum(int((out != 0).sum()) for _, _, out in ours)
    rows = {}
    for name in names:
        rates = [answer["tokens"] / answer["seconds"] for answer in answers[name]]
        mine = [answer["tokens"] / answer["seconds"] for answer in answers["pellucid"]]
        cpu = [answer["tokens"] / answer["cpu"] for answer in answers[name]]
        my_cpu = [answer["tokens"] / answer["cpu"] for answer in answers["pellucid"]]
        rows[name] = {
            "tokens_a_second": statistics.median(rates),
            "spread": spread(rates),
            "gflops": statistics.median(rates) * per_token / 1e9,
            "share_of_matmul": statistics.median(rates) * per_token / 1e9 / max(peak),
            "pellucid_is": statistics.median(a / b for a, b in zip(mine, rates, strict=True)),
            "pellucid_is_by_cpu": statistics.median(
                a / b for a, b in zip(my_cpu, cpu, strict=True)
            ),
            "memory": answers[name][-1]["memory"],
            "parameters": workers[name].about["parameters"],
        }
    return {
        "contestants": rows,
        "matmul_gflops": max(peak),
        "padding": {"pellucid": padding_of(ours), "peers": padding_of(theirs)},
        "goal": GOALS[shape],
    }


def options_from(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks training")
    parser.add_argument("--shape", choices=list(PRESETS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=1500)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--data", type=Path)
    parser.add_argument("--batches", choices=("plain", "same"), default="plain")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument(
        "--peers", type=lambda text: text.split(","), default=["marian", "torch", "eole"]
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] = ()) -> dict[str, Any]:
    options = options_from(arguments)
    torch.set_num_threads(options.threads)
    found, rows = {}, []
    for shape in [options.shape] if options.shape else list(PRESETS):
        with tempfile.TemporaryDirectory() as folder:
            found[shape] = contest(Path(folder), shape, options)
        for name, one in found[shape]["contestants"].items():
            ratio = "" if name == "pellucid" else f"{one['pellucid_is']:.2f}x"
            rows.append([
                shape, name, f"{one['tokens_a_second']:,.0f} ±{one['spread']:.0%}",
                f"{one['share_of_matmul']:.0%}", f"{one['memory'] / 1e6:,.0f} MB", ratio,
            ])  # fmt: skip
            print(
                "  ".join(rows[-1]),
                f"by processor time {one['pellucid_is_by_cpu']:.2f}x",
                flush=True,
            )
    data = "a given corpus" if options.data else "made-up sentences as long as Multi30k's"
    return {
        "title": "Training",
        "table": {
            "columns": ["model", "", "target tokens a second", "of the matrix-product rate",
                        "memory at most", "Pellucid is faster by"],
            "rows": rows,
        },
        "note": f"{data}, {options.tokens} tokens a batch, {options.threads} threads, dropout "
        f"{options.dropout}, fp32, {options.rounds} rounds; the peers had "
        + ("the same batches as we." if options.batches == "same" else "batches of a plain loop."),
        "goals": {f"{shape}: at least {goal}x the best peer": min(
            one["pellucid_is"] for name, one in found[shape]["contestants"].items()
            if name != "pellucid") for shape, goal in GOALS.items() if shape in found},
        "shapes": found,
        "peers": peers.versions(),
    }  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        place, which, size, rate, count = sys.argv[2:]
        our_worker(Path(place), which, int(size), float(rate), int(count))
