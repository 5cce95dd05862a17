"""How fast machines multiply matrices: this one by measurement, others by their data sheets."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from functools import cache
from typing import Any

from pellucid.errors import InputError, nearest

TERA = 1e12


@dataclass(frozen=True)
class Hardware:
    """A machine by its public figures."""

    name: str
    peak: float
    """FLOP/s of dense matrix products at `precision`, from the data sheet."""

    precision: str
    memory: int
    """Bytes that a model and its activations may take."""

    utilisation: float
    """Share of the peak that training a Transformer of this size is assumed to reach."""

    note: str = ""


@dataclass(frozen=True)
class MatmulSpeed:
    """How fast steps are expected to go, and how that is known."""

    where: str
    flops_per_second: float
    """Of forward and backward passes, all devices together."""

    optimizer_seconds: float
    """Of a step, whatever the batch."""

    how: str


GB = 10**9

# Peaks are the vendors' data-sheet figures without sparsity. The utilisation is an assumption,
# but for the P100: with the paper's own 0.4 s and 1.0 s a step it comes to 31% and 42%.
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
"""Share of the measured matrix-multiply rate that our training reaches on a CPU."""


def find_hardware(name: str) -> Hardware:
    """A machine of the table by its name; a wrong name gets the nearest."""
    key = name.lower().replace("_", "-").replace(" ", "-")
    if key not in TABLE:
        raise InputError(f"unknown hardware {name!r}: {nearest(key, list(TABLE))}")
    return TABLE[key]


@cache
def matmul_rate(device: str, *, bf16: bool, seconds: float = 0.5) -> float:
    """FLOP/s of matrix products in float32, or in bfloat16, measured once.

    The best of some repeats, because a busy machine only ever slows them.
    """
    import torch

    on = torch.device(device)
    dtype = torch.bfloat16 if bf16 else torch.float32
    size = 4096 if on.type == "cuda" else 1024
    # plain arithmetic instead of random numbers: a measurement must not draw from anyone's seed
    a = torch.linspace(-1, 1, size * size, device=on).view(size, size).to(dtype)
    best, deadline = 0.0, time.perf_counter() + seconds
    with torch.inference_mode():
        for turn in range(100):
            start = time.perf_counter()
            a @ a
            if on.type == "cuda":
                torch.cuda.synchronize(on)
            if turn:  # the first one warms up
                best = max(best, 2 * size**3 / (time.perf_counter() - start))
            if turn >= 3 and time.perf_counter() > deadline:
                break
    return best


def memory_of_this_machine() -> int | None:
    """Bytes of memory in all, where the system tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def this_machine() -> dict[str, Any]:
    """What a result must carry to be read later. Names no host and no user."""
    import torch

    from pellucid import __version__

    about: dict[str, Any] = {
        "pellucid": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cpu features": torch.backends.cpu.get_cpu_capability(),
    }
    if torch.cuda.is_available():
        about["gpu"] = torch.cuda.get_device_name()
        about["gpus"] = torch.cuda.device_count()
    return about


def processor_name() -> str:
    """The processor as its maker calls it, where the system tells."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
