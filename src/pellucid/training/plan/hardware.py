"""FLOP/s of matrix products: of this machine measured, of others from their data sheets."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache

from pellucid.errors import InputError, nearest

TERA = 1e12


@dataclass(frozen=True)
class Hardware:
    """A machine, described by its data sheet."""

    name: str
    peak: float
    """FLOP/s of dense matrix products in `precision`, from the data sheet."""

    precision: str
    memory: int
    """Bytes available to the model and its activations."""

    utilisation: float
    """Assumed model FLOPs utilization (MFU) when training a Transformer of this size."""

    note: str = ""


@dataclass(frozen=True)
class ExpectedSpeed:
    """Expected speed of training, and how it is known."""

    where: str
    flops_per_second: float
    """FLOP/s of forward and backward passes, all devices together."""

    optimizer_seconds: float
    """Seconds of the optimizer update of a step, independent of the batch."""

    how: str


GB = 10**9

# Peaks are the vendors' data-sheet figures without sparsity. The utilisation is an assumption,
# except for the P100: with the paper's own 0.4 s and 1.0 s per step it is 31% and 42%.
TABLE = {
    "p100": Hardware("NVIDIA P100", 9.5 * TERA, "float32", 16 * GB, 0.35, "the paper's figure"),
    "v100": Hardware("NVIDIA V100 SXM2", 125 * TERA, "float16", 32 * GB, 0.30),
    "t4": Hardware("NVIDIA T4", 65 * TERA, "float16", 16 * GB, 0.25),
    "a100": Hardware("NVIDIA A100 SXM", 312 * TERA, "bfloat16", 80 * GB, 0.35),
    "h100": Hardware("NVIDIA H100 SXM", 989 * TERA, "bfloat16", 80 * GB, 0.30),
    "rtx-3090": Hardware("NVIDIA RTX 3090", 71 * TERA, "bfloat16", 24 * GB, 0.35),
    "rtx-4090": Hardware("NVIDIA RTX 4090", 165 * TERA, "bfloat16", 24 * GB, 0.35),
    "laptop": Hardware("laptop CPU, 4 cores AVX2", 0.4 * TERA, "float32", 16 * GB, 0.60),
    "server": Hardware("server CPU, 32 cores AVX-512", 3.0 * TERA, "float32", 256 * GB, 0.50),
}

THIS_MACHINE_UTILISATION = 0.6
"""MFU that our training reaches on a CPU: the fraction of its measured peak FLOP/s."""


def find_hardware(name: str) -> Hardware:
    """Find a machine of the table by name; an unknown name raises an error with the nearest."""
    key = name.lower().replace("_", "-").replace(" ", "-")
    if key not in TABLE:
        raise InputError(f"unknown hardware {name!r}: {nearest(key, list(TABLE))}")
    return TABLE[key]


@cache
def matmul_rate(device: str, *, bf16: bool, seconds: float = 0.5) -> float:
    """Measure the FLOP/s of matrix products in float32 or bfloat16, once per process.

    Takes the best of several repeats, because other work on the machine only slows them down.
    """
    import torch

    on = torch.device(device)
    dtype = torch.bfloat16 if bf16 else torch.float32
    size = 4096 if on.type == "cuda" else 1024
    # linspace instead of random numbers: a measurement must not change the random state of a run
    a = torch.linspace(-1, 1, size * size, device=on).view(size, size).to(dtype)
    best, deadline = 0.0, time.perf_counter() + seconds
    with torch.inference_mode():
        for turn in range(100):
            start = time.perf_counter()
            a @ a
            if on.type == "cuda":
                torch.cuda.synchronize(on)
            if turn:  # the first is a warm-up
                best = max(best, 2 * size**3 / (time.perf_counter() - start))
            if turn >= 3 and time.perf_counter() > deadline:
                break
    return best
