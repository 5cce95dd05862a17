"""Tensors in safetensors files, each whole in one file or sharded over several; read on demand.

The header of a shard gives the offset of each of its tensors in the whole tensor, in the format
of PyTorch's distributed checkpoint, so that PyTorch can read our files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pellucid.bundle.weights import save_tensors
from pellucid.errors import PellucidError

STARTS, START = "DCP_SHARDING_INFO", "saved_offsets"
"""PyTorch's names in the header: the offsets of all tensors, and those of one."""

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
    """A checkpoint is incomplete or damaged."""


class Portion(NamedTuple):
    """The part of some tensors that one process saves."""

    tensors: Mapping[str, Tensor]
    starts: Mapping[str, Sequence[int]] | None = None
    """Offset of each in the whole tensor, by dimension; None if all are whole."""


def write_portion(path: Path, portion: Portion) -> None:
    """Write what one process saves to a safetensors file; the same tensors give the same bytes."""
    metadata = None
    if portion.starts is not None:
        starts = {name: {START: list(portion.starts[name])} for name in sorted(portion.tensors)}
        metadata = {STARTS: json.dumps(starts, separators=(",", ":"))}
    tensors = {name: t.detach().cpu().contiguous() for name, t in portion.tensors.items()}
    save_tensors(path, tensors, metadata)


class _Piece(NamedTuple):
    """A part of a tensor in a file: a box with its offset in the whole tensor and its shape."""

    file: Any
    start: list[int]
    shape: list[int]


class Stored(Mapping[str, Tensor]):
    """The tensors in some files: `[name]` reads a whole one, `part` only what is needed."""

    def __init__(self, files: Sequence[Path]) -> None:
        from safetensors import SafetensorError, safe_open

        self.files = list(files)
        self._pieces: dict[str, list[_Piece]] = {}
        for path in files:
            try:
                file: Any = safe_open(path, "pt")
                starts = json.loads((file.metadata() or {}).get(STARTS, "{}"))
                for name in file.keys():  # noqa: SIM118  not a mapping
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
        """Return the shape of a whole tensor."""
        pieces = self._pieces[name]
        ends = ([s + n for s, n in zip(p.start, p.shape, strict=True)] for p in pieces)
        return [max(sizes) for sizes in zip(*ends, strict=True)]

    def part(self, name: str, start: Sequence[int], shape: Sequence[int]) -> Tensor:
        """Read only the box of this shape at offset `start` of the whole tensor."""
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
    """Translate a box of the whole tensor into slices of the part that begins at `start`."""
    return tuple(slice(low - s, high - s) for (low, high), s in zip(box, start, strict=True))


def _start_of(starts: Any, name: str, dimensions: int) -> list[int]:
    """Return the offset of a file's tensor in the whole one, from the file's header."""
    if not starts:
        return [0] * dimensions
    try:
        start = [int(offset) for offset in starts[name][START]]
    except (KeyError, TypeError, OverflowError):
        raise ValueError(f"its header does not say where {name} begins") from None
    if len(start) != dimensions or min(start, default=0) < 0:
        raise ValueError(f"its header says that {name} begins at {start}")
    return start
