"""Several processes are as good as one: the same results, the same order, the same ends."""

import errno
import json
import os
import signal
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pellucid.errors import InputError
from pellucid.exchange import import_model
from pellucid.training.checkpoint.checkpoints import Checkpoints
from pellucid.training.distributed.ddp import LostProcessError, restart_prefix
from tests.marian_models import write_marian
from tests.reliability.many import (
    exchange,
    lines,
    new_run,
    order,
    signal_at,
    started,
    together,
    torchrun,
    train,
    train_and_record,
    train_and_weigh,
    train_with_nan,
    train_without_pickle,
    two_machines,
)
from tests.reliability.runs import (
    PATIENCE,
    hashes,
    in_child,
    make_recipe,
    same,
    story,
    train_on_full_disk,
)

EXACT = ("model.dropout=0", "model.attention_bias=false", "model.activation=gelu")
"""What makes runs comparable that add up in another order.

The bias of the keys adds the same to all scores of a query, which the softmax takes out again: its
true gradient is zero. What is computed is the rounding of that zero, another one for each order of
adding up; and Adam, which divides a gradient by its own size, makes full steps of it. So without
biases in the attention. And with GELU: a token that stands at the corner of a ReLU, on this side in
one order and on the other in another, changes a gradient by more than its rounding.
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """8 steps, more than an epoch of 2 processes, with a checkpoint at each fourth."""
    path = make_recipe(tmp_path_factory.mktemp("recipe"))
    path.write_text(path.read_text().replace("steps = 16", "steps = 8"))
    return path


@pytest.fixture(scope="module")
def data(recipe: Path) -> Path:
    """The prepared data, which every run would make alike."""
    assert in_child(train, recipe, recipe.parent / "first", "training.steps=1") == 0
    return recipe.parent / "first" / "data"


@pytest.fixture
def run(data: Path, tmp_path: Path) -> Path:
    return new_run(data, tmp_path / "run")


@pytest.fixture(scope="module")
def whole(recipe: Path, data: Path) -> Path:
    """The run of two processes that nothing interrupts."""
    folder = new_run(data, recipe.parent / "whole")
    assert together(2, recipe.parent / "said", train, recipe, folder) == [0, 0]
    return folder


def weights(folder: Path) -> dict[str, torch.Tensor]:
    steps = Checkpoints(folder / "checkpoints")
    return dict(steps.load(steps.steps()[-1]).model)


def losses(folder: Path) -> list[tuple[str, float]]:
    return [(line["kind"], line["loss"]) for line in story(folder) if "loss" in line]


def furthest(one: Path, other: Path) -> float:
    """The largest difference of a weight."""
    mine, others = weights(one), weights(other)
    assert mine.keys() == others.keys()
    return max(float((mine[name] - others[name]).abs().max()) for name in mine)


def near(some: list[tuple[str, float]], others: list[tuple[str, float]], most: float) -> None:
    assert [kind for kind, _ in some] == [kind for kind, _ in others]
    assert [loss for _, loss in some] == pytest.approx([loss for _, loss in others], abs=most)


# Talking to each other


def test_plain_data_travels(tmp_path: Path) -> None:
    said = tmp_path / "said"
    assert together(3, said, exchange) == [0, 0, 0], lines(said, 0)


def test_restarts_on_several_machines_need_a_new_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    assert restart_prefix() == "pellucid/2"
    monkeypatch.setenv("GROUP_WORLD_SIZE", "4")
    with pytest.raises(InputError, match="TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"):
        restart_prefix()
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "False")
    assert restart_prefix() == "pellucid"


# Two are one


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_two_processes_equal_one(optimizer: str, recipe: Path, data: Path, tmp_path: Path) -> None:
    """Whose batches have different numbers of tokens, and one of which is empty."""
    settings = (*EXACT, f"training.optimizer={optimizer}")
    one, two = (new_run(data, tmp_path / name) for name in ("one", "two"))
    said = tmp_path / "said"
    assert (
        in_child(
            train_and_record, recipe, one, 0, *settings, "training.gradient_accumulation_steps=2"
        )
        == 0
    )
    assert together(2, said, train_and_record, recipe, two, 0, *settings) == [0, 0]

    taken = order(two)
    assert [row[3] for row in order(one)] == [row[3] for row in taken if row[4]]
    of_step = {step: [row[4] for row in taken if row[0] == step] for step in range(1, 9)}
    assert any(tokens[0] != tokens[1] for tokens in of_step.values())
    assert any(0 in tokens for tokens in of_step.values()), "no process had an empty batch"

    assert furthest(one, two) <= 1e-6
    near(losses(one), losses(two), 1e-6)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_learn_from_a_teacher_as_one_does(
    parallel: str, recipe: Path, data: Path, tmp_path: Path
) -> None:
    """Process 0 asks it, and both learn; one has an empty batch at times."""
    teacher = data.parent / "bundle"
    settings = (*EXACT, f'distillation.teachers=["{teacher}"]', "distillation.weight=0.9")
    one, two, alone = (new_run(data, tmp_path / name) for name in ("one", "two", "alone"))
    assert in_child(train, recipe, alone, *EXACT, "training.gradient_accumulation_steps=2") == 0
    assert in_child(train, recipe, one, *settings, "training.gradient_accumulation_steps=2") == 0
    many = (*settings, f"training.parallel={parallel}")
    assert together(2, tmp_path / "said", train, recipe, two, *many) == [0, 0]
    assert furthest(one, two) <= 1e-6
    assert furthest(one, alone) > 1e-3
    near(losses(one), losses(two), 1e-6)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_fine_tune_an_imported_model_as_one_does(
    parallel: str, recipe: Path, tmp_path: Path
) -> None:
    write_marian(tmp_path / "public")
    first = import_model(tmp_path / "public", tmp_path / "imported", directions=["fr-en"])
    text = recipe.read_text()
    begin, end = text.index("[model]"), text.index("[training]")
    text = f'init_from = "imported"\n{text[:begin]}[model]\ndropout = 0.0\n{text[end:]}'
    text = text.replace("[tokenizer]\nvocab_size = 420\n", "").replace('"en-fr"', '"fr-en"')
    text = text.replace("\nsteps = 8", "\nsteps = 3")
    text = text.replace("learning_rate = 0.01", "learning_rate = 0.0005")
    path = tmp_path / "on.toml"
    path.write_text(text)
    for name in ("train.tsv", "valid.tsv"):
        (tmp_path / name).write_bytes((recipe.parent / name).read_bytes())
    one, two = tmp_path / "one", tmp_path / "two"
    assert in_child(train, path, one, "training.gradient_accumulation_steps=2") == 0
    settings = (f"training.parallel={parallel}",)
    assert together(2, tmp_path / "said", train, path, two, *settings) == [0, 0]
    near(losses(one), losses(two), 1e-5)
    before, after = first.weights(), weights(two)
    assert {name for name in after if not torch.equal(after[name], torch.from_numpy(before[name]))}
    for name, found in weights(one).items():
        if not name.endswith("in_bias"):  # see EXACT
            assert torch.allclose(found, after[name], atol=1e-5), name


@pytest.mark.parametrize("optimizer", ["muon", pytest.param("adamw", marks=pytest.mark.slow)])
def test_fsdp_equals_ddp(optimizer: str, recipe: Path, data: Path, tmp_path: Path) -> None:
    """FSDP takes the same steps as DDP, and validates, saves and ends in the same way."""
    settings = (*EXACT, f"training.optimizer={optimizer}", "training.gradient_accumulation_steps=2")
    settings += ("validation.translate=true", "validation.sentences=5")
    ddp, fsdp = (new_run(data, tmp_path / name) for name in ("ddp-run", "fsdp-run"))
    for folder, parallel in ((ddp, "ddp"), (fsdp, "fsdp")):
        both = (*settings, f"training.parallel={parallel}")
        assert together(2, tmp_path / parallel, train_and_weigh, recipe, folder, *both) == [0, 0]
        assert [lines(tmp_path / parallel, rank) for rank in (0, 1)] == [[], []]
    for folder, share in ((ddp, 1.0), (fsdp, 0.5)):
        for rank in (0, 1):
            weights, held, all_held = json.loads((folder / f"weight-{rank}.json").read_text())
            assert weights > 0
            assert held == pytest.approx(share * all_held, rel=0.01)
    assert furthest(ddp, fsdp) <= 1e-5
    near(losses(ddp), losses(fsdp), 1e-5)
    bundles = [load_file(run / "bundle" / "weights.safetensors") for run in (ddp, fsdp)]
    assert bundles[0].keys() == bundles[1].keys()
    for name, tensor in bundles[0].items():
        torch.testing.assert_close(bundles[1][name], tensor, atol=1e-5, rtol=0)


# Going on


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_one_two_keeps_the_order(
    parallel: str, recipe: Path, data: Path, tmp_path: Path
) -> None:
    """And with as many batches a step, the result is that of one process."""
    alone, run = (new_run(data, tmp_path / name) for name in ("alone", "run"))
    settings = (*EXACT, f"training.parallel={parallel}")
    twice = (*settings, "training.gradient_accumulation_steps=2")
    assert in_child(train_and_record, recipe, alone, 0, *twice) == 0
    said = tmp_path / "said"
    assert together(2, said, train_and_record, recipe, run, 3, *settings) == [143, 143]
    assert in_child(train_and_record, recipe, run, 6, *twice) == 143
    assert together(2, said, train_and_record, recipe, run, 0, *settings) == [0, 0]
    found = [row for row in order(run) if row[4]]
    assert [row[:4] for row in found] == [row[:4] for row in order(alone)]
    # Shares add up the length of the gradient in yet another order (see the test above).
    assert furthest(alone, run) <= (1e-6 if parallel == "ddp" else 1e-5)


@pytest.mark.parametrize(
    ("count", "parallel"),
    [
        (2, "ddp"),
        (2, "fsdp"),
        (3, "ddp"),  # where DDP would add up in another order after a restart
        pytest.param(3, "fsdp", marks=pytest.mark.slow),
    ],
)
def test_resumed_is_uninterrupted_bit_for_bit(
    count: int, parallel: str, recipe: Path, data: Path, whole: Path, tmp_path: Path
) -> None:
    """With dropout, Muon and a moving average."""
    setting, said = f"training.parallel={parallel}", tmp_path / "said"
    if (count, parallel) != (2, "ddp"):
        whole = new_run(data, tmp_path / "whole")
        assert together(count, said, train, recipe, whole, setting) == [0] * count
    run = new_run(data, tmp_path / "run")
    stopped = together(count, said, train_and_record, recipe, run, 3, setting)
    assert stopped == [143] * count
    assert together(count, said, train, recipe, run, setting) == [0] * count
    same(whole, run)


# Ends before time


def test_nan_in_one_process_stops_all(recipe: Path, whole: Path, run: Path, tmp_path: Path) -> None:
    said = tmp_path / "said"
    assert together(2, said, train_with_nan, recipe, run, 6, 1) == [1, 1]
    (line,) = lines(said, 0)
    assert "the loss is NaN or infinite at step 6 (batch " in line
    assert ", with the pairs " in line
    assert f"{Checkpoints(run / 'checkpoints').path(4)} is kept" in line
    assert Checkpoints(run / "checkpoints").steps() == [4]
    kept = {key: value for key, value in hashes(run, 4).items() if key in hashes(whole, 4)}
    assert kept == hashes(run, 4)
    assert all(hashes(whole, 4)[key] == value for key, value in kept.items())
    assert together(2, said, train, recipe, run) == [0, 0]
    same(whole, run)


@pytest.mark.parametrize(
    ("ranks", "number"), [([1], signal.SIGTERM), ([0], signal.SIGINT), ([0, 1], signal.SIGTERM)]
)
def test_a_signal_to_one_or_all_saves_everything(
    ranks: list[int], number: int, recipe: Path, whole: Path, run: Path, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    # at step 8 a validation follows, which is put off
    ended = together(2, said, signal_at, recipe, run, 8, ranks, number)
    assert ended == [128 + number] * 2
    assert Checkpoints(run / "checkpoints").steps()[-1] == 8
    assert f"saved at step 8; to resume: pellucid train {run} --resume" in lines(said, 0)[0]
    assert not (run / "bundle").exists()
    assert together(2, said, train, recipe, run) == [0, 0]
    same(whole, run)


def test_a_killed_process_ends_the_others(recipe: Path, run: Path, tmp_path: Path) -> None:
    said = tmp_path / "said"
    assert together(2, said, signal_at, recipe, run, 6, [0], signal.SIGKILL) == [-9, 1]
    assert lines(said, 1) == [f"pellucid: {LostProcessError(1, 600)}"]


def test_a_process_that_does_not_answer_ends_the_others(
    recipe: Path, run: Path, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    with started(2, said, signal_at, recipe, run, 6, [1], signal.SIGSTOP) as processes:
        processes[0].join(PATIENCE)
        assert processes[0].exitcode == 1
    assert lines(said, 0) == [f"pellucid: {LostProcessError(0, 5)}"]


def test_what_fails_in_process_0_ends_all_with_one_reason(
    recipe: Path, whole: Path, run: Path, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    assert together(2, said, train, recipe, whole, "model.dropout=0.5") == [2, 2]
    assert "these must not change when it is resumed: model.dropout" in lines(said, 0)[0]
    assert lines(said, 1) == lines(said, 0)
    full = together(2, said, train_on_full_disk, recipe, run, 2, False, errno.ENOSPC)
    assert full == [1, 1]
    assert "no space left" in lines(said, 0)[0].lower()
    assert lines(said, 1) == lines(said, 0)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_nothing_is_unpickled(parallel: str, recipe: Path, run: Path, tmp_path: Path) -> None:
    settings = ("validation.translate=true", f"training.parallel={parallel}")
    for steps in ("training.steps=4", "training.steps=5"):
        ended = together(2, tmp_path / "said", train_without_pickle, recipe, run, *settings, steps)
        assert ended == [0, 0], lines(tmp_path / "said", 0)


# torchrun itself


def test_torchrun_restarts_a_killed_worker_and_nothing_differs(
    recipe: Path, whole: Path, run: Path
) -> None:
    killed = torchrun(recipe, run, 6, "[1]", 9, restarts=1, work="signal_at")
    _, errors = killed.communicate(timeout=PATIENCE)
    assert killed.returncode == 0, errors
    assert "Signal 9 (SIGKILL)" in errors or "exitcode: -9" in errors, errors
    same(whole, run)


@pytest.mark.slow
def test_a_worker_killed_on_one_of_two_machines(recipe: Path, whole: Path, run: Path) -> None:
    """Two torchruns that meet as those of two machines do."""
    meet = two_machines()
    both = [
        torchrun(recipe, run, 6, "[1]", 9, restarts=2, work="signal_at", meet=meet)
        for _ in range(2)
    ]
    try:
        errors = [one.communicate(timeout=PATIENCE)[1] for one in both]
    finally:
        for one in both:
            one.kill()
    assert [one.returncode for one in both] == [0, 0], errors
    assert any("exitcode: -9" in error for error in errors), errors
    same(whole, run)


def test_the_command_under_torchrun(recipe: Path, run: Path) -> None:
    """Only the first process prints, and Ctrl-C to torchrun saves."""
    begun = torchrun(recipe, "--folder", run, "--set", "training.steps=100000")
    wait_for(lambda: '"step": 5,' in read(run / "metrics.jsonl"), begun)
    begun.send_signal(signal.SIGINT)
    output, errors = begun.communicate(timeout=PATIENCE)
    said = [line for line in errors.splitlines() if line.startswith("pellucid: ")]
    assert len(said) == 1, errors
    assert "ended: " not in errors
    assert "stopped by Ctrl-C, saved at step " in said[0]
    assert output == ""
    step = Checkpoints(run / "checkpoints").last_whole()
    assert f"saved at step {step};" in said[0]


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def wait_for(there: object, process: object) -> None:
    """Until something is there, or the process has ended, or patience has."""
    ends = time.monotonic() + PATIENCE
    while not there():  # type: ignore[operator]
        assert process.poll() is None, process.communicate()  # type: ignore[attr-defined]
        assert time.monotonic() < ends
        os.sched_yield()
        time.sleep(0.05)
