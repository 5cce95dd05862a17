"""The weights on disk: safetensors, the tied ones once."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


_LARGEST_HEADER = 16 << 20
_BYTES_OF = {"F32": 4, "F16": 2, "BF16": 2}


def read_header(path: Path) -> dict[str, dict[str, Any]]:
    """The table of tensors of a safetensors file, checked: it fills the file exactly.

    The safetensors library checks the same once more; this is so that a wrong file is refused
    before that library (or PyTorch) is there at all.
    """
    wrong = f"{path} is not a safetensors file"
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(_LARGEST_HEADER, path.stat().st_size - 8):
                raise DamagedBundleError(f"{wrong}: its header cannot be right")
            header = json.loads(file.read(length))
        if not isinstance(header, dict):
            raise DamagedBundleError(f"{wrong}: its header is no table")
        header.pop("__metadata__", None)
        ends = 0
        for tensor in sorted(header.values(), key=lambda tensor: tensor["data_offsets"]):
            start, stop = tensor["data_offsets"]
            shape = tensor["shape"]
            if not all(isinstance(n, int) and n >= 0 for n in (start, stop, *shape)):
                raise DamagedBundleError(f"{wrong}: a shape or an offset is no number")
            if start != ends or stop - start != math.prod(shape) * _BYTES_OF[tensor["dtype"]]:
                raise DamagedBundleError(f"{wrong}: its tensors do not fill it")
            ends = stop
        if ends != path.stat().st_size - 8 - length:
            raise DamagedBundleError(f"{wrong}: its tensors do not fill it")
    except (OSError, ValueError, KeyError, TypeError, RecursionError, AttributeError) as error:
        raise DamagedBundleError(f"{wrong}: {short(error)}") from None
    return header


def read_weights(path: Path) -> dict[str, np.ndarray]:
    """The weights of a file by name as float32, without PyTorch."""
    import numpy as np

    header = read_header(path)
    data = np.memmap(path, dtype=np.uint8, mode="r")
    start = 8 + int.from_bytes(data[:8].tobytes(), "little")
    weights = {}
    for name, tensor in header.items():
        first, last = tensor["data_offsets"]
        raw = np.array(data[start + first : start + last])  # a copy begins at a round address
        if tensor["dtype"] == "BF16":  # the upper half of a float32
            numbers = (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            numbers = raw.view({"F32": "<f4", "F16": "<f2"}[tensor["dtype"]])
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
