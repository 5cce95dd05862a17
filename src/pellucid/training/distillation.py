"""Knowledge distillation: train on the output probabilities of teacher models.

The right token alone says little: that "Hund" comes here, and not that "Tier" would have been
nearly as good and "läuft" wrong. A trained model knows that much. For each target token of the
training pairs, given the right tokens before it (teacher forcing), each teacher assigns
probabilities to the vocabulary; their mean, the prediction of an ensemble of the teachers, becomes
a part of the target (`loss.SoftTargets`). So one model comes close to several (Hinton and others,
2015; for translation Kim and Rush, 2016).

The probabilities do not change while the student trains, so they are computed once, and of each
position only the `TOP_K` most probable tokens are kept, normalised to add up to 1. They are stored
like the prepared data (`data.store`), with a row for each target token of each pair and one for
its end symbol:

    manifest.json       which data and teachers they belong to
    tokens              (rows, TOP_K) uint16 or uint32
    probabilities       (rows, TOP_K) float16

Rows of pairs whose target is their first side come before those whose target is the second.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pellucid.bundle import Bundle
from pellucid.config import BatchConfig
from pellucid.console.progress import Progress
from pellucid.data.batches import Batch, each_pair_once, runs
from pellucid.data.store import (
    STORE,
    DamagedStoreError,
    PreparedData,
    Split,
    read_manifest,
)
from pellucid.errors import InputError
from pellucid.model import Transformer
from pellucid.storage.folder import FolderDraft
from pellucid.training.batch_tensors import batch_to_tensors
from pellucid.training.loss import CHUNK_NUMBERS, SoftTargets

if TYPE_CHECKING:
    from rich.console import Console

TOP_K = 16
"""Probabilities kept per position. A model trained with label smoothing spreads a tenth over the
whole vocabulary; nearly all of the rest is in the first few tokens."""

TEACHER_BATCH_TOKENS = 4000
"""Tokens per batch when the teachers' probabilities are computed."""

Autocast = Callable[[], AbstractContextManager[Any]]

FORMAT = 1
TOKENS, PROBABILITIES = "tokens", "probabilities"


@dataclass(frozen=True)
class TeacherProbabilities:
    """The stored teacher probabilities of a run's training pairs, memory-mapped."""

    tokens: NDArray[Any]
    """(rows, TOP_K)"""
    probabilities: NDArray[np.float16]
    """(rows, TOP_K), each row adding up to 1; all 0 in directions that the run does not train."""
    split: Split
    weight: float
    """Weight of distillation in the training target (`distillation.weight`)."""

    @classmethod
    def open(
        cls, folder: Path, key: str, prepared: PreparedData, weight: float
    ) -> TeacherProbabilities:
        """Open what `store_teacher_probabilities` wrote, by the key that it returned."""
        manifest = read_manifest(folder)
        if manifest["key"] != key:
            raise DamagedStoreError(
                f"{folder} holds the probabilities of other teachers: resume the run"
            )
        arrays = [
            np.memmap(folder / name, dtype, mode="r").view(np.ndarray).reshape(-1, TOP_K)
            for name, dtype in ((TOKENS, manifest["dtype"]), (PROBABILITIES, "<f2"))
        ]
        return cls(arrays[0], arrays[1], prepared.splits["train"], weight)

    def soft_targets(self, batch: Batch, device: torch.device) -> SoftTargets:
        """Return the soft targets of a batch, in the order of `BatchTensors.targets`."""
        rows = rows_of(self.split, batch)
        tokens = self.tokens[rows].astype(np.int64)
        probabilities = self.probabilities[rows].astype(np.float32) * self.weight
        return SoftTargets(
            torch.from_numpy(tokens).to(device, non_blocking=True),
            torch.from_numpy(probabilities).to(device, non_blocking=True),
        )


def rows_of(split: Split, batch: Batch) -> NDArray[np.int64]:
    """Return the stored rows of a batch: for each pair those of its target tokens and its end."""
    starts, lengths = (np.zeros(len(batch), np.int64) for _ in range(2))
    for side in (0, 1):
        here = batch.source_sides == 1 - side
        pairs, offsets = batch.pairs[here], split.offsets[side]
        first = _row_count(split, 0) if side else 0
        starts[here] = first + offsets[pairs] + pairs  # each earlier pair has a row for its end
        lengths[here] = offsets[pairs + 1] - offsets[pairs] + 1
    return runs(starts, lengths)


def _row_count(split: Split, side: int) -> int:
    return len(split.tokens[side]) + len(split)


def store_teacher_probabilities(
    teachers: Sequence[Bundle],
    prepared: PreparedData,
    folder: Path,
    device: torch.device,
    *,
    autocast: Autocast = nullcontext,
    console: Console | None = None,
) -> str:
    """Compute the teachers' probabilities for all training pairs, unless the folder has them.

    Returns the key that `TeacherProbabilities.open` takes.
    """
    check_teachers(teachers, prepared)
    key = _key(teachers, prepared)
    if stored_key(folder) == key:
        return key
    shutil.rmtree(folder, ignore_errors=True)
    draft = FolderDraft(folder, folder / "writing")
    draft.begin()
    dtype = "<u2" if prepared.tokenizer.vocab_size <= 1 << 16 else "<u4"
    split = prepared.splits["train"]
    shape = (_row_count(split, 0) + _row_count(split, 1), TOP_K)
    tokens = np.memmap(draft.path / TOKENS, dtype, mode="w+", shape=shape)
    probabilities = np.memmap(draft.path / PROBABILITIES, "<f2", mode="w+", shape=shape)
    models = [bundle.model(str(device)).eval() for bundle in teachers]
    batches = each_pair_once(prepared, BatchConfig(max_tokens=TEACHER_BATCH_TOKENS), "train")
    with Progress(console) as progress:
        count = f"{len(models)} teachers" if len(models) > 1 else "the teacher"
        progress.say(f"computing the probabilities of {count} for the training pairs")
        total = len(split) * len(prepared.directions)
        step = progress.step("teacher probabilities", "pairs", total=total)
        for batch in batches.epoch(0):
            rows = rows_of(split, batch)
            tokens[rows], probabilities[rows] = top_probabilities(models, batch, device, autocast)
            step.advance(len(batch))
    for array in (tokens, probabilities):
        array.flush()
    for name in (TOKENS, PROBABILITIES):
        draft.add(name)
    draft.write_manifest({"format": FORMAT, "key": key, "dtype": dtype})
    draft.publish_into()
    draft.path.rmdir()
    return key


@torch.inference_mode()
def top_probabilities(
    models: Sequence[Transformer],
    batch: Batch,
    device: torch.device,
    autocast: Autocast = nullcontext,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the TOP_K most probable tokens `(N, TOP_K)` at a batch's N targets, and how probable.

    The probabilities are the mean over the models: an ensemble's.
    """
    source, target_in, positions, _ = batch_to_tensors(batch, device)
    chunk = max(1, CHUNK_NUMBERS // models[0].config.vocab_size)  # positions with logits at a time
    found: list[tuple[Tensor, Tensor]] = []
    with autocast():
        states = [
            model.states(source, target_in).flatten(0, 1).index_select(0, positions)  # (N, D)
            for model in models
        ]
        for start in range(0, len(positions), chunk):
            mean = sum(
                model.output(rows[start : start + chunk]).float().softmax(dim=-1)
                for model, rows in zip(models, states, strict=True)
            )
            assert isinstance(mean, Tensor)
            top, tokens = mean.topk(min(TOP_K, mean.shape[1]), dim=-1)
            found.append((tokens, top / top.sum(dim=-1, keepdim=True)))
    chosen, probabilities = (torch.cat(parts).cpu().numpy() for parts in zip(*found, strict=True))
    missing = ((0, 0), (0, TOP_K - chosen.shape[1]))  # where the vocabulary is smaller than TOP_K
    return np.pad(chosen, missing), np.pad(probabilities, missing)


def check_teachers(teachers: Sequence[Bundle], prepared: PreparedData) -> None:
    """Raise unless every teacher has the run's vocabulary and directions."""
    for bundle in teachers:
        if bundle.tokenizer.sha256 != prepared.tokenizer.sha256:
            raise InputError(
                f"the teacher {bundle.folder} has another vocabulary than this run, so its "
                "probabilities cannot be used: train teachers with the same data and the same "
                "section tokenizer, or take a teacher's tokenizer with tokenizer.from_model"
            )
        missing = sorted(set(prepared.directions) - set(bundle.directions))
        if missing:
            raise InputError(
                f"the teacher {bundle.folder} does not translate {', '.join(missing)}, only "
                f"{', '.join(bundle.directions)}"
            )


def _key(teachers: Sequence[Bundle], prepared: PreparedData) -> str:
    """Return a hash of everything that the probabilities depend on."""
    parts = [FORMAT, TOP_K, prepared.fingerprint, *(bundle.fingerprint for bundle in teachers)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def stored_key(folder: Path) -> str | None:
    """Return the key of the probabilities in a folder, or None if they are not there or damaged."""
    try:
        manifest = read_manifest(folder)
        for name, expected in manifest["files"].items():
            STORE.check_file(folder / name, expected)
    except DamagedStoreError:
        return None
    return str(manifest["key"])
