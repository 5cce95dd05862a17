"""Tiny training runs to be interrupted, and processes that can be killed.

Children come from a fork server that has imported everything once, so that each starts in an
instant, and from a process without threads.
"""

import hashlib
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy.random  # noqa: F401  what a first step would import, once for all children
import safetensors.torch  # noqa: F401
import torch._dynamo
import torch.utils.tensorboard  # noqa: F401

from pellucid.errors import PellucidError
from pellucid.storage.files import Disk
from pellucid.training import run as run_module
from pellucid.training.callbacks.callback import Callback, StepReport
from pellucid.training.callbacks.metrics_file import CLOCK, read_metrics
from pellucid.training.checkpoint.checkpoints import Checkpoints
from tests.made_up import write_tsv
from tests.storage.failing_disk import FailingDisk

PATIENCE = 240  # seconds for a child on a busy machine

RECIPE = """
[data]
directions = ["en-fr"]
[[data.train]]
path = "train.tsv"
languages = ["en", "fr"]
[[data.valid]]
path = "valid.tsv"
languages = ["en", "fr"]
[tokenizer]
vocab_size = 420
[batches]
max_tokens = 400
[model]
preset = "tiny"
d_model = 16
num_heads = 2
d_ff = 32
encoder_layers = 1
decoder_layers = 1
norm = "pre"
dropout = 0.2
[training]
steps = 16
optimizer = "muon"
learning_rate = 0.01
warmup_steps = 3
schedule = "warmup_stable_decay"
ema_decay = 0.9
seed = 5
threads = 1
[validation]
every = 8
translate = false
[checkpoints]
every = 4
minutes = 0
"""


def make_recipe(folder: Path, *, pairs: int = 60, extra: str = "") -> Path:
    """A recipe with its corpora, in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tsv(folder / "train.tsv", pairs)
    write_tsv(folder / "valid.tsv", 6, seed=9)
    path = folder / "toy.toml"
    path.write_text(RECIPE + extra, encoding="utf-8")
    return path


def hashes(folder: Path, step: int | None = None) -> dict[str, str]:
    """What the weights, the optimizer and the averages of a step are, and the last bundle's."""
    checkpoints = Checkpoints(folder / "checkpoints")
    step = checkpoints.steps()[-1] if step is None else step
    files = sorted(checkpoints.path(step).glob("*.safetensors"))
    files += [path for path in [folder / "bundle" / "weights.safetensors"] if path.exists()]
    return {f"{step} {f.name}": hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def story(folder: Path) -> list[dict[str, Any]]:
    """Everything that was measured, but for the clock and how the run was ended."""
    return [
        {key: value for key, value in line.items() if key not in CLOCK}
        for line in read_metrics(folder)
        if line["kind"] != "end"
    ]


def same(one: Path, other: Path) -> None:
    """Two runs ended with the same bits, and were measured alike."""
    assert hashes(one) == hashes(other)
    assert story(one) == story(other)


_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["pellucid.training.run", "tests.reliability.runs"])


def in_child(work: Callable[..., Any], *arguments: Any, output: Path | None = None) -> int:
    """Call a function in a process of its own; its exit code, -9 if it was killed."""
    process = _context.Process(target=_child, args=(output, work, arguments))
    process.start()
    process.join(PATIENCE)
    if process.is_alive():
        process.kill()
        process.join()
        raise AssertionError(f"{work.__name__}{arguments} did not end")
    assert process.exitcode is not None
    return process.exitcode


def _child(output: Path | None, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """As the command line does: an error is one line on stderr and an exit code."""
    if output is not None:
        handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 2)
    try:
        work(*arguments)
    except PellucidError as error:
        print(f"pellucid: {error}", file=sys.stderr, flush=True)
        os._exit(error.exit_code)


class Hook(Callback):
    """A callback that does something after a step."""

    def __init__(self, step: int, act: Callable[[], None]) -> None:
        self.step, self.act = step, act

    def on_step(self, report: StepReport) -> None:
        if report.step == self.step:
            self.act()


def train_and_kill(recipe: Path, folder: Path, step: int, overrides: tuple[str, ...] = ()) -> None:
    """Train (or go on) and be killed right after a step."""
    train_and_signal(recipe, folder, step, signal.SIGKILL, overrides)


def train_and_signal(
    recipe: Path, folder: Path, step: int, number: int, overrides: tuple[str, ...] = ()
) -> None:
    """Train (or go on) and get a signal right after a step."""
    usual = run_module.default_callbacks
    hook = Hook(step, lambda: os.kill(os.getpid(), number))
    run_module.default_callbacks = lambda *a: [*usual(*a), hook]  # type: ignore[assignment]
    run_module.train(recipe, folder=folder, resume=True, overrides=overrides)


def train_with_disk(recipe: Path, folder: Path, disk: Disk) -> None:
    """Train (or go on) on a disk that fails."""

    class Failing(Checkpoints):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, disk=disk)

    run_module.Checkpoints = Failing  # type: ignore[misc]
    run_module.train(recipe, folder=folder, resume=True)


def train_on_failing_disk(recipe: Path, folder: Path, at: int, half: bool) -> None:
    """Train, and die as if by SIGKILL at a file operation of the saves."""
    train_with_disk(recipe, folder, FailingDisk(at, lambda: os._exit(9), half))


def train_on_full_disk(recipe: Path, folder: Path, at: int, half: bool, number: int) -> None:
    """Train, and get an error of the system at a file operation of the saves."""

    def fail() -> None:
        raise OSError(number, os.strerror(number))

    train_with_disk(recipe, folder, FailingDisk(at, fail, half))


def train_and_count(recipe: Path, folder: Path, log: Path) -> None:
    """Train, and write down which file operations the saves made."""
    disk = FailingDisk(0, lambda: None)
    train_with_disk(recipe, folder, disk)
    log.write_text(json.dumps(disk.log))
