"""Reading and writing weights as safetensors; tied weights are stored once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pellucid.bundle.layout import (
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
"""The dtypes to read them with. NumPy has no bfloat16, which is the upper half of a float32."""


def read_header(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes in a safetensors file, which its tensors must fill; without PyTorch."""
    from safetensors import SafetensorError, safe_open

    wrong = f"{path} is not a safetensors file"
    shapes = {}
    try:
        with safe_open(path, framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118  not a mapping
                tensor = file.get_slice(name)
                if tensor.get_dtype() not in _TYPES:
                    raise DamagedBundleError(f"{wrong}: a weight of type {tensor.get_dtype()}")
                shapes[name] = tuple(tensor.get_shape())
    except (OSError, SafetensorError) as error:
        raise DamagedBundleError(f"{wrong}: {short(error)}") from None
    return shapes


def read_weights(path: Path) -> dict[str, np.ndarray]:
    """Read the weights of a file as float32, without PyTorch."""
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
    """Raise an error unless the shapes are the config's, before any memory is allocated."""
    import torch

    from pellucid.model import Transformer

    try:
        with torch.device("meta"):
            shapes = {n: tuple(t.shape) for n, t in Transformer(config).state_dict().items()}
    except (RuntimeError, OverflowError, MemoryError) as error:
        raise DamagedBundleError(
            f"{where}: the config describes no model that can be built: {short(error)}"
        ) from None
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
            raise DamagedBundleError(
                f"{where} has {name!r}, which the config's model does not have"
            )


def untied(config: ModelConfig, state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights with each tied weight once."""
    import torch

    weights = dict(state_dict)
    for second, first in tied_names(config).items():
        copy = weights.pop(second, None)
        if copy is not None and first in weights and not torch.equal(copy, weights[first]):
            raise PellucidError(
                f"{second!r} and {first!r} are tied but differ: nothing was written"
            )
    return weights


def write_weights(path: Path, weights: Mapping[str, Tensor], half: bool) -> None:
    """Write weights as float32 or float16."""
    import torch

    dtype = torch.float16 if half else torch.float32
    largest = torch.finfo(dtype).max
    ready = {}
    for name, tensor in weights.items():
        if not torch.isfinite(tensor).all() or tensor.abs().max() > largest:
            raise PellucidError(
                f"{name!r} has values that {dtype} cannot hold: nothing was written"
            )
        ready[name] = tensor.detach().to("cpu", dtype).contiguous()
    save_tensors(path, ready)


def save_tensors(
    path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write a safetensors file straight from the tensors, without a copy of them in memory.

    A failure of the system is an `OSError` with its number, as it is from Python's own writes.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(tensors, path, metadata)
    except SafetensorError as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise OSError(str(error)) from None
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None
