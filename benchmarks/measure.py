"""How we measure: interleaved, repeated, medians with their spread, ratios inside one run.

These machines are shared and noisy. An absolute time means nothing here, and neither does a ratio
of two runs; only contestants that take turns in one run are compared.
"""

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata

import torch

from pellucid.console.machine import this_machine


@dataclass(frozen=True)
class Timing:
    """Seconds of one contestant over the rounds."""

    name: str
    seconds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, as a share of the median."""
        if len(self.seconds) < 4:
            return 0.0
        low, _, high = statistics.quantiles(self.seconds, n=4)
        return (high - low) / 2 / self.median


def race(contestants: dict[str, Callable[[], object]], *, rounds: int) -> dict[str, Timing]:
    """Each contestant once a round, in an order that turns, after one warm-up."""
    for run in contestants.values():
        run()
    names = list(contestants)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            start = time.perf_counter()
            contestants[name]()
            seconds[name].append(time.perf_counter() - start)
    return {name: Timing(name, values) for name, values in seconds.items()}


def paired_ratio(slow: Timing, fast: Timing) -> float:
    """How many times faster `fast` is: the median of the rounds' own ratios.

    Both stood in the same round, close in time, so a slow minute of the machine cancels out.
    """
    return statistics.median(s / f for s, f in zip(slow.seconds, fast.seconds, strict=True))


def matmul_gflops(size: int = 1024, repeats: int = 5) -> float:
    """The machine's own limit: the best rate of a float32 matrix product, in GFLOP/s."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    best = 0.0
    for _ in range(repeats):
        start = time.perf_counter()
        a @ b
        best = max(best, 2 * size**3 / (time.perf_counter() - start) / 1e9)
    return best


def machine() -> dict[str, object]:
    """What a result must carry to be read later; names no host and no user."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **this_machine(),
        "packages": {
            name: metadata.version(name)
            for name in ("transformers", "ctranslate2", "sentencepiece", "sacrebleu")
        },
        "load": round(os.getloadavg()[0], 1),
        "matmul_gflops": round(matmul_gflops(), 1),
    }
