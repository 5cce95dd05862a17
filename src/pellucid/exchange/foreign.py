"""A model of somebody else, read but not yet written as a bundle; and how its files are read."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.config import ModelConfig
from pellucid.errors import InputError, MissingExtraError, PellucidError
from pellucid.tokenizers.marian import MarianTokenizer

if TYPE_CHECKING:
    from torch import Tensor

_LARGEST_TEXT = 64 << 20  # bytes; a vocabulary of a million pieces has half of it


class ForeignFileError(PellucidError):
    """A file of somebody else's model is damaged, or holds what it should not."""


@dataclass(frozen=True)
class Foreign:
    """What a bundle is made of."""

    config: ModelConfig
    weights: Mapping[str, Tensor]
    tokenizer: MarianTokenizer
    source: str | None = None
    """The source language, where the files name it."""
    target: str | None = None
    about: dict[str, Any] = field(default_factory=dict)
    """For MODEL.md."""


def need_torch() -> None:
    """Say what to install where PyTorch is missing."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise MissingExtraError("importing and exporting models", "train") from None


def read_bytes(path: Path) -> bytes:
    """A small file of a model."""
    try:
        if path.stat().st_size > _LARGEST_TEXT:
            raise ForeignFileError(f"{path} is too large for what it should be")
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"there is no {path.name} in {path.parent}: is the model whole?") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None


def read_table(path: Path) -> dict[str, Any]:
    """A JSON file that holds a table."""
    try:
        value = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise ForeignFileError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ForeignFileError(f"{path} is not a table of settings")
    return value


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The weights in a .safetensors or .bin file, as float32; nothing in the file is run."""
    import torch

    found = _safetensors(path) if path.suffix == ".safetensors" else _pickled(path)
    weights = {}
    for name, tensor in found.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise ForeignFileError(
                f"{path} holds {str(name)[:60]!r}, which is not a weight but "
                f"{type(tensor).__name__}: refused"
            )
        if not tensor.is_floating_point() or tensor.layout != torch.strided:
            raise ForeignFileError(f"{path}: {name!r} is no plain matrix of numbers: refused")
        weights[name] = tensor.to(torch.float32)
    return weights


def _safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise ForeignFileError(f"{path} cannot be read: {_short(error)}") from None


def _pickled(path: Path) -> dict[Any, Any]:
    """PyTorch's own format is a pickle, which could run anything; only weights are let through."""
    import torch

    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if str(error).startswith("Weights only load failed"):
            raise ForeignFileError(
                f"{path} holds more than weights, and loading it could run a program of a "
                "stranger: refused"
            ) from None
        raise ForeignFileError(f"{path} cannot be read: {_short(error)}") from None
    except Exception as error:  # of a damaged file, whatever the reader tripped over
        raise ForeignFileError(f"{path} cannot be read: {_short(error)}") from None
    if not isinstance(found, dict):
        raise ForeignFileError(f"{path} holds {type(found).__name__} and no weights: refused")
    return found


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__
