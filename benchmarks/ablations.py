"""What each choice of the quick recipe gives: short runs on the same sentences, one choice changed.

    python -m benchmarks ablations [--data data/multi30k-en-de] [--epochs 0.35] [--threads N]
        [--folder runs/ablations] [--only NAME ...]

Every row is `pellucid train` with recipes/multi30k-quick.toml and the settings of CHANGES, through
this share of the training pairs, judged on the validation set (greedy, all of it): no choice here
looks at a test set. The minutes stand beside, since some choices make a step dearer; they are real
minutes, so let nothing else run. The first two rows differ by nothing but the seed: what differs
less than they do is not told apart.

It goes on where it was interrupted; after a change of the recipe, give it a new --folder.
"""

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.multi30k import QUICK, parsed, parser_for, train

SAME = "the quick recipe"
CHANGES: dict[str, tuple[str, ...]] = {
    SAME: (),
    "another seed": ("training.seed=1",),
    "AdamW, not Muon": ("training.optimizer=adamw",),
    "AdamW, a third more sentences": ("training.optimizer=adamw", "training.epochs=0.47"),
    "random first embeddings": ("training.embedding_init=random",),
    "norms after the sub-layers": ("model.norm=post",),
    "LayerNorm, not RMSNorm": ("model.norm_type=layer",),
    "no QK-norm": ("model.qk_norm=none",),
    "sinusoidal positions": ("model.position_encoding=sinusoidal",),
    "squared ReLU": ("model.activation=relu2",),
    "gated feed-forward (SwiGLU)": ("model.activation=swiglu", "model.d_ff=352"),
    "twice the width": (
        "model.d_model=256",
        "model.d_ff=1024",
        "training.learning_rate=0.002",
    ),
    "vocabulary of 2,500": ("tokenizer.vocab_size=2500",),
    "vocabulary of 8,000": ("tokenizer.vocab_size=8000",),
    "batches of 400 tokens": ("batches.max_tokens=400",),
    "batches of 1,500 tokens": ("batches.max_tokens=1500",),
    "batches of 3,000 tokens": ("batches.max_tokens=3000",),
    "dropout 0.1": ("model.dropout=0.1",),
    "dropout 0.3": ("model.dropout=0.3",),
    "Muon with momentum 0.95": ("training.muon_momentum=0.95",),
    "embeddings at half the rate": ("training.learning_rate=0.002",),
    "no label smoothing": ("training.label_smoothing=0",),
    "the rate falls in the last fifth": ("training.decay_fraction=0.2",),
    "the rate falls from the start": ("training.decay_fraction=1.0",),
}


def trained(name: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One row: trains where that is not done yet, and reads what the run wrote down."""
    metrics = folder / "metrics.jsonl"
    if not (metrics.is_file() and '"kind": "valid"' in metrics.read_text()):
        settings = (
            f"training.epochs={options.epochs}", "validation.sentences=0", "validation.beam_size=1",
            "validation.samples=0", "checkpoints.keep=1", *CHANGES[name],
        )  # fmt: skip
        train(QUICK, folder, options, settings, quiet=True)
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    found = next(row for row in reversed(rows) if row["kind"] == "valid")
    kept = ("step", "epoch", "loss", "bleu", "chrf", "signatures")
    seconds = sum(row["seconds"] for row in rows if row["kind"] == "step")
    return {key: found[key] for key in kept} | {"minutes": seconds / 60}


def main(arguments: Sequence[str] = ()) -> dict[str, Any]:
    parser = parser_for("ablations")
    parser.add_argument("--epochs", type=float, default=0.35)
    parser.add_argument("--only", nargs="+", choices=list(CHANGES), default=list(CHANGES))
    options = parsed(parser, arguments)
    found: dict[str, dict[str, Any]] = {}
    for name in CHANGES:
        if name in options.only:
            folder = re.sub(r"\W+", "-", name.lower())
            found[name] = row = trained(name, options.folder / folder, options)
            print(f"{name}: {row['bleu']:.1f} BLEU, {row['minutes']:.1f} minutes", flush=True)
    base = found.get(SAME)
    rows = [
        [name, row["step"], f"{row['minutes']:.1f}", f"{row['loss']:.3f}", f"{row['chrf']:.1f}",
         f"{row['bleu']:.1f}",
         "" if base is None or row is base else f"{row['bleu'] - base['bleu']:+.1f}"]
        for name, row in found.items()
    ]  # fmt: skip
    signatures = next(iter(found.values()))["signatures"]
    return {
        "title": "What each choice of the quick recipe gives",
        "table": {
            "columns": [
                "",
                "steps",
                "minutes",
                "validation loss",
                "chrF",
                "BLEU",
                "against the first",
            ],
            "rows": rows,
        },
        "note": f"{options.epochs:g} epochs each unless said, {options.threads} threads, "
        "Multi30k English to German, validation set, greedy; losses of different vocabularies "
        f"cannot be compared; {signatures['bleu']}.",
        "found": found,
    }
