"""Minutes of training to 28.5 BLEU on Multi30k (English to German, test 2016), ours and a peer's.

    python -m benchmarks time-to-quality [--data data/multi30k-en-de] [--peer-minutes 32]
        [--every 1] [--peer-every 4] [--recipe FILE] [--set key=value ...] [--threads N]
        [--folder runs/time-to-quality] [--only ours|peer|scores] [--sentences N]

Ours is `pellucid train` with its quick recipe for this corpus, made to end near the goal (OURS):
its rate falls towards the end, so how long it trains must be said beforehand. The counting for its
first embeddings counts as training. The peer is Hugging Face's Marian of the same size in a plain
loop with the classic recipe: Adam, peak 1e-3, 500 steps of warm-up, inverse square root, batches of
1,024 tokens, dropout 0.3, label smoothing 0.1. One trains after the other, and both save their
weights every few minutes of training; saving does not count, nor does scoring, which comes after:
beam 5, sacreBLEU (13a, cased) against the corpus's own lines. Choices are to be made by the column
for the validation set.

`--sentences` scores only the first few, to try it out. It goes on where it was interrupted. The
peer's 30 minutes are real minutes: let nothing else run.
"""

import argparse
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import peers
from benchmarks.measure import matmul_gflops
from benchmarks.multi30k import QUICK, ROOT, pairs_of, parsed, parser_for, train
from benchmarks.peers.plain import save_rows
from pellucid.config import CorpusConfig, DataConfig, TokenizerConfig, load_recipe
from pellucid.data.prepare import prepare
from pellucid.data.store import PreparedData
from pellucid.decoding import DecodingOptions
from pellucid.decoding.engine import special_ids
from pellucid.decoding.torch.engine import TorchEngine
from pellucid.drawing.svg import Curve, line_chart
from pellucid.inspection.figures import standalone
from pellucid.model import Transformer
from pellucid.tokenizers.sentencepiece import Tokenizer
from pellucid.training.checkpoint.checkpoints import Checkpoints

GOAL, BEAM_SIZE, SPLITS = 28.5, 5, ("valid", "test")
OURS = ("training.epochs=0.7",)
CURVE = ROOT / "docs" / "time-to-quality.svg"
PEER = {
    "vocab_size": 8000, "d_model": 256, "d_ff": 1024, "num_heads": 4, "layers": 3,
    "dropout": 0.3, "label_smoothing": 0.1, "learning_rate": 1e-3,
}  # fmt: skip


def bleu(data: Path, split: str, texts: Sequence[str]) -> tuple[float, str]:
    from sacrebleu.metrics import BLEU

    metric = BLEU()
    score = metric.corpus_score(
        list(texts), [[target for _, target in pairs_of(data, split, len(texts))]]
    )
    return float(score.score), str(metric.get_signature())


def train_ours(folder: Path, options: argparse.Namespace) -> None:
    """The command a person would give, with a checkpoint every few minutes."""
    settings = (
        f"checkpoints.minutes={options.every}", "checkpoints.keep=100000",
        "validation.every=100000000", "validation.translate=false", *OURS, *options.set,
    )  # fmt: skip
    train(options.recipe, folder, options, settings, quiet=False)


def score_ours(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """BLEU of every checkpoint; those of an earlier call are remembered."""
    recipe = load_recipe(folder / "recipe.toml")
    prepared = PreparedData.open(folder / "data")
    words = prepared.tokenizer
    model = Transformer(recipe.model.config(words.vocab_size)).eval()
    checkpoints = Checkpoints(folder / "checkpoints", 10**6)
    known = _known(folder)
    for step in checkpoints.steps():
        checkpoint = checkpoints.load(step)
        minutes = checkpoint.state["training"]["seconds"] / 60
        if str(step) in known:
            continue
        weights = checkpoint.model if checkpoint.average is None else checkpoint.average
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(weights[name])
        engine = TorchEngine(model, special_ids(words))
        found: dict[str, Any] = {"minutes": minutes}
        for split in SPLITS:
            sources = words.encode_batch(
                [a for a, _ in pairs_of(options.data, split, options.sentences)],
                target_language="de",
            )
            order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
            texts = {}
            for start in range(0, len(order), 64):
                some = order[start : start + 64]
                results = engine.translate_ids(
                    [sources[i] for i in some], DecodingOptions(beam_size=BEAM_SIZE)
                )
                ids = [list(result.best.tokens) for result in results]
                texts |= dict(zip(some, words.decode_batch(ids), strict=True))
            found[split], found["signature"] = bleu(
                options.data, split, [texts[i] for i in range(len(sources))]
            )
        _remember(folder, known, step, found)
    return list(known.values())


def prepare_peer(folder: Path, data: Path, most: int | None) -> Tokenizer:
    """The classic recipe's vocabulary, and ids for the peer's process."""
    folder.mkdir(parents=True, exist_ok=True)
    corpora = {
        split: (CorpusConfig(path=data / f"{split}.tsv.gz", languages=("en", "de")),)
        for split in ("train", "valid", "test")
    }
    prepared = prepare(
        DataConfig(directions=("en-de",), **corpora),
        TokenizerConfig(vocab_size=8000),
        folder / "data",
    )
    words = prepared.tokenizer
    for split in ("train", *SPLITS):
        pairs = pairs_of(data, split, None if split == "train" else most)
        sources = words.encode_batch([a for a, _ in pairs], target_language="de")
        targets = words.encode_batch([b for _, b in pairs], side="target")
        rows = [
            (np.array(source), np.array([words.bos_id, *target]), np.array([*target, words.eos_id]))
            for source, target in zip(sources, targets, strict=True)
        ]
        save_rows(str(folder / f"{split}.npz"), rows)
    return words


def peer_program(*arguments: object) -> list[str]:
    program = str(Path(peers.__file__).parent / "quality.py")
    return [peers.python(), program, *map(str, arguments)]


def train_peer(folder: Path, options: argparse.Namespace) -> None:
    prepare_peer(folder, options.data, options.sentences)
    subprocess.run(
        peer_program(
            "train", folder, json.dumps(PEER), options.threads, options.peer_minutes,
            options.peer_every,
        ),
        check=True,
    )  # fmt: skip


def score_peer(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    words = PreparedData.open(folder / "data").tokenizer
    known = _known(folder)
    for step, minutes in json.loads((folder / "minutes.json").read_text()).items():
        if step in known:
            continue
        found: dict[str, Any] = {"minutes": minutes}
        for split in SPLITS:
            run = subprocess.run(
                peer_program("translate", folder, split, step, BEAM_SIZE, options.threads),
                check=True, capture_output=True, text=True,
            )  # fmt: skip
            ids = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("[")]
            found[split], found["signature"] = bleu(options.data, split, words.decode_batch(ids))
        _remember(folder, known, int(step), found)
    return list(known.values())


def _known(folder: Path) -> dict[str, dict[str, Any]]:
    path = folder / "scores.json"
    return dict(json.loads(path.read_text())) if path.is_file() else {}


def _remember(folder: Path, known: dict[str, Any], step: int, found: dict[str, Any]) -> None:
    known[str(step)] = found
    (folder / "scores.json").write_text(json.dumps(known))
    print(f"{folder.name}, {found['minutes']:.1f} minutes: valid {found['valid']:.1f}, "
          f"test {found['test']:.1f}", flush=True)  # fmt: skip


def minutes_to(goal: float, points: Sequence[dict[str, Any]]) -> float | None:
    """When the test curve first crosses the goal, on the line between two points."""
    before = (0.0, 0.0)
    for point in sorted(points, key=lambda p: p["minutes"]):
        here = (point["minutes"], point["test"])
        if here[1] >= goal:
            share = (goal - before[1]) / (here[1] - before[1])
            return before[0] + share * (here[0] - before[0])
        before = here
    return None


def options_from(arguments: Sequence[str]) -> argparse.Namespace:
    parser = parser_for("time-to-quality")
    parser.add_argument("--recipe", type=Path, default=QUICK)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--every", type=float, default=1)
    parser.add_argument("--peer-minutes", type=float, default=32)
    parser.add_argument("--peer-every", type=float, default=4)
    parser.add_argument("--only", choices=("ours", "peer", "scores"))
    parser.add_argument("--sentences", type=int)
    parser.add_argument("--curve", type=Path, default=CURVE)
    return parsed(parser, arguments)


def main(arguments: Sequence[str] = ()) -> dict[str, Any]:
    options = options_from(arguments)
    folders = {name: options.folder / name for name in ("ours", "peer")}
    if options.only in (None, "ours"):
        train_ours(folders["ours"], options)
    if options.only in (None, "peer"):
        train_peer(folders["peer"], options)
    scores = {
        name: sorted(score(folders[name], options), key=lambda point: point["minutes"])
        for name, score in (("ours", score_ours), ("peer", score_peer))
        if (folders[name] / "data").is_dir()
    }
    reached = {name: minutes_to(GOAL, points) for name, points in scores.items()}
    names = {"ours": "Pellucid", "peer": "Hugging Face Marian, classic recipe"}
    curves = [
        Curve(names[name], [(p["minutes"], p["test"]) for p in points], number, dots=True)
        for number, (name, points) in enumerate(scores.items(), 1)
    ]
    chart = line_chart("BLEU on Multi30k test 2016", curves, "minutes of training", from_zero=True)
    options.curve.write_text(standalone(chart), encoding="utf-8", newline="\n")

    def said(minutes: float | None) -> str:
        return "not reached" if minutes is None else f"{minutes:.1f}"

    ours, peer = reached.get("ours"), reached.get("peer")
    rows = [
        [names[name], said(reached[name]), f"{points[-1]['test']:.1f}",
         f"{points[-1]['valid']:.1f}", f"{points[-1]['minutes']:.0f}"]
        for name, points in scores.items()
    ]  # fmt: skip
    return {
        "title": "Time to quality",
        "table": {
            "columns": ["", f"minutes to {GOAL} BLEU", "BLEU at the end", "validation",
                        "minutes trained"],
            "rows": rows,
        },
        "note": "Multi30k English to German, test 2016, beam 5, "
        + next((p["signature"] for points in scores.values() for p in points), "")
        + f"; {options.threads} threads; one after the other on one machine.",
        "goals": {"at most 0.25 of the peer's minutes": ours / peer if ours and peer else None},
        "matmul_gflops": matmul_gflops(),
        "recipe": options.recipe.name,
        "changed": options.set,
        "points": scores,
        "peers": peers.versions() if "peer" in scores else {},
    }  # fmt: skip
