"""The machine that a result was measured on."""

from __future__ import annotations

import os
import platform
from typing import Any


def this_machine() -> dict[str, Any]:
    """Return versions, processor, threads and GPUs: what a result needs to be understood later.

    Names no host and no user.
    """
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
    """Return the processor's model name, where the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def total_memory() -> int | None:
    """Return this machine's memory in bytes, where the system tells it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
