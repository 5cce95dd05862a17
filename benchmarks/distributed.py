"""What several processes cost: two processes of one thread against one process of two threads.

Both take the same steps over the same batches (the one process two batches a step). On a machine of
two cores this shows the price of the exchange alone, which two machines would pay too, and then
halve the time.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROUNDS, STEPS, SKIPPED = 3, 12, 4

MODEL = (
    "model.width=256", "model.encoder_layers=3", "model.decoder_layers=3", "batches.tokens=1500",
    f"training.steps={STEPS}", "validation.every=1000000", "validation.translate=false",
    "training.optimizer=adamw", "data.test=[]", "data.valid=[]",
)  # fmt: skip

ONE = ((), ("training.accumulate=2", "training.threads=2"))
TWO = (
    ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
    ("training.threads=1",),
)
CONTESTANTS = {
    "1 process x 2 threads": ONE,
    "2 processes x 1 thread, copies (DDP)": TWO,
    "2 processes x 1 thread, shards (FSDP)": (TWO[0], (*TWO[1], "training.parallel=shards")),
}


def steps_of(launcher: tuple[str, ...], settings: tuple[str, ...], folder: Path) -> list[float]:
    """Target tokens a second in each step of a run."""
    changes = [part for setting in (*MODEL, *settings) for part in ("--set", setting)]
    subprocess.run(
        [sys.executable, *launcher, "-m", "pellucid", "train", "recipes/toy.toml",
         "--folder", str(folder), *changes],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "2"}, check=True, capture_output=True,
    )  # fmt: skip
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [line["target_tokens"] / line["seconds"] for line in lines if line["kind"] == "step"][
        SKIPPED:
    ]


def main() -> dict[str, object]:
    rates: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(ROUNDS):
            for name, (launcher, settings) in CONTESTANTS.items():
                run = Path(folder) / f"{number}-{len(rates[name])}-{abs(hash(name))}"
                rates[name].append(statistics.median(steps_of(launcher, settings, run)))
                print(f"{name}: {rates[name][-1]:.0f} target tokens a second")
    first = rates["1 process x 2 threads"]
    ratios = {
        name: statistics.median(mine / one for mine, one in zip(found, first, strict=True))
        for name, found in rates.items()
    }
    print({name: round(ratio, 2) for name, ratio in ratios.items()})
    return {"target_tokens_per_second": rates, "speed_against_one_process": ratios}
