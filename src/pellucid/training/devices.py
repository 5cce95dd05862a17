"""Where a run computes, and how exactly."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pellucid.config import TrainingConfig
from pellucid.errors import InputError
from pellucid.model import Transformer
from pellucid.training.plan.hardware import matmul_rate


def device_for(config: TrainingConfig, local_rank: int = 0) -> torch.device:
    """The device that the recipe asks for; an error if it is not there.

    local_rank: the process's number on this machine, which takes the GPU of that number.
    """
    asked = config.device
    if asked == "auto":
        asked = "cuda" if torch.cuda.is_available() else "cpu"
    if asked.startswith("cuda"):
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        number = int(asked.partition(":")[2] or local_rank)
        if number >= count:
            have = f"only {count}" if count else "none"
            raise InputError(
                f"training.device = {config.device!r} asks for GPU {number}, and there is {have} "
                "here: set it to 'auto' or 'cpu'"
            )
        return torch.device("cuda", number)
    if asked == "mps" and not torch.backends.mps.is_available():
        raise InputError("training.device = 'mps', and there is none here: set it to 'auto'")
    return torch.device(asked)


def has_bf16(device: torch.device) -> bool:
    """Whether products in bf16 are done in hardware here, and so are fast."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return False


def wants_bf16(config: TrainingConfig, device: torch.device) -> bool:
    """Whether a run computes its losses in bf16 here, where that is safe."""
    if config.precision in ("fp32", "bf16"):
        return config.precision == "bf16"
    return (config.precision == "fast" or device.type == "cuda") and has_bf16(device)


def has_fast_bf16(config: TrainingConfig, device: torch.device) -> bool:
    """Whether a run computes in bf16 here, and in hardware."""
    return wants_bf16(config, device) and has_bf16(device)


def peak_for(config: TrainingConfig, device: torch.device) -> float:
    """FLOP/s of matrix products here: the 100% that a run's share of the peak is counted from."""
    return matmul_rate(str(device), bf16=has_fast_bf16(config, device))


def autocast_for(
    config: TrainingConfig, device: torch.device
) -> Callable[[], AbstractContextManager[Any]]:
    """What to compute a loss under: bf16 where it is safe, or fp32 throughout."""
    if not wants_bf16(config, device):
        return nullcontext
    if device.type == "cuda" and not has_bf16(device):
        raise InputError("training.precision = 'bf16', which this GPU does not have: set 'fp32'")
    return partial(torch.autocast, device.type, torch.bfloat16)


def compiled_states(
    model: Transformer, config: TrainingConfig, say: Callable[[str], None]
) -> Callable[[Tensor, Tensor], Tensor] | None:
    """`model.states` made by torch.compile where that is wanted, or None.

    If compiling fails (no compiler on this machine, say), the plain function goes on.
    """
    device = model.output.weight.device
    if config.compile == "off" or (config.compile == "auto" and device.type != "cuda"):
        return None
    compiled = torch.compile(model.states, dynamic=True)
    working = True

    def states(source: Tensor, target: Tensor) -> Tensor:
        nonlocal working
        if working:
            try:
                return compiled(source, target)
            except Exception as error:
                if isinstance(error, torch.OutOfMemoryError):
                    raise
                working = False
                reason = str(error).strip().split("\n")[0][:200] or type(error).__name__
                say(f"torch.compile does not work here, going on without: {reason}")
        return model.states(source, target)

    return states
