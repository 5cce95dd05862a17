"""What is kept on disk to go on from.

    checkpoints/step-00001234/
        model.safetensors       the weights
        optimizer.safetensors   the optimizers' memory
        average.safetensors     the moving average of the weights, where there is one
        state.json              where the run is: step, place in the data, best so far, ...
        manifest.json           size and sha256 of each file, and of itself

A checkpoint without a manifest that agrees with every file does not count: the one before it is
used, with a warning. Nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from pellucid.errors import PellucidError
from pellucid.training.disk import Disk, explained

FORMAT = 1
MANIFEST, STATE = "manifest.json", "state.json"
MODEL, OPTIMIZER, AVERAGE = "model.safetensors", "optimizer.safetensors", "average.safetensors"

_NAME = re.compile(r"step-(\d{8,})")
_SAVING, _REMOVING, _DAMAGED = ".saving-", ".removing-", ".damaged-"


class DamagedCheckpointError(PellucidError):
    """A checkpoint is incomplete or was changed."""


@dataclass(frozen=True)
class Checkpoint:
    """A run at the end of a step."""

    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    average: dict[str, Tensor] | None
    state: dict[str, Any]


@dataclass
class Checkpoints:
    """The checkpoints of a run.

    keep: how many of the last ones stay. say: gets a line for what a person should know.
    """

    folder: Path
    keep: int = 3
    say: Callable[[str], None] = lambda line: None
    disk: Disk = field(default_factory=Disk)

    def save(self, step: int, checkpoint: Checkpoint, best: int | None = None) -> Path:
        """Write a checkpoint, and then remove old ones but for the `best` step's.

        A failure is a `PellucidError` and leaves what was there before intact.
        """
        final = self.path(step)
        try:
            if not self._is_whole(final):
                self._write(final, checkpoint)
            self._prune({step, *([] if best is None else [best])})
        except OSError as error:
            with contextlib.suppress(OSError):
                self._tidy()
            raise explained(error, f"the checkpoint of step {step}", self.folder) from None
        return final

    def _write(self, final: Path, checkpoint: Checkpoint) -> None:
        draft = self.folder / f"{_SAVING}{final.name}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._tidy()
        self.disk.make_folder(draft)
        files = {MODEL: checkpoint.model, OPTIMIZER: checkpoint.optimizer}
        if checkpoint.average is not None:
            files[AVERAGE] = checkpoint.average
        written = {
            name: self.disk.write_tensors(draft / name, tensors) for name, tensors in files.items()
        }
        written[STATE] = self.disk.write_json(draft / STATE, checkpoint.state)
        manifest = {"format": FORMAT, "files": written}
        manifest["sha256"] = _manifest_hash(manifest)
        self.disk.write_json(draft / MANIFEST, manifest)
        self.disk.sync_folder(draft)
        if final.exists():  # a damaged one; a whole one would have been kept
            self.disk.rename(final, self.folder / f"{_DAMAGED}{final.name}")
        self.disk.rename(draft, final)
        self.disk.sync_folder(self.folder)

    def _prune(self, wanted: set[int]) -> None:
        wanted |= set(self.steps()[-self.keep :])
        for step in self.steps():
            if step not in wanted:
                # Renamed first: a half-removed folder must not look like a checkpoint.
                doomed = self.folder / f"{_REMOVING}{self.path(step).name}"
                self.disk.rename(self.path(step), doomed)
                self.disk.remove(doomed)
        self._tidy()

    def _tidy(self) -> None:
        """Remove what an interrupted save or removal left behind."""
        for path in sorted(self.folder.glob(".*-step-*")):
            if path.name.startswith((_SAVING, _REMOVING, _DAMAGED)):
                self.disk.remove(path)

    def path(self, step: int) -> Path:
        """The folder of a step's checkpoint."""
        return self.folder / f"step-{step:08d}"

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, whole or not, oldest first."""
        if not self.folder.is_dir():
            return []
        names = (_NAME.fullmatch(path.name) for path in self.folder.iterdir() if path.is_dir())
        return sorted(int(match[1]) for match in names if match)

    def last_whole(self, steps: Iterable[int] | None = None) -> int | None:
        """The last step whose checkpoint is whole; a warning for each later one that is not."""
        for step in reversed(sorted(steps) if steps is not None else self.steps()):
            try:
                verify(self.path(step))
            except DamagedCheckpointError as error:
                self.say(f"warning: {error}; looking for the one before it")
            else:
                return step
        return None

    def _is_whole(self, path: Path) -> bool:
        try:
            verify(path)
        except DamagedCheckpointError:
            return False
        return True

    def load(self, step: int) -> Checkpoint:
        """A checkpoint that `last_whole` has found to be whole."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        folder = self.path(step)
        average = folder / AVERAGE
        try:
            return Checkpoint(
                load_file(folder / MODEL),
                load_file(folder / OPTIMIZER),
                load_file(average) if average.exists() else None,
                json.loads((folder / STATE).read_bytes()),
            )
        except (OSError, ValueError, SafetensorError) as error:
            raise DamagedCheckpointError(f"{folder} cannot be read: {error}") from None


def verify(folder: Path) -> None:
    """Compare every file of a checkpoint with the manifest; an error if anything differs."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError):
        raise DamagedCheckpointError(f"{folder} is incomplete (no readable manifest)") from None
    if not isinstance(manifest, dict) or manifest.get("sha256") != _manifest_hash(manifest):
        raise DamagedCheckpointError(f"{folder / MANIFEST} is damaged (its hash differs)")
    if manifest["format"] != FORMAT:
        raise DamagedCheckpointError(
            f"{folder} has format {manifest['format']}, and this version reads {FORMAT}"
        )
    for name, expected in manifest["files"].items():
        path = folder / name
        try:
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise DamagedCheckpointError(f"{path} cannot be read ({error.strerror})") from None
        if found != expected["sha256"]:
            raise DamagedCheckpointError(f"{path} is damaged (its hash differs)")


def _manifest_hash(manifest: dict[str, Any]) -> str:
    rest = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
