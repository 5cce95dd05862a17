"""What is kept on disk to go on from.

    checkpoints/step-00001234/
        model.safetensors       the weights
        optimizer.safetensors   the optimizers' memory
        average.safetensors     the moving average of the weights, where there is one
        state.json              where the run is: step, place in the data, best so far, ...
        manifest.json           size and sha256 of each file, and of itself

Where each process holds a share of every tensor (`training.parallel = "fsdp"`), each writes its
own, model-00001-of-00004.safetensors and so on. Either kind is read by any number of processes.

A checkpoint without a manifest that agrees with every file does not count: the one before it is
used, with a warning. Files that the manifest does not name are not opened, and nothing is ever
unpickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from torch import Tensor

from pellucid.errors import PellucidError
from pellucid.storage.disk import Disk, Written, explained
from pellucid.storage.manifest import manifest_hash
from pellucid.training.checkpoint.sharded_tensors import DamagedCheckpointError, Stored
from pellucid.training.distributed.process_group import Alone, ProcessGroup, Result, in_all, in_main

FORMAT = 1
MANIFEST, STATE = "manifest.json", "state.json"
MODEL, OPTIMIZER, AVERAGE = "model", "optimizer", "average"

_NAME = re.compile(r"step-(\d{8,})")
_NUMBER = "-{:05d}-of-{:05d}"
_FILE = re.compile(rf"({MODEL}|{OPTIMIZER}|{AVERAGE})(?:-\d{{5,}}-of-\d{{5,}})?\.safetensors")
_SAVING, _REMOVING, _DAMAGED = ".saving-", ".removing-", ".damaged-"

Tensors = TypeVar("Tensors", bound=Mapping[str, Tensor], covariant=True)


@dataclass(frozen=True)
class Checkpoint(Generic[Tensors]):
    """A run at the end of a step: the tensors as a process holds them, or as they are stored."""

    model: Tensors
    optimizer: Tensors
    average: Tensors | None
    state: dict[str, Any]


@dataclass
class Checkpoints:
    """The checkpoints of a run.

    keep: how many of the last ones stay. average: how many of the last that were planned stay too,
    for their mean. say: gets a line for what a person should know.
    """

    folder: Path
    keep: int = 3
    average: int = 0
    say: Callable[[str], None] = lambda line: None
    disk: Disk = field(default_factory=Disk)

    def save(
        self,
        step: int,
        checkpoint: Checkpoint[Mapping[str, Tensor]],
        best: int | None = None,
        group: ProcessGroup | None = None,
    ) -> Path:
        """Write a checkpoint, and then remove old ones but for the `best` step's.

        The processes of a group do it together: each writes what it holds, process 0 the rest. A
        failure in any is a `PellucidError` in all, and leaves what was there before intact.
        """
        group = group or Alone()
        final = self.path(step)
        draft = self.folder / f"{_SAVING}{final.name}"
        wanted = {step, *([] if best is None else [best])}

        def tried(work: Callable[[], Result]) -> Callable[[], Result]:
            def trying() -> Result:
                try:
                    return work()
                except OSError as error:
                    what = f"the checkpoint of step {step}"
                    raise explained(error, what, self.folder) from None

            return trying

        try:
            if group.from_main(in_main(group, tried(lambda: self._begun(draft, final)))):
                written = in_all(group, tried(lambda: self._write(draft, checkpoint, group)))
                files = {name: entry for some in written for name, entry in some.items()}
                in_main(group, tried(lambda: self._end(draft, final, files, checkpoint.state)))
            in_main(group, tried(lambda: self._prune(wanted)))
        except PellucidError:
            if group.rank == 0:
                with contextlib.suppress(OSError):
                    self._tidy()
            raise
        return final

    def _begun(self, draft: Path, final: Path) -> bool:
        """Make room for a new checkpoint; False if it is there already."""
        if self._is_whole(final):
            return False
        self.folder.mkdir(parents=True, exist_ok=True)
        self._tidy()
        self.disk.make_folder(draft)
        return True

    def _write(
        self, draft: Path, checkpoint: Checkpoint[Mapping[str, Tensor]], group: ProcessGroup
    ) -> dict[str, Written]:
        """The tensors that are this process's to save; the files that it wrote."""
        written = {}
        parts = {MODEL: checkpoint.model, OPTIMIZER: checkpoint.optimizer}
        if checkpoint.average is not None:
            parts[AVERAGE] = checkpoint.average
        for part, tensors in parts.items():
            portion = group.portion(tensors)
            if portion is not None:
                whole = portion.starts is None
                name = f"{part}{'' if whole else _NUMBER.format(group.rank + 1, group.world)}"
                name += ".safetensors"
                written[name] = self.disk.write_tensors(draft / name, portion)
        return written

    def _end(
        self, draft: Path, final: Path, files: dict[str, Written], state: dict[str, Any]
    ) -> None:
        """What is not tensors; and from now on the checkpoint counts."""
        files[STATE] = self.disk.write_json(draft / STATE, state)
        manifest = {"format": FORMAT, "files": files}
        manifest["sha256"] = manifest_hash(manifest)
        self.disk.write_json(draft / MANIFEST, manifest)
        self.disk.sync_folder(draft)
        if final.exists():  # a damaged one; a whole one would have been kept
            self.disk.rename(final, self.folder / f"{_DAMAGED}{final.name}")
        self.disk.rename(draft, final)
        self.disk.sync_folder(self.folder)

    def _prune(self, wanted: set[int]) -> None:
        wanted |= {*self.steps()[-self.keep :], *self.to_average()}
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

    def to_average(self) -> list[int]:
        """The last `average` steps that the recipe planned to save, and the last of all.

        Those that a signal or the clock brought about do not count, so that an interrupted run has
        the mean of an uninterrupted one.
        """
        steps = self.steps()
        planned = [step for step in steps if step == steps[-1] or self._was_planned(step)]
        return planned[-self.average :] if self.average else []

    def _was_planned(self, step: int) -> bool:
        try:
            state = json.loads((self.path(step) / STATE).read_bytes())
            return bool(state.get("planned", True))
        except (OSError, ValueError, AttributeError):
            return False  # damaged

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

    def load(self, step: int) -> Checkpoint[Stored]:
        """A checkpoint that `last_whole` has found to be whole; its tensors are read when used."""
        folder = self.path(step)
        try:
            names = sorted(json.loads((folder / MANIFEST).read_bytes())["files"])
            state = json.loads((folder / STATE).read_bytes())
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DamagedCheckpointError(f"{folder} cannot be read: {error}") from None
        found: dict[str, list[Path]] = {MODEL: [], OPTIMIZER: [], AVERAGE: []}
        for name in names:
            if match := _FILE.fullmatch(name):
                found[match[1]].append(folder / name)
        average = Stored(found[AVERAGE]) if found[AVERAGE] else None
        return Checkpoint(Stored(found[MODEL]), Stored(found[OPTIMIZER]), average, state)


def verify(folder: Path) -> None:
    """Compare every file of a checkpoint with the manifest; an error if anything differs."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError):
        raise DamagedCheckpointError(f"{folder} is incomplete (no readable manifest)") from None
    if not isinstance(manifest, dict) or manifest.get("sha256") != manifest_hash(manifest):
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
