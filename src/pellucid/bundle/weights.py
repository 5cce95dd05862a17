"""The weights on disk: safetensors, the tied ones once."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pellucid.bundle.layout import (
    CONFIG,
    DamagedBundleError,
    short,
    tied_names,
)
from pellucid.config import ModelConfig
from pellucid.errors import PellucidError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


_TYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""As numpy reads them; it has no bfloat16, which is the upper half of a float32."""


def read_header(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes in a safetensors file, checked: its tensors fill it exactly. Without PyTorch."""
    from safetensors import SafetensorError, safe_open

    wrong = f"{path} is not a safetensors file"
    shapes = {}
    try:
        with safe_open(path, framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118  it is no mapping
                tensor = file.get_slice(name)
                if tensor.get_dtype() not in _TYPES:
                    raise DamagedBundleError(f"{wrong}: a weight of type {tensor.get_dtype()}")
                shapes[name] = tuple(tensor.get_shape())
    except (OSError, SafetensorError) as error:
        raise DamagedBundleError(f"{wrong}: {short(error)}") from None
    return shapes


def read_weights(path: Path) -> dict[str, np.ndarray]:
    """The weights of a file by name as float32, without PyTorch."""
    import numpy as np
    from safetensors import deserialize

    read_header(path)
    weights = {}
    for name, tensor in deserialize(path.read_bytes()):  # type: ignore[no-untyped-call]
        numbers = np.frombuffer(tensor["data"], _TYPES[tensor["dtype"]])
        if tensor["dtype"] == "BF16":
            numbers = (numbers.astype(np.uint32) << 16).view(np.float32)
        weights[name] = numbers.astype(np.float32).reshape(tensor["shape"])
    return weights


def check_shapes(config: ModelConfig, given: Mapping[str, tuple[int, ...]], where: str) -> None:
    """Refuse weights that are not exactly those of the config, before room is made for them."""
    import torch

    from pellucid.model import Transformer

    try:
        with torch.device("meta"):
            shapes = {n: tuple(t.shape) for n, t in Transformer(config).state_dict().items()}
    except (RuntimeError, OverflowError, MemoryError) as error:
        raise DamagedBundleError(f"{where}: no such model: {short(error)}") from None
    for second in tied_names(config):
        del shapes[second]
    for name in shapes:
        if name not in given:
            raise DamagedBundleError(f"{where} lacks {name!r}, which the config's model has")
        if given[name] != shapes[name]:
            raise DamagedBundleError(
                f"{where}: {name!r} has shape {list(given[name])}, and the config's model has "
                f"{list(shapes[name])}"
            )
    for name in given:
        if name not in shapes:
            raise DamagedBundleError(f"{where} has {name!r}, which the config's model has not")


def untied(config: ModelConfig, state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights, tied ones once."""
    import torch

    weights = dict(state_dict)
    for second, first in tied_names(config).items():
        copy = weights.pop(second, None)
        if copy is not None and first in weights and not torch.equal(copy, weights[first]):
            raise PellucidError(f"{second!r} and {first!r} are tied but differ: nothing is written")
    return weights


def write_weights(path: Path, weights: Mapping[str, Tensor], half: bool) -> None:
    """Weights as float32 or float16, on the disk when this returns."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    dtype = torch.float16 if half else torch.float32
    largest = torch.finfo(dtype).max
    ready = {}
    for name, tensor in weights.items():
        if not torch.isfinite(tensor).all() or tensor.abs().max() > largest:
            raise PellucidError(f"{name!r} has numbers that {dtype} cannot hold: nothing written")
        ready[name] = tensor.detach().to("cpu", dtype).contiguous()
    try:
        save_file(ready, path)
    except SafetensorError as error:
        raise OSError(str(error)) from None
    # safetensors makes a file for its owner alone; it should be as open as the others
    path.chmod(stat.S_IMODE((path.parent / CONFIG).stat().st_mode))
    with path.open("rb+") as file:
        os.fsync(file.fileno())
