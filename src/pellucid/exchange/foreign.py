"""Models of other toolkits, before they are bundles, and the reading of their files."""

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

_MAX_BYTES = 64 << 20  # of a text file; a vocabulary of a million pieces has half of it


class ForeignFileError(PellucidError):
    """A file of a foreign model is damaged, or contains what it should not."""


@dataclass(frozen=True)
class ForeignModel:
    """The parts of a bundle, from another toolkit's files."""

    config: ModelConfig
    weights: Mapping[str, Tensor]
    tokenizer: MarianTokenizer
    source: str | None = None
    """Source language, if the files name it."""
    target: str | None = None
    about: dict[str, Any] = field(default_factory=dict)
    """Facts for MODEL.md."""


def need_torch() -> None:
    """Raise an error that says what to install if PyTorch is missing."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise MissingExtraError("importing and exporting models", "train") from None


def read_bytes(path: Path) -> bytes:
    """Read a small file of a model."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ForeignFileError(f"{path} is too large to be what its name says")
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"there is no {path.name} in {path.parent}: is the model whole?") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None


def read_table(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object."""
    try:
        value = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise ForeignFileError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ForeignFileError(f"{path} is not a table of settings")
    return value


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read the weights of a .safetensors or .bin file, as float32; nothing in it is executed."""
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
            raise ForeignFileError(f"{path}: {name!r} is not a plain matrix of numbers: refused")
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
    """Load PyTorch's own format, a pickle, which could run anything: only weights are accepted."""
    import torch

    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if str(error).startswith("Weights only load failed"):
            raise ForeignFileError(
                f"{path} holds more than weights, and loading it could run arbitrary code: refused"
            ) from None
        raise ForeignFileError(f"{path} cannot be read: {_short(error)}") from None
    except Exception as error:  # a damaged file makes the unpickler raise anything
        raise ForeignFileError(f"{path} cannot be read: {_short(error)}") from None
    if not isinstance(found, dict):
        raise ForeignFileError(f"{path} holds {type(found).__name__} and no weights: refused")
    return found


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__
