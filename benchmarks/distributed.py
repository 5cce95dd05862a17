"""What several processes cost: two processes of one thread against one process.

All take the same steps over the same batches (one process takes two batches a step). On a machine
of two cores, two processes against one of two threads show the price of the exchange, which two
machines would pay too (over a slower wire) and then halve the time; against one of one thread they
show what a second core brings.

The contestants take turns, and each round has its own ratios, so that a slow minute of the machine
cancels out. Of each step the time on the clock is measured, and the processor time of all processes
together, which other work on the machine does not add to. Waiting for another process costs no
processor time, so that one says what the exchange itself takes.
"""

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pellucid.errors import PellucidError

ROOT = Path(__file__).parent.parent
ROUNDS, STEPS, SKIPPED = 5, 10, 2

MODEL = (
    "model.d_model=256", "model.encoder_layers=3", "model.decoder_layers=3",
    "batches.max_tokens=400", "training.steps=1000000", "training.optimizer=adamw",
    "checkpoints.minutes=0", "validation.every=1000000", "validation.translate=false",
    "data.test=[]", "data.valid=[]",
)  # fmt: skip

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
CONTESTANTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "1 process x 2 threads": ((), ("training.gradient_accumulation_steps=2", "training.threads=2")),
    "1 process x 1 thread": ((), ("training.gradient_accumulation_steps=2", "training.threads=1")),
    "2 processes x 1 thread, DDP": (TORCHRUN, ("training.threads=1",)),
    "2 processes x 1 thread, FSDP": (
        TORCHRUN,
        ("training.threads=1", "training.parallel=fsdp"),
    ),
}
FIRST = "1 process x 2 threads"


def train_and_time(folder: Path, settings: list[str]) -> None:
    """Train as one of the processes, write down what each step took, and end without a result."""
    from pellucid.training.loop import Loop
    from pellucid.training.run import train

    usual, rows = Loop._step, []

    def step(self: Loop, *arguments: Any) -> Any:
        clock, processor = time.perf_counter(), time.process_time()
        report = usual(self, *arguments)
        took = (time.perf_counter() - clock, time.process_time() - processor)
        rows.append([part / report.target_tokens for part in took])
        if len(rows) == STEPS:
            path = folder / f"steps-{self.group.rank}.json"
            path.write_text(json.dumps(rows[SKIPPED:]))
            with contextlib.suppress(PellucidError):  # another process may be gone already
                self.group.barrier()
            os._exit(0)
        return report

    Loop._step = step  # type: ignore[method-assign]
    train(ROOT / "recipes" / "toy.toml", folder=folder, overrides=settings)


def measured(name: str, folder: Path, data: Path) -> dict[str, float]:
    """Medians over the steps of one run, in microseconds a target token."""
    launcher, settings = CONTESTANTS[name]
    if data.exists():
        shutil.copytree(data, folder / "data")
    subprocess.run(
        [sys.executable, *launcher, "-m", "benchmarks.distributed", str(folder),
         *MODEL, *settings],
        # Threads that wait must not spin: that would be counted as work on a busy machine.
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"},
        check=True, capture_output=True,
    )  # fmt: skip
    ranks = [json.loads(path.read_text()) for path in sorted(folder.glob("steps-*.json"))]
    clock = [row[0] for row in ranks[0]]
    processor = [sum(rows) for rows in zip(*([r[1] for r in rank] for rank in ranks), strict=True)]
    if not data.exists():
        shutil.copytree(folder / "data", data)
    shutil.rmtree(folder)
    return {"clock": 1e6 * statistics.median(clock), "cpu": 1e6 * statistics.median(processor)}


def main() -> dict[str, object]:
    """Medians of the rounds, and of the rounds' own ratios to one process of two threads."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CONTESTANTS}
    with tempfile.TemporaryDirectory() as place:
        data, names = Path(place) / "data", list(CONTESTANTS)
        measured(names[0], Path(place) / "run", data)  # prepares the data, warms the disk
        for number in range(ROUNDS):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                found[name].append(measured(name, Path(place) / "run", data))
    table: dict[str, dict[str, float]] = {}
    for name, rounds in found.items():
        pairs = list(zip(rounds, found[FIRST], strict=True))
        table[name] = {
            f"{what} {unit}": round(statistics.median(values), 3)
            for what in ("clock", "cpu")
            for unit, values in (
                ("microseconds a token", [mine[what] for mine in rounds]),
                ("speed against the first", [one[what] / mine[what] for mine, one in pairs]),
            )
        }
        print(f"{name}: {json.dumps(table[name])}")
    rows = [
        [name, *(f"{one[f'{what} speed against the first']:.2f}x" for what in ("clock", "cpu"))]
        for name, one in table.items()
    ]
    return {
        "title": "Several processes",
        "table": {"columns": ["", "speed on the clock", "speed by processor time"], "rows": rows},
        "note": f"against the first row; {ROUNDS} rounds of {STEPS - SKIPPED} steps, medians.",
        "rounds": found,
        "medians": table,
    }


if __name__ == "__main__":
    train_and_time(Path(sys.argv[1]), sys.argv[2:])
