"""Knowledge distillation: the stored teacher probabilities, and that a student follows them."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.bundle import Bundle
from pellucid.config import BatchConfig, load_recipe
from pellucid.config.toml import as_toml
from pellucid.data.batches import Batches
from pellucid.data.command import data as prepare_command
from pellucid.data.prepare import prepare
from pellucid.data.store import PreparedData
from pellucid.errors import ConfigError, InputError
from pellucid.training import distillation
from pellucid.training import run as run_module
from pellucid.training.batch_tensors import batch_to_tensors
from pellucid.training.callbacks.metrics_file import read_metrics
from pellucid.training.distillation import (
    TOP_K,
    TeacherProbabilities,
    store_teacher_probabilities,
    top_probabilities,
)
from pellucid.training.init_weights import planned_config
from pellucid.training.run import train
from tests.reliability.runs import make_recipe

CPU = torch.device("cpu")
BOTH_WAYS = 'data.directions=["en-fr", "fr-en"]'


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_recipe(tmp_path_factory.mktemp("recipe"), pairs=80)


@pytest.fixture(scope="module")
def teachers(path: Path) -> list[Path]:
    """Two that differ, and both read both ways."""
    return [
        train(
            path,
            folder=path.parent / f"teacher-{seed}",
            overrides=[BOTH_WAYS, f"training.seed={seed}", "training.steps=30"],
        )
        for seed in (1, 2)
    ]


@pytest.fixture(scope="module")
def prepared(path: Path) -> PreparedData:
    recipe = load_recipe(path, [BOTH_WAYS])
    return prepare(recipe.data, recipe.tokenizer, path.parent / "data", workers=1)


@pytest.fixture(scope="module")
def stored(teachers: list[Path], prepared: PreparedData, path: Path) -> TeacherProbabilities:
    folder = path.parent / "teacher-probabilities"
    key = store_teacher_probabilities([Bundle.open(one) for one in teachers], prepared, folder, CPU)
    return TeacherProbabilities.open(folder, key, prepared, 0.7)


@given(tokens=st.integers(100, 900), seed=st.integers(0, 20))
@settings(max_examples=10, deadline=None)
def test_each_position_gets_the_mean_of_the_teachers(
    teachers: list[Path],
    prepared: PreparedData,
    stored: TeacherProbabilities,
    tokens: int,
    seed: int,
) -> None:
    """Both ways, in whatever batches: the tokens most probable in the mean, times the weight."""
    models = [Bundle.open(one).model() for one in teachers]
    batches = Batches(prepared, BatchConfig(max_tokens=tokens), seed=seed).epoch(0)
    sides = set()
    for _, batch in zip(range(4), batches, strict=False):
        sides |= set(batch.source_sides.tolist())
        source, target_in, positions, targets = batch_to_tensors(batch, CPU)
        with torch.no_grad():
            mean = sum(m(source, target_in).softmax(-1) for m in models) / 2
        wanted = mean.flatten(0, 1)[positions].topk(TOP_K, dim=-1)
        found = stored.soft_targets(batch, CPU)
        assert len(found.tokens) == len(targets)
        shares = wanted.values / wanted.values.sum(-1, keepdim=True)
        torch.testing.assert_close(found.probabilities, 0.7 * shares, rtol=2e-3, atol=1e-5)
        given_to = torch.zeros(len(targets), mean.shape[-1])
        given_to.scatter_add_(1, found.tokens, found.probabilities)
        # of nearly equal ones, which of them is kept may differ
        least = wanted.values[:, -1:] * (1 - 1e-4)
        assert (mean.flatten(0, 1)[positions].gather(1, found.tokens) >= least).all()
        torch.testing.assert_close(given_to.sum(-1), torch.full((len(targets),), 0.7), rtol=2e-3,
                                   atol=0)  # fmt: skip
    assert sides <= {0, 1}
    assert len(sides) == 2 or tokens < 200


def test_in_bf16_the_probabilities_are_nearly_the_same(
    teachers: list[Path], prepared: PreparedData
) -> None:
    models = [Bundle.open(one).model() for one in teachers]
    batch = next(Batches(prepared, BatchConfig(max_tokens=900)).epoch(0))
    half = partial(torch.autocast, "cpu", torch.bfloat16)
    (_, exact), (_, rough) = (
        top_probabilities(models, batch, CPU, kind) for kind in (nullcontext, half)
    )
    assert not np.array_equal(exact, rough)
    np.testing.assert_allclose(rough, exact, atol=0.02)
    np.testing.assert_allclose(rough.sum(axis=1), 1, rtol=1e-5)


def test_probabilities_fit_the_targets_under_subword_regularization(
    prepared: PreparedData, stored: TeacherProbabilities
) -> None:
    """One row per target, and the same rows for a pair as without subword regularization."""

    def tokens_by_pair(config: BatchConfig) -> dict[tuple[int, int], list[list[int]]]:
        found = {}
        for batch in Batches(prepared, config).epoch(0):
            tokens = stored.soft_targets(batch, CPU).tokens
            lengths = (batch.target_out != batch.pad_id).sum(axis=1).tolist()
            keys = zip(batch.pairs.tolist(), batch.directions.tolist(), strict=True)
            for key, rows in zip(keys, tokens.split(lengths), strict=True):
                found[key] = rows.tolist()
        return found

    usual = BatchConfig(max_tokens=400)
    sampled = usual.changed(subword_regularization=0.1, subword_side="source")
    assert tokens_by_pair(sampled) == tokens_by_pair(usual)


def test_a_batch_without_pairs_has_no_soft_targets(
    prepared: PreparedData, stored: TeacherProbabilities
) -> None:
    """As a process gets it that has nothing left to do in an epoch."""
    world = Batches(prepared, BatchConfig(max_tokens=400)).steps(0) + 1
    batch = next(
        Batches(prepared, BatchConfig(max_tokens=400), rank=world - 1, world=world).epoch(0)
    )
    assert len(batch) == 0
    assert stored.soft_targets(batch, CPU).tokens.shape == (0, TOP_K)


def test_a_student_comes_close_to_its_teacher(path: Path, teachers: list[Path]) -> None:
    """Trained on the teacher's probabilities alone, it ends nearer to it than without a teacher."""
    apart = {}
    teacher = Bundle.open(teachers[0]).model()
    common = ["model.dropout=0", "training.label_smoothing=0", "training.steps=150"]
    for name, more in (
        ("taught", [f'distillation.teachers=["{teachers[0]}"]', "distillation.weight=1"]),
        ("alone", []),
    ):
        made = train(path, folder=path.parent / name, overrides=[BOTH_WAYS, *common, *more])
        student = Bundle.open(made).model()
        data = PreparedData.open(path.parent / name / "data")
        total = 0.0
        for batch in Batches(data, BatchConfig(max_tokens=400), split="valid").epoch(0):
            source, target_in, positions, _ = batch_to_tensors(batch, CPU)
            with torch.no_grad():
                p, q = (
                    model(source, target_in).flatten(0, 1)[positions].log_softmax(-1)
                    for model in (teacher, student)
                )
            total += torch.nn.functional.kl_div(q, p, log_target=True, reduction="sum").item()
        apart[name] = total
    assert apart["taught"] < 0.5 * apart["alone"]
    assert "teachers" in (path.parent / "taught" / "bundle" / "MODEL.md").read_text()


def test_a_run_with_teachers_resumes_as_if_it_had_not_been_stopped(
    path: Path, teachers: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the teachers are not needed again, unless their stored probabilities are damaged."""
    names = ", ".join(f'"{one}"' for one in teachers)
    overrides = [BOTH_WAYS, f"distillation.teachers=[{names}]"]
    recipe = load_recipe(path, overrides)
    whole, stopped = path.parent / "whole", path.parent / "stopped"
    train(recipe, folder=whole)
    train(path, folder=stopped, overrides=[*overrides, "training.minutes=1e-9"])
    computed = []
    usual = distillation.top_probabilities
    monkeypatch.setattr(
        distillation, "top_probabilities", lambda *a: computed.append(1) or usual(*a)
    )
    with monkeypatch.context() as away:  # they are not even needed
        away.setattr(run_module, "open_bundle", lambda name: pytest.fail(f"opened {name}"))
        train(recipe, folder=stopped, resume=True)
    assert not computed
    losses = [
        [(row["step"], row["smoothed_loss"]) for row in rows if row["kind"] == "step"]
        for rows in (read_metrics(folder) for folder in (whole, stopped))
    ]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 16
    damaged = stopped / "teacher-probabilities" / "probabilities"
    damaged.write_bytes(damaged.read_bytes()[:-2])
    train(recipe, folder=stopped, resume=True)
    assert computed
    assert damaged.read_bytes() == (whole / "teacher-probabilities" / "probabilities").read_bytes()


def test_a_vocabulary_smaller_than_what_is_kept(
    prepared: PreparedData, teachers: list[Path]
) -> None:
    """Then all of it is kept, and nothing is said of the rest."""
    models = [Bundle.open(one).model() for one in teachers]
    batch = next(Batches(prepared, BatchConfig(max_tokens=400)).epoch(0))
    usual = distillation.TOP_K
    try:
        distillation.TOP_K = 500  # of 420
        tokens, shares = distillation.top_probabilities(models, batch, CPU)
    finally:
        distillation.TOP_K = usual
    assert tokens.shape == shares.shape == (batch.target_tokens, 500)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-5)
    assert not shares[:, 420:].any()


def test_a_model_may_take_over_the_pieces_of_its_teacher(
    path: Path, teachers: list[Path], tmp_path: Path
) -> None:
    """Which it needs where it learns from other texts."""
    lines = (path.parent / "train.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    other = tmp_path / "other.tsv"
    other.write_text("".join(lines[: len(lines) // 2]), encoding="utf-8")
    teacher = Bundle.open(teachers[0])
    common = [BOTH_WAYS, f'data.train.0.path="{other}"', f'distillation.teachers=["{teachers[0]}"]']
    with pytest.raises(InputError, match=r"another vocabulary .* tokenizer\.from_model"):
        train(path, folder=tmp_path / "own", overrides=common)
    like = f'tokenizer={{from_model="{teachers[0]}"}}'
    made = train(path, folder=tmp_path / "like", overrides=[*common, like, "training.steps=8"])
    assert Bundle.open(made).tokenizer.sha256 == teacher.tokenizer.sha256
    assert Bundle.open(made).fingerprint != teacher.fingerprint
    recipe = load_recipe(tmp_path / "like" / "recipe.toml")  # as the run wrote it
    assert recipe.tokenizer.from_model == str(teachers[0])
    assert planned_config(recipe).vocab_size == teacher.tokenizer.vocab_size
    train(tmp_path / "like", resume=True, overrides=["training.steps=9"])
    steps = [row["step"] for row in read_metrics(tmp_path / "like") if row["kind"] == "step"]
    assert steps == list(range(1, 10))


def test_pieces_that_are_decided_twice_or_not_there(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"vocab_size comes from the model that from_model names"):
        load_recipe(path, ['tokenizer.from_model="x"'])
    with pytest.raises(
        ConfigError, match=r"tokenizer\.from_model comes from the model that init_from"
    ):
        load_recipe(path, ['tokenizer={from_model="x"}', "model={}", 'init_from="y"'])
    nobody = load_recipe(path, ['tokenizer={from_model="nobody"}'])
    with pytest.raises(InputError, match="no model 'nobody'"):
        train(nobody, folder=tmp_path / "a")
    assert not (tmp_path / "a" / "data" / "manifest.json").exists()
    written = tmp_path / "recipe.toml"
    written.write_text(as_toml(nobody), encoding="utf-8")
    with pytest.raises(InputError, match=r"tokenizer\.from_model.*pellucid train"):
        prepare_command(str(written), tmp_path / "b")


def test_what_cannot_teach_says_why(path: Path, teachers: list[Path], tmp_path: Path) -> None:
    teacher = f'distillation.teachers=["{teachers[0]}"]'
    with pytest.raises(InputError, match=r"another vocabulary .* same section tokenizer"):
        train(path, folder=tmp_path / "a", overrides=[teacher, "tokenizer.vocab_size=400"])
    one_way = train(path, folder=tmp_path / "one", overrides=["training.steps=1"])
    with pytest.raises(InputError, match=r"another vocabulary|does not translate"):
        train(path, folder=tmp_path / "b",
              overrides=[BOTH_WAYS, f'distillation.teachers=["{one_way}"]'])  # fmt: skip
    with pytest.raises(
        ConfigError, match=r"subword_regularization .* batches.subword_side to 'source'"
    ):
        load_recipe(path, [teacher, "batches.subword_regularization=0.1"])
    for wrong in ("0", "1.5"):
        with pytest.raises(ConfigError, match="distillation"):
            load_recipe(path, [teacher, f"distillation.weight={wrong}"])
    with pytest.raises(InputError, match="no model 'nobody'"):
        train(path, folder=tmp_path / "c", overrides=['distillation.teachers=["nobody"]'])
    assert not (tmp_path / "c" / "data").exists()  # said before anything takes time
