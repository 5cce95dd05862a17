"""Runs of several processes on this machine: started as torchrun starts them, or by torchrun.

`together` starts them from the fork server of `runs`, which takes an instant in place of the
seconds that every import of PyTorch takes. What torchrun does for its workers (a store at which
they meet, the variables that say who they are) is done here.
"""

import importlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch.distributed as dist

from pellucid.training import run as run_module
from pellucid.training.loop import Loop, Objective
from tests.reliability.runs import (
    PATIENCE,
    _child,
    _context,
    train_on_failing_disk,
    train_on_full_disk,
)

_context.set_forkserver_preload(
    ["pellucid.training.run", "pellucid.training.distributed.fsdp", "tests.reliability.many"]
)

ROOT = Path(__file__).parents[2]


def new_run(data: Path, folder: Path) -> Path:
    """The folder of a run that finds its data prepared."""
    shutil.copytree(data, folder / "data")
    return folder


@contextmanager
def started(count: int, said: Path, work: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
    """`count` processes that find each other; what each says on stderr goes to `said-RANK`."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    meeting = {
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "OMP_NUM_THREADS": "1",
    }
    processes = []
    try:
        for rank in range(count):
            who = {**meeting, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            output = said.with_name(f"{said.name}-{rank}")
            process = _context.Process(
                target=_child, args=(output, _as_one, (who, work, arguments))
            )
            process.start()
            processes.append(process)
        yield processes
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
            process.join()


def _as_one(who: dict[str, str], work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    os.environ.update(who)
    work(*arguments)


def together(count: int, said: Path, work: Callable[..., Any], *arguments: Any) -> list[int]:
    """The exit codes of `count` processes that all call a function."""
    with started(count, said, work, *arguments) as processes:
        ends = time.monotonic() + PATIENCE
        for process in processes:
            process.join(max(0.0, ends - time.monotonic()))
            assert not process.is_alive(), f"{work.__name__}{arguments} hangs"
        return [process.exitcode for process in processes]


def lines(said: Path, rank: int) -> list[str]:
    """What a process said on stderr."""
    return said.with_name(f"{said.name}-{rank}").read_text().splitlines()


# What the processes do


def train(recipe: Path, folder: Path, *settings: str) -> None:
    """Train, or go on."""
    run_module.train(recipe, folder=folder, resume=True, overrides=settings)


def before_step(act: Callable[[Loop, list[Any]], None]) -> None:
    """From now on do something at the beginning of each step, with its batches."""
    usual = Loop._step

    def step(self: Loop, batches: list[Any], *more: Any) -> Any:
        act(self, batches)
        return usual(self, batches, *more)

    Loop._step = step  # type: ignore[method-assign]


def train_and_record(recipe: Path, folder: Path, last: int, *settings: str) -> None:
    """Train until a step and get SIGTERM there; write down which pairs each step took."""

    def record(loop: Loop, batches: list[Any]) -> None:
        step = loop.state.step + 1
        with (folder / f"order-{loop.group.rank}.jsonl").open("a") as file:
            for batch in batches:
                row = [step, batch.epoch, batch.index, batch.pairs.tolist(), batch.target_tokens]
                file.write(json.dumps(row) + "\n")
        if step == last:
            loop.signals.received = signal.SIGTERM

    before_step(record)
    train(recipe, folder, *settings)


def train_and_weigh(recipe: Path, folder: Path, *settings: str) -> None:
    """Train, and write down how many numbers this process holds, and how many there are in all."""

    def weigh(loop: Loop, batches: list[Any]) -> None:
        if loop.state.step == 4:
            parameters = list(loop.model.parameters())
            held = [*parameters, *(t for t in loop.optimizers.tensors().values() if t.ndim)]
            own = [len(getattr(t, "to_local", lambda t=t: t)().reshape(-1)) for t in held]
            numbers = [sum(own[: len(parameters)]), sum(own), sum(t.numel() for t in held)]
            (folder / f"weight-{loop.group.rank}.json").write_text(json.dumps(numbers))

    before_step(weigh)
    train(recipe, folder, *settings)


def order(folder: Path) -> list[list[Any]]:
    """What `train_and_record` wrote, of all processes, in the order of steps and batches."""
    rows = [
        json.loads(line)
        for path in folder.glob("order-*.jsonl")
        for line in path.read_text().splitlines()
    ]
    return sorted(rows)


def signal_at(recipe: Path, folder: Path, step: int, ranks: list[int], number: int) -> None:
    """Train, and get a signal in some processes at the beginning of a step, on the first start."""

    def act(loop: Loop, batches: list[Any]) -> None:
        done = folder / f"signalled-{loop.group.rank}"
        if loop.state.step + 1 == step and loop.group.rank in ranks and not done.exists():
            done.touch()
            os.kill(os.getpid(), number)

    before_step(act)
    train(recipe, folder, "training.timeout=5" if number == signal.SIGSTOP else "title=''")


def train_with_nan(recipe: Path, folder: Path, step: int, rank: int) -> None:
    """Train, and in one process the loss of one step is NaN."""
    now = [0]
    before_step(lambda loop, batches: now.__setitem__(0, loop.state.step + 1))
    usual = Objective.forward

    def forward(self: Objective, *tensors: Any) -> Any:
        sums = usual(self, *tensors)
        if now[0] == step and dist.get_rank() == rank:
            return sums._replace(plain=sums.plain * float("nan"))
        return sums

    Objective.forward = forward  # type: ignore[method-assign]
    train(recipe, folder)


def train_without_pickle(recipe: Path, folder: Path, *settings: str) -> None:
    """Train, while nothing can be unpickled."""
    import pickle

    import torch

    def refuse(*arguments: Any, **named: Any) -> Any:
        raise AssertionError("something was unpickled")

    pickle.loads = pickle.load = pickle.Unpickler = refuse  # type: ignore[misc, assignment]
    torch.load = refuse
    train(recipe, folder, *settings)


def train_within_shares(recipe: Path, folder: Path) -> None:
    """Go on, while nothing may be made whole before the first step, nor in any save."""
    from torch.distributed.tensor import DTensor

    from pellucid.model import Transformer
    from pellucid.training.checkpoint.checkpoints import Checkpoints
    from pellucid.training.checkpoint.sharded_tensors import Stored

    watching = [True]

    def check(right: bool, what: str) -> None:
        assert right or not watching[0], f"{what} is whole in one process"

    def before(owner: Any, name: str, test: Callable[..., None]) -> None:
        usual = getattr(owner, name)

        def tested(self: Any, *arguments: Any, **named: Any) -> Any:
            test(self, *arguments)
            return usual(self, *arguments, **named)

        setattr(owner, name, tested)

    before(DTensor, "full_tensor", lambda *_: check(False, "a gathered tensor"))
    before(Stored, "__getitem__", lambda stored, name: check(not stored.shape(name), name))
    build, save = Transformer.__init__, Checkpoints.save

    def built(self: Transformer, *arguments: Any) -> None:
        build(self, *arguments)
        check(all(parameter.is_meta for parameter in self.parameters()), "the model")

    def saved(self: Checkpoints, *arguments: Any) -> Path:
        watching[0] = True
        path = save(self, *arguments)
        watching[0] = False
        return path

    Transformer.__init__, Checkpoints.save = built, saved  # type: ignore[method-assign]
    before_step(lambda loop, batches: watching.__setitem__(0, False))
    train(recipe, folder)


def save_again(source: Path, target: Path, step: int) -> None:
    """Load a checkpoint, however many saved it, and save it as this many processes hold it."""
    import torch

    from pellucid.config import load_recipe
    from pellucid.data.store import PreparedData
    from pellucid.training.checkpoint.checkpoints import Checkpoint, Checkpoints
    from pellucid.training.optim.averaging import MovingAverage
    from pellucid.training.optim.optimizers import Optimizers

    recipe = load_recipe(source / "recipe.toml")
    vocabulary = PreparedData.open(source / "data").tokenizer.vocab_size
    group = run_module._process_group(recipe, torch.device("cpu"))
    model = group.build_model(recipe.model.config(vocabulary), initialised=False)
    parameters = dict(model.named_parameters())
    optimizers, average = Optimizers(model, recipe.training), MovingAverage(model, 0.9)
    saved = Checkpoints(source / "checkpoints").load(step)
    assert saved.average is not None
    with torch.no_grad():
        for name, tensor in group.load_tensors(saved.model, parameters):
            parameters[name].copy_(tensor)
    optimizers.restore(dict(group.load_tensors(saved.optimizer, parameters)))
    average.restore(dict(group.load_tensors(saved.average, parameters)))
    again = Checkpoint(parameters, optimizers.tensors(), average.weights, saved.state)
    Checkpoints(target / "checkpoints").save(step, again, None, group)
    group.close()


def fail_in_save(
    recipe: Path, folder: Path, rank: int, at: int, half: bool, number: int | None
) -> None:
    """Train, and in one process a file operation of the saves fails, or kills it (no number)."""
    if os.environ["RANK"] != str(rank):
        train(recipe, folder)
    elif number is None:
        train_on_failing_disk(recipe, folder, at, half)
    else:
        train_on_full_disk(recipe, folder, at, half, number)


def exchange() -> None:
    """What the processes tell each other, checked in each of them."""
    import torch

    from pellucid.config import TrainingConfig
    from pellucid.training.distributed.ddp import DataParallelGroup

    group = DataParallelGroup(TrainingConfig(steps=1), torch.device("cpu"))
    own = group.rank == 0
    for value in (None, True, 0.1, {"ü": [1, "é" * 3000]}, "x" * 1024, ["\ud800", float("inf")]):
        assert group.broadcast(value if own else "mine") == value
        assert group.broadcast(value if own else [], patient=True) == value
    assert group.gather(["a" * 5000 * group.rank, group.rank]) == [
        ["a" * 5000 * rank, rank] for rank in range(group.world)
    ]
    assert group.sum(1.5, group.rank, 2**40 + group.rank) == [4.5, 3, 3 * 2**40 + 3]
    assert group.any(group.rank == 2)
    assert not group.any(False)
    group.close()


# torchrun


def torchrun(
    *arguments: object, restarts: int = 0, work: str | None = None, meet: Sequence[str] = ()
) -> subprocess.Popen[str]:
    """torchrun with 2 processes of `pellucid train`, or of a function of this module.

    meet: how it meets the torchruns of other machines; otherwise it is alone.
    """
    program = ["-m", "pellucid", "train"] if work is None else ["-m", __name__, work]
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run",
         *(meet or ("--standalone", "--nproc-per-node", "2")),
         "--max-restarts", str(restarts), *program, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def two_machines() -> list[str]:
    """What each of two torchruns with one process is told so that they meet on this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", "test",
            "--rdzv-endpoint", f"127.0.0.1:{port}", "--local-addr", "127.0.0.1"]  # fmt: skip


if __name__ == "__main__":
    name, *values = sys.argv[1:]
    converted = [json.loads(v) if v[0] in "[0123456789" else Path(v) for v in values]
    getattr(importlib.import_module("tests.reliability.many"), name)(*converted)
