"""Processes that share one model save and load their shares, as safely as one process does."""

import errno
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from pellucid.bundle import Bundle
from pellucid.errors import PellucidError
from pellucid.training.checkpoint.checkpoints import Checkpoints, verify
from tests.reliability.damage import BOOM, DAMAGES, malicious, sign
from tests.reliability.many import (
    fail_in_save,
    lines,
    new_run,
    save_again,
    together,
    torchrun,
    train,
    train_and_record,
    train_within_shares,
)
from tests.reliability.runs import PATIENCE, hashes, make_recipe, same

PARTS = ("model", "optimizer", "average")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """8 steps in shards, with a checkpoint at each fourth."""
    path = make_recipe(tmp_path_factory.mktemp("recipe"))
    text = path.read_text().replace("steps = 16", "steps = 8")
    path.write_text(text.replace("seed = 5", 'seed = 5\nparallel = "fsdp"'))
    return path


@pytest.fixture(scope="module")
def whole(recipe: Path) -> Path:
    """The run of two processes that nothing interrupts."""
    folder = recipe.parent / "whole"
    assert together(2, recipe.parent / "said", train, recipe, folder) == [0, 0]
    return folder


@pytest.fixture(scope="module")
def stopped(recipe: Path, whole: Path) -> Path:
    """A run of which two processes made 6 steps, with checkpoints of the steps 4 and 6."""
    folder = new_run(whole / "data", recipe.parent / "stopped")
    said = recipe.parent / "said"
    assert together(2, said, train_and_record, recipe, folder, 6) == [143, 143]
    return folder


@pytest.fixture
def begun(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def checkpoints(folder: Path) -> Checkpoints:
    return Checkpoints(folder / "checkpoints")


def all_tensors(folder: Path, step: int) -> dict[str, torch.Tensor]:
    """Every tensor of a checkpoint, in one piece."""
    saved = checkpoints(folder).load(step)
    assert saved.average is not None
    parts = zip(PARTS, (saved.model, saved.optimizer, saved.average), strict=True)
    return {f"{part} {name}": tensor for part, some in parts for name, tensor in some.items()}


# What is written


def test_each_process_writes_its_share(whole: Path) -> None:
    folder = checkpoints(whole).path(8)
    verify(folder)
    files = {f"{part}-0000{n}-of-00002.safetensors" for part in PARTS for n in (1, 2)}
    names = {path.name for path in folder.iterdir()}
    assert names == files | {"state.json", "manifest.json"}
    assert json.loads((folder / "manifest.json").read_text())["files"].keys() == {
        *files,
        "state.json",
    }
    for part in PARTS:
        first, second = (load_file(folder / f"{part}-0000{n}-of-00002.safetensors") for n in (1, 2))
        counts = [sum(t.numel() for t in some.values() if t.ndim) for some in (first, second)]
        assert counts[0] == pytest.approx(counts[1], rel=0.02)
    tensors = all_tensors(whole, 8)
    assert sum(t.numel() for t in tensors.values()) > sum(counts)


def test_nothing_is_whole_while_it_is_saved_or_loaded(
    recipe: Path, whole: Path, begun: Path, tmp_path: Path
) -> None:
    """In no process; not even the model to begin with, when a run goes on."""
    ended = together(2, tmp_path / "said", train_within_shares, recipe, begun)
    assert ended == [0, 0], lines(tmp_path / "said", 0) + lines(tmp_path / "said", 1)
    same(whole, begun)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_pytorch_reads_our_shares(whole: Path, tmp_path: Path) -> None:
    """With the reader of its own distributed checkpoint."""
    import torch.distributed.checkpoint as dcp

    for file in checkpoints(whole).path(8).glob("model-*.safetensors"):
        shutil.copy(file, tmp_path)
    ours = checkpoints(whole).load(8).model
    theirs = {name: torch.full(ours.shape(name), torch.nan) for name in ours}
    reader = dcp.HuggingFaceStorageReader(str(tmp_path))
    dcp.load(theirs, storage_reader=reader, no_dist=True)
    assert all(torch.equal(theirs[name], tensor) for name, tensor in ours.items())


def test_two_three_one_and_back_keep_every_bit(whole: Path, tmp_path: Path) -> None:
    said, first = tmp_path / "said", all_tensors(whole, 8)
    source = whole
    for count in (3, 1, 2):
        target = new_run(whole / "data", tmp_path / str(count))
        shutil.copy(whole / "recipe.toml", target)
        assert together(count, said, save_again, source, target, 8) == [0] * count
        names = {path.name for path in checkpoints(target).path(8).glob("model*")}
        numbers = range(1, count + 1)
        several = {f"model-0000{n}-of-0000{count}.safetensors" for n in numbers}
        assert names == (several if count > 1 else {"model.safetensors"})
        found = all_tensors(target, 8)
        assert found.keys() == first.keys()
        assert all(torch.equal(found[name], tensor) for name, tensor in first.items())
        source = target
    assert hashes(source).items() <= hashes(whole).items()


def test_the_mean_of_checkpoints_in_shares_is_the_bundle(
    recipe: Path, whole: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    assert together(2, tmp_path / "said", train, recipe, run, "training.average_checkpoints=2") == [
        0,
        0,
    ]
    steps = [checkpoints(run).load(step).model for step in (4, 8)]
    for name, parameter in Bundle.open(run / "bundle").model().named_parameters():
        mean = (steps[0][name].double() + steps[1][name].double()) / 2
        assert torch.equal(parameter, mean.float())


# What may go wrong


def operations() -> list[object]:
    """Process, operation of its save, whether half of it is done; most are for the slow tests."""
    # process 0: make_folder, (write, sync) of 3 parts, of state and manifest, sync, rename, sync
    first = [(0, at, False) for at in range(1, 15)] + [(0, at, True) for at in (2, 4, 6, 8, 10)]
    # process 1: (write, sync) of 3 parts
    second = [(1, at, False) for at in range(1, 7)] + [(1, at, True) for at in (1, 3, 5)]
    quick = {(0, 10, True), (1, 3, True)}
    return [
        pytest.param(*case, marks=() if case in quick else pytest.mark.slow)
        for case in (*first, *second)
    ]


@pytest.mark.parametrize(("rank", "at", "half"), operations())
def test_a_process_killed_in_a_save(
    rank: int, at: int, half: bool, recipe: Path, whole: Path, begun: Path, tmp_path: Path
) -> None:
    """There is a whole checkpoint, and the resumed run ends like the uninterrupted one."""
    said = tmp_path / "said"
    ended = together(2, said, fail_in_save, recipe, begun, rank, at, half, None)
    assert (ended[rank], ended[1 - rank]) == (9, 1), lines(said, 1 - rank)
    assert f"process {1 - rank} lost another one" in lines(said, 1 - rank)[0]
    assert checkpoints(begun).last_whole() in (6, 8)
    assert together(2, said, train, recipe, begun) == [0, 0]
    same(whole, begun)
    left = {path.name for path in (begun / "checkpoints").iterdir()}
    assert left == {"step-00000004", "step-00000006", "step-00000008"}


@pytest.mark.parametrize(("rank", "at"), [pytest.param(0, 4, marks=pytest.mark.slow), (1, 3)])
def test_a_full_disk_in_one_process_ends_all_with_one_reason(
    rank: int, at: int, recipe: Path, begun: Path, tmp_path: Path
) -> None:
    before, said = hashes(begun, 6), tmp_path / "said"
    ended = together(2, said, fail_in_save, recipe, begun, rank, at, True, errno.ENOSPC)
    assert ended == [1, 1]
    (line,) = lines(said, 0)
    assert "no space left for the checkpoint of step 8" in line
    assert "what was saved before is intact" in line
    assert lines(said, 1) == [line]
    assert checkpoints(begun).last_whole() == 6
    assert hashes(begun, 6) == before
    left = {path.name for path in (begun / "checkpoints").iterdir()}
    assert left == {"step-00000004", "step-00000006"}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("damage", list(DAMAGES))
def test_damage_to_any_share_is_found(part: str, damage: str, begun: Path) -> None:
    DAMAGES[damage](checkpoints(begun).path(6) / f"{part}-00002-of-00002.safetensors")
    said: list[str] = []
    assert Checkpoints(begun / "checkpoints", say=said.append).last_whole() == 4
    assert len(said) == 1
    assert f"step-00000006/{part}-00002-of-00002.safetensors" in said[0]


def test_the_checkpoint_before_a_damaged_one_is_used(
    recipe: Path, whole: Path, begun: Path, tmp_path: Path
) -> None:
    DAMAGES["flipped"](checkpoints(begun).path(6) / "optimizer-00002-of-00002.safetensors")
    assert together(2, tmp_path / "said", train, recipe, begun) == [0, 0]
    assert hashes(begun) == hashes(whole)


@pytest.mark.parametrize("kind", ["pickle", "torch"])
def test_a_malicious_share_runs_nothing(
    kind: str, begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even with a manifest that agrees with it."""
    monkeypatch.setenv(BOOM, str(tmp_path / "boom"))
    folder = checkpoints(begun).path(6)
    (folder / "model-00002-of-00002.safetensors").write_bytes(malicious(kind))
    sign(folder)
    assert checkpoints(begun).last_whole() == 6
    with pytest.raises(PellucidError, match=r"model-00002-of-00002\.safetensors cannot be"):
        checkpoints(begun).load(6)
    assert not (tmp_path / "boom").exists()


def test_files_that_the_manifest_does_not_name_are_not_used(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's own pickled index, a pickle that looks like a share, and a share of another run."""
    monkeypatch.setenv(BOOM, str(tmp_path / "boom"))
    folder, before = checkpoints(begun).path(6), all_tensors(begun, 6)
    for name in (".metadata", "model-00003-of-00003.safetensors", "model.pt"):
        (folder / name).write_bytes(malicious("torch"))
    name = next(iter(checkpoints(begun).load(6).model))
    save_file({name: torch.zeros(400, 16)}, folder / "model.safetensors")
    assert checkpoints(begun).last_whole() == 6
    found = all_tensors(begun, 6)
    assert all(torch.equal(found[name], tensor) for name, tensor in before.items())
    assert not (tmp_path / "boom").exists()


# torchrun itself


@pytest.mark.slow
def test_torchrun_restarts_a_killed_worker_and_nothing_differs(
    recipe: Path, whole: Path, tmp_path: Path
) -> None:
    run = new_run(whole / "data", tmp_path / "run")
    killed = torchrun(recipe, run, 6, "[1]", 9, restarts=1, work="signal_at")
    _, errors = killed.communicate(timeout=PATIENCE)
    assert killed.returncode == 0, errors
    same(whole, run)
