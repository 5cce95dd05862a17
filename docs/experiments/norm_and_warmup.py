"""Post-norm against pre-norm, with and without warm-up: six layers each, on the toy's sentences.

    python -m docs.experiments.norm_and_warmup

Four short runs with Adam at a constant rate of 2e-3 after the warm-up.
"""

import statistics
import sys
import tempfile
from pathlib import Path

import torch

import pellucid
from docs.experiments.results import save, smooth
from pellucid.drawing.svg import Curve, line_chart
from pellucid.training.callbacks.metrics_file import read_metrics

TOY = Path(__file__).parents[2] / "recipes" / "toy.toml"
STEPS = 160
SETTINGS = [
    "model.encoder_layers=6",
    "model.decoder_layers=6",
    "model.d_model=32",
    "model.d_ff=64",
    "batches.max_tokens=800",
    "training.optimizer=adam",
    "training.learning_rate=0.002",
    "training.schedule=constant",
    f"training.steps={STEPS}",
    "validation.translate=false",
    "early_stopping.metric=loss",
    f"validation.every={STEPS}",
]


def losses(norm: str, warmup_steps: int, seed: int, folder: Path) -> list[float]:
    """The training loss of each step of one run."""
    own = [f"model.norm={norm}", f"training.warmup_steps={warmup_steps}", f"training.seed={seed}"]
    pellucid.train(TOY, folder=folder, overrides=[*SETTINGS, *own], quiet=True)
    return [line["loss"] for line in read_metrics(folder) if line["kind"] == "step"]


def main() -> None:
    torch.set_num_threads(1)
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    rows, curves, numbers = [], [], {}
    with tempfile.TemporaryDirectory() as place:
        for norm in ("post", "pre"):
            for warmup_steps in (0, 40):
                found = losses(norm, warmup_steps, seed, Path(place) / f"{norm}-{warmup_steps}")
                parts = (found[:20], found[60:80], found[140:])
                means = [f"{statistics.mean(part):.2f}" for part in parts]
                rows.append([norm, warmup_steps or "none", *means])
                name = f"{norm}, {warmup_steps}"
                curves.append(Curve(name, smooth(found), len(curves) + 1))
                numbers[name] = found
                print(*rows[-1], flush=True)
    about = {"layers": "6 + 6", "width": 32, "rate": 0.002, "steps": STEPS, "seed": seed}
    columns = ["norm", "warm-up steps", "loss, steps 1-20", "61-80", "141-160"]
    picture = line_chart(
        "Training loss; norm, and steps of warm-up", curves, "step", from_zero=True
    )
    save("norm_and_warmup", picture, {"about": about, "losses": numbers}, columns, rows)


if __name__ == "__main__":
    main()
