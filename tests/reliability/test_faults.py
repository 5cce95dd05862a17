"""What can go wrong on the way, and that nothing saved before is ever lost by it."""

import ast
import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from pellucid.errors import PellucidError
from pellucid.training.checkpoint.checkpoints import Checkpoints
from pellucid.training.loop import Objective
from pellucid.training.run import train
from tests.reliability.damage import BOOM, DAMAGES, malicious, sign
from tests.reliability.runs import (
    PATIENCE,
    hashes,
    in_child,
    make_recipe,
    story,
    train_and_count,
    train_and_kill,
    train_on_failing_disk,
    train_on_full_disk,
)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """8 steps with a checkpoint at each second one, of which two are kept."""
    path = make_recipe(tmp_path_factory.mktemp("recipe"))
    text = path.read_text().replace("steps = 16", "steps = 8").replace("every = 4", "every = 2")
    path.write_text(text + "keep = 2\nkeep_best = false\n")
    return path


@pytest.fixture(scope="module")
def whole(recipe: Path) -> Path:
    train(recipe, folder=recipe.parent / "whole")
    return recipe.parent / "whole"


@pytest.fixture(scope="module")
def operations(recipe: Path) -> list[str]:
    """The file operations of all saves of a run."""
    log = recipe.parent / "log.json"
    in_child(train_and_count, recipe, recipe.parent / "counted", log)
    found: list[str] = json.loads(log.read_text())
    return found


@pytest.fixture
def begun(recipe: Path, whole: Path, tmp_path: Path) -> Path:
    """A copy of a run that was killed after two checkpoints, its data prepared."""
    source = recipe.parent / "begun"
    if not source.exists():
        in_child(train_and_kill, recipe, source, 5)
    return Path(shutil.copytree(source, tmp_path / "run"))


def checkpoints(folder: Path) -> Checkpoints:
    return Checkpoints(folder / "checkpoints")


def third_save(operations: list[str]) -> range:
    """The operations of a save that also removes an old checkpoint, counted from 1."""
    starts = [n for n, name in enumerate(operations, 1) if name == "make_folder"]
    return range(starts[2], starts[3])


def test_a_save_is_what_it_should_be(operations: list[str]) -> None:
    save = [operations[n - 1] for n in third_save(operations)]
    files = ["write", "sync"] * 5  # model, optimizer, average, state, manifest
    assert save == ["make_folder", *files, "sync", "rename", "sync", "rename", "remove"]


def test_killed_at_each_operation_of_a_save(
    operations: list[str], recipe: Path, whole: Path, begun: Path, tmp_path: Path
) -> None:
    """There is a whole checkpoint each time, and the resumed run ends like the uninterrupted."""
    # The first save after the resume is the run's third.
    for at, name in enumerate((operations[n - 1] for n in third_save(operations)), 1):
        for half in (False, True) if name in ("write", "remove") else (False,):
            folder = tmp_path / f"killed-{at}-{half}"
            shutil.copytree(begun, folder)
            assert in_child(train_on_failing_disk, recipe, folder, at, half) == 9
            step = checkpoints(folder).last_whole()
            assert step in (4, 6), (at, half)
            train(recipe, folder=folder, resume=True)
            assert hashes(folder) == hashes(whole), (at, half)
            left = [path.name for path in (folder / "checkpoints").iterdir()]
            assert sorted(left) == ["step-00000006", "step-00000008"], (at, half)
            shutil.rmtree(folder)


def test_the_very_first_save_killed(recipe: Path, whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert in_child(train_on_failing_disk, recipe, folder, 7, True) == 9
    assert checkpoints(folder).steps() == []
    train(recipe, folder=folder, resume=True)
    assert hashes(folder) == hashes(whole)


def test_sigkill_from_outside_at_any_time(recipe: Path, whole: Path, tmp_path: Path) -> None:
    """The command line itself, killed by the system wherever it happens to be."""
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "pellucid", "train", str(recipe), "--folder", str(folder)]
    for seen in (2, 4):
        with subprocess.Popen([*command, "--resume"], stderr=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + PATIENCE
            while not any(step >= seen for step in checkpoints(folder).steps()):
                assert time.monotonic() < deadline
                if process.poll() is not None:
                    break
                time.sleep(0.002)
            process.kill()
        assert checkpoints(folder).last_whole() is not None
    train(folder, resume=True)
    assert hashes(folder) == hashes(whole)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_full_disk_at_each_operation(
    number: int, operations: list[str], recipe: Path, begun: Path, tmp_path: Path
) -> None:
    before = hashes(begun, 4)
    some = range(1, len(third_save(operations)) + 1, 1 if number == errno.ENOSPC else 5)
    for at in some:
        folder = tmp_path / f"full-{at}"
        shutil.copytree(begun, folder)
        said = tmp_path / "stderr"
        code = in_child(train_on_full_disk, recipe, folder, at, True, number, output=said)
        line = said.read_text()
        assert code == 1, line
        assert line.count("\n") == 1, line
        wanted = "no space left" if number == errno.ENOSPC else "Input/output error"
        assert wanted in line
        assert "what was saved before is intact" in line
        assert checkpoints(folder).last_whole() in (4, 6)
        if 4 in checkpoints(folder).steps():
            assert hashes(folder, 4) == before
        shutil.rmtree(folder)


def test_no_space_for_the_last_files(
    recipe: Path, begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever cannot be written, it is one line, and the checkpoints are there."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pellucid.training.run.write_attention", full)
    with pytest.raises(PellucidError, match="no space left for the run's files"):
        train(recipe, folder=begun, resume=True)
    assert checkpoints(begun).last_whole() == 8


def _with_small_files(recipe: Path, folder: Path) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    largest = max(p.stat().st_size for p in (folder / "checkpoints").glob("*/*.safetensors"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest - 100, largest - 100))
    train(recipe, folder=folder, resume=True)


def test_the_system_refuses_to_write(recipe: Path, begun: Path, tmp_path: Path) -> None:
    """A real refusal of the system: a limit on the size of files, just below a checkpoint's."""
    before, said = hashes(begun, 4), tmp_path / "stderr"
    assert in_child(_with_small_files, recipe, begun, output=said) == 1
    assert "no space left for the checkpoint of step 6" in said.read_text()
    assert hashes(begun, 4) == before
    assert checkpoints(begun).last_whole() == 4


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json",
                                  "average.safetensors", "manifest.json"])  # fmt: skip
@pytest.mark.parametrize("damage", list(DAMAGES))
def test_any_damage_is_found(name: str, damage: str, begun: Path) -> None:
    DAMAGES[damage](begun / "checkpoints" / "step-00000004" / name)
    said: list[str] = []
    assert Checkpoints(begun / "checkpoints", say=said.append).last_whole() == 2
    assert len(said) == 1
    assert said[0].startswith("warning: ")
    assert "step-00000004" in said[0]


def test_the_checkpoint_before_a_damaged_one_is_used(
    recipe: Path, whole: Path, begun: Path
) -> None:
    DAMAGES["flipped"](begun / "checkpoints" / "step-00000004" / "model.safetensors")
    train(recipe, folder=begun, resume=True)
    assert hashes(begun) == hashes(whole)
    assert story(begun) == story(whole)


def test_when_all_are_damaged_nothing_is_overwritten(recipe: Path, begun: Path) -> None:
    for step in (2, 4):
        DAMAGES["cut"](begun / "checkpoints" / f"step-0000000{step}" / "optimizer.safetensors")
    with pytest.raises(PellucidError, match="is damaged: nothing to resume from"):
        train(recipe, folder=begun, resume=True)
    assert checkpoints(begun).steps() == [2, 4]


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("kind", ["pickle", "torch"])
def test_a_malicious_file_runs_nothing(
    name: str, kind: str, begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even with a manifest that agrees with it."""
    monkeypatch.setenv(BOOM, str(tmp_path / "boom"))
    folder = begun / "checkpoints" / "step-00000004"
    (folder / name).write_bytes(malicious(kind))
    store = checkpoints(begun)
    sign(folder)
    assert store.last_whole() == 4
    with pytest.raises(PellucidError, match="step-00000004"):
        store.load(4)
    assert not (tmp_path / "boom").exists()


def test_no_code_here_can_unpickle() -> None:
    """Public models may come as PyTorch's .bin and numpy's .npz: read as data, or not at all."""
    safe = {"torch.load": "weights_only=True", "np.load": "allow_pickle=False"}
    package = Path(__file__).parents[2] / "src" / "pellucid"
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert node.module not in ("pickle", "shelve", "marshal", "dill"), file
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            settings = [ast.unparse(keyword) for keyword in node.keywords]
            if name in safe:
                assert safe[name] in settings, f"{file}:{node.lineno}"
            refused = (
                "pickle.",
                "shelve.",
                "marshal.",
                "dill.",
                "joblib.",
                "torch.save",
                "numpy.load",
            )
            assert not name.startswith(refused), f"{file}:{node.lineno} calls {name}"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_nan_or_infinite_loss_stops_before_the_step(
    value: float, recipe: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seventh step: the weights are as they were, and the batch is named by its pairs."""
    usual, calls = Objective.forward, []

    def forward(self: Objective, *tensors: torch.Tensor) -> object:
        sums = usual(self, *tensors)
        calls.append(tensors)
        return type(sums)(*(part * value for part in sums)) if len(calls) == 7 else sums

    with monkeypatch.context() as patched:
        patched.setattr(Objective, "forward", forward)
        with pytest.raises(PellucidError) as caught:
            train(recipe, folder=tmp_path / "run")
    message = str(caught.value)
    assert "NaN or infinite at step 7 (batch " in message
    assert "with the pairs " in message
    assert "step-00000006 is kept" in message
    assert checkpoints(tmp_path / "run").last_whole() == 6
    train(recipe, folder=tmp_path / "run", resume=True)
    assert hashes(tmp_path / "run") == hashes(whole)


def test_the_named_pairs_are_those_of_the_batch(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, seen = Objective.forward, []

    def forward(self: Objective, *tensors: torch.Tensor) -> object:
        seen.append(tensors[0])
        sums = usual(self, *tensors)
        return type(sums)(*(part * float("nan") for part in sums))

    monkeypatch.setattr(Objective, "forward", forward)
    with pytest.raises(PellucidError) as caught:
        train(recipe, folder=tmp_path / "run")
    from pellucid.data.store import PreparedData

    prepared = PreparedData.open(tmp_path / "run" / "data")
    numbers = str(caught.value).split("with the pairs ")[1].split(")")[0].split(" and ")[0]
    first = int(numbers.split(", ")[0])
    pair = prepared.splits["train"].numbers.tolist().index(first)
    ids = prepared.splits["train"].ids(pair, 0).tolist()
    row = seen[0][0].tolist()
    assert row[1 : 1 + len(ids)] == ids
