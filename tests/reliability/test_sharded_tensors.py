"""Tensors cut over files are read like whole ones, by any number of processes."""

import json
import tempfile
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pellucid.training.checkpoint.sharded_tensors import (
    DamagedCheckpointError,
    Portion,
    Stored,
    write_portion,
)


def cuts(draw: st.DrawFn, size: int) -> list[int]:
    """Where a dimension is cut, its ends included; some parts may be empty."""
    inner = draw(st.lists(st.integers(0, size), max_size=2))
    return [0, *sorted(inner), size]


@st.composite
def cases(draw: st.DrawFn) -> tuple[torch.Tensor, list[list[int]], list[slice]]:
    """A tensor, where it is cut in each dimension, and a box of it."""
    shape = draw(st.lists(st.integers(1, 6), max_size=3))
    kind = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool]))
    tensor = torch.arange(torch.Size(shape).numel()).reshape(shape).to(kind)
    box = []
    for size in shape:
        low = draw(st.integers(0, size))
        box.append(slice(low, draw(st.integers(low, size))))
    return tensor, [cuts(draw, size) for size in shape], box


def parts(tensor: torch.Tensor, edges: list[list[int]]) -> Iterator[tuple[list[int], torch.Tensor]]:
    """The boxes of a tensor between the cuts, and where each begins."""
    sides = [list(pairwise(edge)) for edge in edges]
    for box in product(*sides):
        yield [low for low, _ in box], tensor[tuple(slice(low, high) for low, high in box)]


@given(cases())
def test_a_part_of_what_was_cut_is_that_part(case: Any) -> None:
    tensor, edges, box = case
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for number, (start, part) in enumerate(parts(tensor, edges)):
            files.append(Path(folder) / f"{number}.safetensors")
            write_portion(files[-1], Portion({"w": part}, {"w": start}))
        stored = Stored(files)
        assert list(stored) == ["w"]
        assert stored.shape("w") == list(tensor.shape)
        assert torch.equal(stored["w"], tensor)
        wanted = tensor[tuple(box)]
        found = stored.part("w", [side.start for side in box], wanted.shape)
        assert found.dtype == tensor.dtype
        assert torch.equal(found, wanted)


def test_a_missing_part_is_an_error_and_not_a_hole(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.safetensors" for number in range(3)]
    for number, file in enumerate(files):
        write_portion(file, Portion({"w": torch.ones(2, 3)}, {"w": [2 * number, 0]}))
    stored = Stored([files[0], files[2]])
    assert torch.equal(stored.part("w", [4, 0], [2, 3]), torch.ones(2, 3))
    with pytest.raises(DamagedCheckpointError, match="lacks a part of w"):
        stored["w"]


@pytest.mark.parametrize(
    "starts", ["{", "[3]", '"w"', '{"v": {}}', '{"w": {"saved_offsets": [0]}}',
               '{"w": {"saved_offsets": [-1, 0]}}', '{"w": {"saved_offsets": [1e999, 0]}}']
)  # fmt: skip
def test_a_header_that_makes_no_sense_is_one_clear_error(starts: str, tmp_path: Path) -> None:
    entry = {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]}
    header = json.dumps({"__metadata__": {"DCP_SHARDING_INFO": starts}, "w": entry}).encode()
    file = tmp_path / "model-00001-of-00001.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(DamagedCheckpointError, match="model-00001-of-00001") as caught:
        Stored([file])
    assert "\n" not in str(caught.value)
