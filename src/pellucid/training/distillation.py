"""Teachers: models whose answers a new model learns besides the right ones (distillation).

The right token alone says little: that here stands "Hund", and not that "Tier" would have done and
"läuft" would not. Models that are there already know that much. At each place of the training
pairs, after the right tokens before it, each teacher holds some tokens probable; the mean of the
teachers' probabilities, which is what an ensemble of them would go by, becomes a part of the target
(`loss.Taught`). One model so comes close to several (Hinton and others, 2015; for translation Kim
and Rush, 2016).

The answers do not change while the new model learns, so the teachers are asked once, and of each
answer the `TOP` most probable tokens are kept, made to add up to 1. They stand in a store like
the prepared data (`text.store`), a row for each target token of each pair and one for its end:

    manifest.json       of which data and teachers they are
    tokens              (rows, TOP) uint16 or uint32
    probabilities       (rows, TOP) float16

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
    DamagedStoreError,
    PreparedData,
    Split,
    check_file,
    publish,
    read_manifest,
)
from pellucid.errors import InputError
from pellucid.model import Transformer
from pellucid.storage.manifest import file_hash
from pellucid.training.loss import CHUNK_NUMBERS, Taught
from pellucid.training.validate import tensors_of

if TYPE_CHECKING:
    from rich.console import Console

TOP = 16
"""Tokens that are kept of each answer. A model trained with label smoothing spreads a tenth over
the whole vocabulary; of the rest nearly all is in the first few."""

ASK_TOKENS = 4000
"""Tokens of a batch of questions."""

Autocast = Callable[[], AbstractContextManager[Any]]

FORMAT = 1
TOKENS, PROBABILITIES = "tokens", "probabilities"


@dataclass(frozen=True)
class TeacherProbabilities:
    """The answers to a run's training pairs, memory-mapped."""

    tokens: NDArray[Any]
    """(rows, TOP)"""
    probabilities: NDArray[np.float16]
    """(rows, TOP), each row adding up to 1; all 0 where no teacher was asked."""
    split: Split
    weight: float
    """How much of the target they are."""

    @classmethod
    def open(
        cls, folder: Path, key: str, prepared: PreparedData, weight: float
    ) -> TeacherProbabilities:
        """Those that `ask_teachers` has made, and given the key of."""
        manifest = read_manifest(folder)
        if manifest["key"] != key:
            raise DamagedStoreError(f"{folder} holds the answers of other teachers: resume the run")
        arrays = [
            np.memmap(folder / name, kind, mode="r").view(np.ndarray).reshape(-1, TOP)
            for name, kind in ((TOKENS, manifest["dtype"]), (PROBABILITIES, "<f2"))
        ]
        return cls(arrays[0], arrays[1], prepared.splits["train"], weight)

    def of(self, batch: Batch, device: torch.device) -> Taught:
        """The answers where a batch's targets stand, in the order of `validate.Tensors`."""
        rows = rows_of(self.split, batch)
        tokens, shares = self.tokens[rows].astype(np.int64), self.probabilities[rows]
        return Taught(
            torch.from_numpy(tokens).to(device, non_blocking=True),
            torch.from_numpy(shares.astype(np.float32) * self.weight).to(device, non_blocking=True),
        )


def rows_of(split: Split, batch: Batch) -> NDArray[np.int64]:
    """Where the answers to a batch stand: for each pair its target tokens', and its end's."""
    starts, lengths = (np.zeros(len(batch), np.int64) for _ in range(2))
    for side in (0, 1):
        here = batch.source_sides == 1 - side
        pairs, offsets = batch.pairs[here], split.offsets[side]
        first = _rows(split, 0) if side else 0
        starts[here] = first + offsets[pairs] + pairs  # each pair before has one for its end
        lengths[here] = offsets[pairs + 1] - offsets[pairs] + 1
    return runs(starts, lengths)


def _rows(split: Split, side: int) -> int:
    return len(split.tokens[side]) + len(split)


def ask_teachers(
    teachers: Sequence[Bundle],
    prepared: PreparedData,
    folder: Path,
    device: torch.device,
    *,
    autocast: Autocast = nullcontext,
    console: Console | None = None,
) -> str:
    """Ask some models about all training pairs, unless that was done; the key of the answers."""
    check_teachers(teachers, prepared)
    key = _key(teachers, prepared)
    if kept_lessons(folder) == key:
        return key
    shutil.rmtree(folder, ignore_errors=True)
    draft = folder / "writing"
    draft.mkdir(parents=True)
    kind = "<u2" if prepared.tokenizer.vocab_size <= 1 << 16 else "<u4"
    split = prepared.splits["train"]
    shape = (_rows(split, 0) + _rows(split, 1), TOP)
    tokens = np.memmap(draft / TOKENS, kind, mode="w+", shape=shape)
    probabilities = np.memmap(draft / PROBABILITIES, "<f2", mode="w+", shape=shape)
    models = [bundle.model(str(device)).eval() for bundle in teachers]
    batches = each_pair_once(prepared, BatchConfig(max_tokens=ASK_TOKENS), "train")
    with Progress(console) as progress:
        count = f"{len(models)} teachers" if len(models) > 1 else "the teacher"
        progress.say(f"asking {count} about the training pairs")
        step = progress.step("asking", "pairs", total=len(split) * len(prepared.directions))
        for batch in batches.epoch(0):
            rows = rows_of(split, batch)
            tokens[rows], probabilities[rows] = answers(models, batch, device, autocast)
            step.advance(len(batch))
    for array in (tokens, probabilities):
        array.flush()
    about = {
        name: {"bytes": (draft / name).stat().st_size, "sha256": file_hash(draft / name)}
        for name in (TOKENS, PROBABILITIES)
    }
    publish(draft, folder, {"format": FORMAT, "key": key, "dtype": kind, "files": about})
    draft.rmdir()
    return key


@torch.inference_mode()
def answers(
    models: Sequence[Transformer],
    batch: Batch,
    device: torch.device,
    autocast: Autocast = nullcontext,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The most probable tokens `(N, TOP)` where a batch's targets stand, and how probable."""
    source, target_in, places, _ = tensors_of(batch, device)
    size = max(1, CHUNK_NUMBERS // models[0].config.vocab_size)
    found: list[tuple[Tensor, Tensor]] = []
    with autocast():
        states = [
            model.states(source, target_in).flatten(0, 1).index_select(0, places)
            for model in models
        ]
        for start in range(0, len(places), size):
            mean = sum(
                model.output(some[start : start + size]).float().softmax(dim=-1)
                for model, some in zip(models, states, strict=True)
            )
            assert isinstance(mean, Tensor)
            highest, tokens = mean.topk(min(TOP, mean.shape[1]), dim=-1)
            found.append((tokens, highest / highest.sum(dim=-1, keepdim=True)))
    chosen, shares = (torch.cat(parts).cpu().numpy() for parts in zip(*found, strict=True))
    missing = ((0, 0), (0, TOP - chosen.shape[1]))  # of a vocabulary that is smaller than that
    return np.pad(chosen, missing), np.pad(shares, missing)


def check_teachers(teachers: Sequence[Bundle], prepared: PreparedData) -> None:
    """Raise unless every teacher reads and writes as the new model will."""
    for bundle in teachers:
        if bundle.tokenizer.sha256 != prepared.tokenizer.sha256:
            raise InputError(
                f"the teacher {bundle.folder} has another vocabulary than this run, so what it "
                "says cannot be learned: train teachers with the same data and the same section "
                "tokenizer, or let this run take a teacher's pieces with tokenizer.from_model"
            )
        missing = sorted(set(prepared.directions) - set(bundle.directions))
        if missing:
            raise InputError(
                f"the teacher {bundle.folder} does not translate {', '.join(missing)}: it knows "
                f"{', '.join(bundle.directions)}"
            )


def _key(teachers: Sequence[Bundle], prepared: PreparedData) -> str:
    """Stands for what the answers depend on."""
    decides = [FORMAT, TOP, prepared.fingerprint, *(bundle.fingerprint for bundle in teachers)]
    return hashlib.sha256(json.dumps(decides).encode()).hexdigest()


def kept_lessons(folder: Path) -> str | None:
    """The key of the answers that stand whole in a folder, if some do."""
    try:
        manifest = read_manifest(folder)
        for name, expected in manifest["files"].items():
            check_file(folder / name, expected, verify=True)
    except DamagedStoreError:
        return None
    return str(manifest["key"])
