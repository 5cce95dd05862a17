"""A resumed run is the uninterrupted one: same weights, same optimizer, same losses, bit by bit."""

import io
import os
import shutil
import signal
from pathlib import Path

import pytest
from rich.console import Console

from pellucid.errors import ConfigError, InputError
from pellucid.training import run as run_module
from pellucid.training.callbacks.metrics_file import read_metrics
from pellucid.training.checkpoint.checkpoints import Checkpoints
from pellucid.training.run import train
from pellucid.training.signals import TrainingStoppedError
from tests.reliability.runs import (
    Hook,
    hashes,
    in_child,
    make_recipe,
    same,
    story,
    train_and_kill,
    train_and_signal,
)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_recipe(tmp_path_factory.mktemp("recipe"))


@pytest.fixture(scope="module")
def whole(recipe: Path) -> Path:
    """The run that nothing interrupts: 16 steps, more than two epochs."""
    folder = recipe.parent / "whole"
    train(recipe, folder=folder)
    steps = [line for line in story(folder) if line["kind"] == "step"]
    assert len(steps) == 16
    assert steps[-1]["epoch"] > 2
    return folder


def test_the_same_seed_gives_the_same_bytes(recipe: Path, whole: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    train(recipe, folder=again)
    same(whole, again)
    for name in ("MODEL.md", "config.toml", "manifest.json"):
        assert (whole / "bundle" / name).read_bytes() == (again / "bundle" / name).read_bytes()


def test_another_seed_does_not(recipe: Path, whole: Path, tmp_path: Path) -> None:
    train(recipe, folder=tmp_path / "other", overrides=["training.seed=6"])
    assert hashes(whole) != hashes(tmp_path / "other")


def test_half_then_killed_then_half(recipe: Path, whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert in_child(train_and_kill, recipe, folder, 9) == -signal.SIGKILL
    assert Checkpoints(folder / "checkpoints").steps()[-1] == 8
    train(recipe, folder=folder, resume=True)
    same(whole, folder)


def test_three_resumes_in_one_epoch_and_one_across_its_end(
    recipe: Path, whole: Path, tmp_path: Path
) -> None:
    """With a checkpoint after each step, and one of the kills between two checkpoints."""
    folder = tmp_path / "run"
    ends = [line["epoch"] for line in story(whole) if line["kind"] == "step"]
    per_epoch = next(n for n, epoch in enumerate(ends, 1) if epoch >= 1)
    assert per_epoch >= 5, "an epoch must be long enough to be interrupted three times"
    every = ("checkpoints.every=1", "checkpoints.keep=2")
    for step in (1, 2, 4, per_epoch, per_epoch + 1):
        assert in_child(train_and_kill, recipe, folder, step, every) == -signal.SIGKILL
    train(recipe, folder=folder, resume=True)
    same(whole, folder)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_the_rest_is_the_same(
    number: int, recipe: Path, whole: Path, tmp_path: Path
) -> None:
    folder, said = tmp_path / "run", tmp_path / "stderr"
    # at step 8, where a validation begins right after: it is put off until the run goes on
    assert in_child(train_and_signal, recipe, folder, 8, number, output=said) == 128 + number
    line = said.read_text().strip()
    assert "\n" not in line
    assert f"saved at step 8; to resume: pellucid train {folder} --resume" in line
    assert Checkpoints(folder / "checkpoints").steps()[-1] == 8
    train(folder, resume=True)
    same(whole, folder)


def test_why_a_run_stopped_is_said_once(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the error; the console is left with the last checkpoint, and the metrics note the end."""
    usual, shown = run_module.default_callbacks, io.StringIO()
    hook = Hook(6, lambda: os.kill(os.getpid(), signal.SIGINT))
    monkeypatch.setattr(run_module, "default_callbacks", lambda *a: [*usual(*a), hook])
    with pytest.raises(
        TrainingStoppedError, match="stopped by Ctrl-C, saved at step 6; to resume: "
    ):
        train(recipe, folder=tmp_path / "run", console=Console(file=shown, width=200))
    assert shown.getvalue().splitlines()[-1] == "saved step-00000006"
    (end,) = (line for line in read_metrics(tmp_path / "run") if line["kind"] == "end")
    assert end["summary"] == {"ended": "stopped", "steps": 6}


def test_the_mean_of_checkpoints_is_that_of_the_uninterrupted_run(
    recipe: Path, tmp_path: Path
) -> None:
    """A signal between two planned checkpoints, or the clock at each step, add none to it."""
    mean = ("training.average_checkpoints=2",)
    train(recipe, folder=tmp_path / "whole", overrides=mean)
    in_child(train_and_signal, recipe, tmp_path / "run", 14, signal.SIGTERM, mean)
    assert Checkpoints(tmp_path / "run" / "checkpoints").steps()[-1] == 14
    train(recipe, folder=tmp_path / "run", resume=True, overrides=mean)
    same(tmp_path / "whole", tmp_path / "run")
    train(recipe, folder=tmp_path / "often", overrides=[*mean, "checkpoints.minutes=1e-9"])
    assert hashes(tmp_path / "whole") == hashes(tmp_path / "often")


def test_prefetching_changes_nothing(recipe: Path, whole: Path, tmp_path: Path) -> None:
    for prefetch in (0, 3):
        folder = tmp_path / f"run-{prefetch}"
        setting = (f"batches.prefetch={prefetch}",)
        in_child(train_and_kill, recipe, folder, 6, setting)
        train(recipe, folder=folder, resume=True, overrides=["batches.prefetch=1"])
        same(whole, folder)


def test_a_moved_run_goes_on_without_its_corpora(recipe: Path, whole: Path, tmp_path: Path) -> None:
    elsewhere = make_recipe(tmp_path / "first")
    in_child(train_and_kill, elsewhere, tmp_path / "first" / "run", 9)
    shutil.move(tmp_path / "first" / "run", tmp_path / "second")
    shutil.rmtree(tmp_path / "first")
    train(tmp_path / "second", resume=True)
    same(whole, tmp_path / "second")


def test_accumulated_batches_resume_too(recipe: Path, tmp_path: Path) -> None:
    settings = (
        "training.gradient_accumulation_steps=3",
        "training.optimizer=adam",
        "training.max_grad_norm=0.1",
    )
    train(recipe, folder=tmp_path / "whole", overrides=settings)
    in_child(train_and_kill, recipe, tmp_path / "run", 6, settings)
    train(recipe, folder=tmp_path / "run", resume=True, overrides=settings)
    same(tmp_path / "whole", tmp_path / "run")


def test_subwords_drawn_at_random_resume_too(recipe: Path, tmp_path: Path) -> None:
    settings = ("batches.subword_regularization=0.2",)
    train(recipe, folder=tmp_path / "whole", overrides=settings)
    in_child(train_and_kill, recipe, tmp_path / "run", 10, settings)
    train(recipe, folder=tmp_path / "run", resume=True, overrides=settings)
    same(tmp_path / "whole", tmp_path / "run")


def test_a_run_may_be_made_longer(recipe: Path, tmp_path: Path) -> None:
    level = ["training.schedule=constant"]
    train(recipe, folder=tmp_path / "long", overrides=level)
    train(recipe, folder=tmp_path / "run", overrides=[*level, "training.steps=8"])
    train(recipe, folder=tmp_path / "run", resume=True, overrides=level)
    assert hashes(tmp_path / "long") == hashes(tmp_path / "run")


def test_a_changed_recipe_is_refused_by_name(recipe: Path, whole: Path) -> None:
    changes = ["training.learning_rate=0.5", "model.dropout=0", "checkpoints.keep=7"]
    before = hashes(whole)
    with pytest.raises(ConfigError) as caught:
        train(recipe, folder=whole, resume=True, overrides=changes)
    message = str(caught.value)
    assert "\n" not in message
    must_not, may = message.split("these may change: ")
    assert "training.learning_rate (0.01 to 0.5)" in must_not
    assert "model.dropout (0.2 to 0.0)" in must_not
    assert "checkpoints.keep (3 to 7)" in may
    assert hashes(whole) == before


def test_a_run_is_not_begun_twice_by_mistake(recipe: Path, whole: Path) -> None:
    with pytest.raises(InputError, match=r"already holds a run: continue it with --resume"):
        train(recipe, folder=whole)


def test_nothing_to_resume_is_a_new_run(recipe: Path, whole: Path, tmp_path: Path) -> None:
    train(recipe, folder=tmp_path / "run", resume=True)
    same(whole, tmp_path / "run")
