"""Device, numeric precision and torch.compile of a run."""

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
    """Return the device that the recipe asks for; raise an error if it is not there.

    local_rank: number of the process on this machine; it takes the GPU with that number.
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
    """Return whether the device multiplies matrices in bf16 in hardware, and so fast."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "mps":
        return torch.backends.mps.is_macos_or_newer(14, 0)
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def uses_bf16(config: TrainingConfig, device: torch.device) -> bool:
    """Return whether a run computes in bf16 on this device (`training.precision`).

    A processor without units for bf16 would emulate it, about twenty times slower, so there
    "bf16" falls back to fp32; `precision_note` tells the user.
    """
    if config.precision == "auto":
        return device.type == "cuda" and has_bf16(device)
    return config.precision == "bf16" and (device.type != "cpu" or has_bf16(device))


def precision_note(config: TrainingConfig, device: torch.device) -> str | None:
    """Return a line for the user where "bf16" falls back to fp32."""
    if config.precision != "bf16" or uses_bf16(config, device):
        return None
    return (
        "training.precision = 'bf16': this processor has no bf16 units (AVX-512 BF16 or AMX), "
        "so the run computes in fp32"
    )


def peak_flops(config: TrainingConfig, device: torch.device) -> float:
    """Return the measured peak FLOP/s of matrix products in the run's precision, for MFU."""
    return matmul_rate(str(device), bf16=uses_bf16(config, device))


def autocast_for(
    config: TrainingConfig, device: torch.device
) -> Callable[[], AbstractContextManager[Any]]:
    """Return the context for forward passes: bf16 mixed precision (autocast), or plain fp32.

    Weights, gradients and optimizer states stay in fp32 either way.
    """
    if not uses_bf16(config, device):
        return nullcontext
    if not has_bf16(device):
        raise InputError("training.precision = 'bf16', which this GPU does not have: set 'fp32'")
    return partial(torch.autocast, device.type, torch.bfloat16)


def compiled_states(
    model: Transformer, config: TrainingConfig, say: Callable[[str], None]
) -> Callable[[Tensor, Tensor], Tensor] | None:
    """Return `model.states` compiled by torch.compile, or None where the recipe does not ask.

    If compilation fails (for example without a C++ compiler), the run continues uncompiled.
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
                say(f"torch.compile failed, continuing without it: {reason}")
        return model.states(source, target)

    return states
