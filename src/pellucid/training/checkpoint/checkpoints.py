"""Checkpoints: what a run needs on disk to be resumed.

    checkpoints/step-00001234/
        model.safetensors       the weights
        optimizer.safetensors   the optimizer state
        average.safetensors     the exponential moving average of the weights, if there is one
        state.json              progress of the run: step, position in the data, best score, ...
        manifest.json           size and sha256 of each file, and of itself

With `training.parallel = "fsdp"` each process holds a shard of every tensor and writes its own
file, model-00001-of-00004.safetensors and so on. Any number of processes can read either kind.

A checkpoint whose manifest is missing or disagrees with a file is skipped with a warning, and the
one before it is used. Files that the manifest does not list are not opened, and nothing is ever
unpickled.
"""

from __future__ import annotations

import contextlib
import errno
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from torch import Tensor

from pellucid.errors import PellucidError
from pellucid.storage.files import DISK, Disk, Entry
from pellucid.storage.folder import MANIFEST, FolderDraft, FolderFormat
from pellucid.training.checkpoint.sharded_tensors import (
    DamagedCheckpointError,
    Stored,
    write_portion,
)
from pellucid.training.distributed.process_group import (
    ProcessGroup,
    Result,
    SingleProcess,
    in_all,
    in_main,
)

FORMAT = 1
STATE = "state.json"
MODEL, OPTIMIZER, AVERAGE = "model", "optimizer", "average"

_FORMAT = FolderFormat(FORMAT, DamagedCheckpointError)
_NAME = re.compile(r"step-(\d{8,})")
_NUMBER = "-{:05d}-of-{:05d}"
_FILE = re.compile(rf"({MODEL}|{OPTIMIZER}|{AVERAGE})(?:-\d{{5,}}-of-\d{{5,}})?\.safetensors")
_SAVING, _REMOVING = ".saving-", ".removing-"

Tensors = TypeVar("Tensors", bound=Mapping[str, Tensor], covariant=True)


@dataclass(frozen=True)
class Checkpoint(Generic[Tensors]):
    """The state of a run after a step; its tensors are in memory, or on disk and read on demand."""

    model: Tensors
    optimizer: Tensors
    average: Tensors | None
    state: dict[str, Any]


@dataclass
class Checkpoints:
    """The checkpoints of a run.

    keep: number of most recent checkpoints to keep. average: number of most recent planned ones to
    keep as well, for checkpoint averaging. say: called with each message for the user.
    """

    folder: Path
    keep: int = 3
    average: int = 0
    say: Callable[[str], None] = lambda line: None
    disk: Disk = DISK

    def save(
        self,
        step: int,
        checkpoint: Checkpoint[Mapping[str, Tensor]],
        best: int | None = None,
        group: ProcessGroup | None = None,
    ) -> Path:
        """Write a checkpoint, then delete old ones, but never the `best` step's.

        All processes of a group call this: each writes the tensors it holds, process 0 the rest.
        A failure in one is a `PellucidError` in all, and leaves earlier checkpoints intact.
        """
        group = group or SingleProcess()
        final = self.path(step)
        draft = FolderDraft(final, self.folder / f"{_SAVING}{final.name}", self.disk)
        wanted = {step, *([] if best is None else [best])}

        def tried(work: Callable[[], Result]) -> Callable[[], Result]:
            def trying() -> Result:
                try:
                    return work()
                except OSError as error:
                    what = f"the checkpoint of step {step}"
                    raise cannot_write(error, what, self.folder) from None

            return trying

        try:
            if group.broadcast(in_main(group, tried(lambda: self._begun(draft)))):
                written = in_all(group, tried(lambda: self._write(draft, checkpoint, group)))
                files = {name: entry for some in written for name, entry in some.items()}
                in_main(group, tried(lambda: self._end(draft, files, checkpoint.state)))
            in_main(group, tried(lambda: self._prune(wanted)))
        except PellucidError:
            if group.rank == 0:
                with contextlib.suppress(OSError):
                    self._tidy()
            raise
        return final

    def _begun(self, draft: FolderDraft) -> bool:
        """Start a draft of the checkpoint; False if the checkpoint exists already."""
        if self._is_whole(draft.folder):
            return False
        self.folder.mkdir(parents=True, exist_ok=True)
        self._tidy()
        draft.begin()
        return True

    def _write(
        self, draft: FolderDraft, checkpoint: Checkpoint[Mapping[str, Tensor]], group: ProcessGroup
    ) -> dict[str, Entry]:
        """Write the tensors that are this process's to save; return the files it wrote.

        One file after another, each straight from its tensors: no copy of them is held.
        """
        parts = {MODEL: checkpoint.model, OPTIMIZER: checkpoint.optimizer}
        if checkpoint.average is not None:
            parts[AVERAGE] = checkpoint.average
        for part, tensors in parts.items():
            portion = group.portion(tensors)
            if portion is not None:
                whole = portion.starts is None
                name = f"{part}{'' if whole else _NUMBER.format(group.rank + 1, group.world)}"
                draft.fill(f"{name}.safetensors", partial(write_portion, portion=portion))
        return draft.files

    def _end(self, draft: FolderDraft, files: dict[str, Entry], state: dict[str, Any]) -> None:
        """Write what is not tensors; from then on the checkpoint counts."""
        draft.files.update(files)
        draft.write(STATE, _json(state))
        draft.write_manifest({"format": FORMAT}, _json)
        draft.publish()  # a checkpoint that is there is damaged: a whole one would have been kept

    def _prune(self, wanted: set[int]) -> None:
        wanted |= {*self.steps()[-self.keep :], *self.to_average()}
        for step in self.steps():
            if step not in wanted:
                # Renamed first: a half-deleted folder must not look like a checkpoint.
                doomed = self.folder / f"{_REMOVING}{self.path(step).name}"
                self.disk.rename(self.path(step), doomed)
                self.disk.remove(doomed)
        self._tidy()

    def _tidy(self) -> None:
        """Delete what an interrupted save or deletion left behind."""
        for path in sorted(self.folder.glob(".*-step-*")):
            if path.name.startswith((_SAVING, _REMOVING)):
                self.disk.remove(path)

    def path(self, step: int) -> Path:
        """Return the folder of a step's checkpoint."""
        return self.folder / f"step-{step:08d}"

    def steps(self) -> list[int]:
        """List the steps that have a checkpoint, damaged ones included, oldest first."""
        if not self.folder.is_dir():
            return []
        names = (_NAME.fullmatch(path.name) for path in self.folder.iterdir() if path.is_dir())
        return sorted(int(match[1]) for match in names if match)

    def to_average(self) -> list[int]:
        """List the steps to average: the last `average` planned by the recipe, and the very last.

        Checkpoints saved because of a signal or the clock do not count, so that an interrupted
        run ends with the same average as an uninterrupted one.
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
        """Return the last step with an undamaged checkpoint; warn of each damaged one after it."""
        for step in reversed(sorted(steps) if steps is not None else self.steps()):
            try:
                verify(self.path(step))
            except DamagedCheckpointError as error:
                self.say(f"warning: {error}; trying the one before it")
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
        """Load a checkpoint that `last_whole` has verified; its tensors are read on demand."""
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
    """Compare every file of a checkpoint with the manifest; raise an error if one differs."""
    for name, expected in _FORMAT.read_manifest(folder)["files"].items():
        _FORMAT.check_file(folder / name, expected)


def cannot_write(error: OSError, what: str, folder: Path) -> PellucidError:
    """Explain a failure to write in one line: what is still there, and what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return PellucidError(
            f"no space left for {what} in {folder}: what was saved before is intact; free some "
            "space and continue with --resume"
        )
    return PellucidError(
        f"cannot write {what} in {folder} ({error.strerror or error}): what was saved before is "
        "intact; fix the cause and continue with --resume"
    )


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
