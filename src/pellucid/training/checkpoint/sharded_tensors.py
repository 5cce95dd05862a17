"""Tensors in safetensors files, each whole in one file or cut over several, read where needed.

The header of a file with one process's share says where each of its tensors begins in the whole
one, as the safetensors files of PyTorch's distributed checkpoint do, so that PyTorch can read ours.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pellucid.errors import PellucidError

STARTS, START = "DCP_SHARDING_INFO", "saved_offsets"
"""PyTorch's names, in the header: where the tensors begin, and where one of them does."""

TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


class DamagedCheckpointError(PellucidError):
    """A checkpoint is incomplete or was changed."""


class Portion(NamedTuple):
    """What one process saves of some tensors."""

    tensors: Mapping[str, Tensor]
    starts: Mapping[str, Sequence[int]] | None = None
    """Where each begins in the whole tensor; None if all are whole."""


class _Piece(NamedTuple):
    """A part of a tensor in a file, as a box: where it begins in the whole, and its shape."""

    file: Any
    start: list[int]
    shape: list[int]


class Stored(Mapping[str, Tensor]):
    """The tensors in some files. By name it gives a whole one, by `part` only what is needed."""

    def __init__(self, files: Sequence[Path]) -> None:
        from safetensors import SafetensorError, safe_open

        self.files = list(files)
        self._pieces: dict[str, list[_Piece]] = {}
        for path in files:
            try:
                file: Any = safe_open(path, "pt")
                starts = json.loads((file.metadata() or {}).get(STARTS, "{}"))
                for name in file.keys():  # noqa: SIM118  it is no mapping
                    shape = file.get_slice(name).get_shape()
                    piece = _Piece(file, _start_of(starts, name, len(shape)), shape)
                    self._pieces.setdefault(name, []).append(piece)
            except (OSError, ValueError, SafetensorError) as error:
                raise DamagedCheckpointError(f"{path} cannot be read: {error}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._pieces)

    def __len__(self) -> int:
        return len(self._pieces)

    def __getitem__(self, name: str) -> Tensor:
        shape = self.shape(name)
        return self.part(name, [0] * len(shape), shape)

    def shape(self, name: str) -> list[int]:
        """The shape of a whole tensor."""
        pieces = self._pieces[name]
        ends = ([s + n for s, n in zip(p.start, p.shape, strict=True)] for p in pieces)
        return [max(sizes) for sizes in zip(*ends, strict=True)]

    def part(self, name: str, start: Sequence[int], shape: Sequence[int]) -> Tensor:
        """The box of this shape that begins at `start` in the whole tensor; no more is read."""
        pieces = self._pieces[name]
        if [*start] == pieces[0].start and [*shape] == pieces[0].shape:
            return pieces[0].file.get_tensor(name)  # type: ignore[no-any-return]
        kind = TYPES[pieces[0].file.get_slice(name).get_dtype()]
        found, read = torch.empty(*shape, dtype=kind), 0
        for piece in pieces:
            box = [
                (max(a, b), min(a + n, b + m))
                for a, n, b, m in zip(start, shape, piece.start, piece.shape, strict=True)
            ]
            if all(low < high for low, high in box):
                some = piece.file.get_slice(name)[_slices(box, piece.start)]
                found[_slices(box, start)] = some
                read += some.numel()
        if read != found.numel():
            raise DamagedCheckpointError(
                f"{self.files[0].parent} lacks a part of {name}: the file of a process is missing"
            )
        return found


def _slices(box: list[tuple[int, int]], start: Sequence[int]) -> tuple[slice, ...]:
    """A box of the whole tensor, in a part of it that begins at `start`."""
    return tuple(slice(low - s, high - s) for (low, high), s in zip(box, start, strict=True))


def _start_of(starts: Any, name: str, dimensions: int) -> list[int]:
    """Where a tensor of a file begins in the whole one, by the file's header."""
    if not starts:
        return [0] * dimensions
    try:
        start = [int(place) for place in starts[name][START]]
    except (KeyError, TypeError, OverflowError):
        raise ValueError(f"its header does not say where {name} begins") from None
    if len(start) != dimensions or min(start, default=0) < 0:
        raise ValueError(f"its header says that {name} begins at {start}")
    return start
