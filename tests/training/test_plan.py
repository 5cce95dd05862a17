"""What a run takes: counted exactly where it can be, and the paper's own figures come out."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from pellucid.config import ModelConfig, Recipe, load_recipe
from pellucid.errors import ConfigError, InputError
from pellucid.model import Transformer
from pellucid.model.flops import BatchShape, forward_flops
from pellucid.training import loss
from pellucid.training.loss import TokenLoss, linear_loss
from pellucid.training.plan import hardware
from pellucid.training.plan.estimate import TrainingPlan, dry_run, make_plan
from pellucid.training.plan.training_flops import (
    PAPER,
    paper_cost,
    six_nd,
    training_flops,
)
from tests import made_up

RECIPES = Path(__file__).parents[2] / "recipes"


def recipe_for(folder: Path, count: int = 60, **sections: dict[str, object]) -> Recipe:
    corpus = made_up.write_tsv(folder / "train.tsv", count)
    values: dict[str, dict[str, object]] = {
        "tokenizer": {"vocab_size": 420},
        "batches": {"max_tokens": 300},
        "model": {"preset": "tiny"},
        "training": {"epochs": 3},
    }
    for name, section in sections.items():
        values[name] = {**values.get(name, {}), **section}
    return Recipe(data={"directions": ["en-fr"], "train": [corpus.model_dump()]}, **values)


configs = st.builds(
    lambda heads, group, K, **more: ModelConfig(
        d_model=heads * K, num_heads=heads, num_kv_heads=heads // group, **more
    ),
    heads=st.sampled_from([2, 4]),
    group=st.sampled_from([1, 2]),
    K=st.sampled_from([4, 8]),
    vocab_size=st.integers(5, 40),
    d_ff=st.integers(3, 33),
    encoder_layers=st.integers(1, 2),
    decoder_layers=st.integers(1, 3),
    activation=st.sampled_from(["relu", "swiglu", "relu2"]),
    position_encoding=st.sampled_from(["sinusoidal", "rotary", "learned"]),
    norm=st.sampled_from(["post", "pre", "sandwich"]),
    tie_embeddings=st.sampled_from(["all", "decoder", "none"]),
)
shapes = st.builds(BatchShape, st.integers(1, 4), st.integers(1, 9), st.integers(1, 9))


@settings(max_examples=12)
@given(configs, shapes)
def test_flops_are_what_torch_counts(config: ModelConfig, shape: BatchShape) -> None:
    with torch.device("meta"):
        model = Transformer(config)
        source = torch.ones(shape.sentences, shape.source, dtype=torch.long)
        target = torch.ones(shape.sentences, shape.target, dtype=torch.long)
        with FlopCounterMode(display=False) as forward:
            logits = model(source, target)
        with FlopCounterMode(display=False) as backward:
            logits.sum().backward()
    assert sum(forward_flops(config, shape).values()) == forward.get_total_flops()
    # PyTorch's fused attention computes its scores again on the way back; we count them once.
    extra = backward.get_total_flops() - 2 * forward.get_total_flops()
    B, S, T = shape
    scores = 2 * B * config.d_model * (config.encoder_layers * S * S)
    scores += 2 * B * config.d_model * config.decoder_layers * (T * T + T * S)
    assert extra in (0, scores)
    assert training_flops(config, shape) == 3 * forward.get_total_flops()


@settings(max_examples=8)
@given(configs, shapes)
def test_the_dry_run_builds_the_real_model(config: ModelConfig, shape: BatchShape) -> None:
    model, kept = dry_run(config, shape)
    assert model.num_parameters() == Transformer(config).num_parameters()
    assert all(parameter.is_meta for parameter in model.parameters())
    # each layer keeps at least what goes into it, and in all less than a hundred such vectors
    layers = config.encoder_layers * shape.source + config.decoder_layers * shape.target
    state = 4 * shape.sentences * config.d_model * layers
    assert state < kept < 100 * (state + 4 * shape.tokens * (config.d_model + 33)) + 10_000


def test_what_is_kept_grows_with_the_batch() -> None:
    config = ModelConfig.preset("tiny", vocab_size=50)
    one, two = (dry_run(config, BatchShape(n, 8, 9))[1] for n in (8, 16))
    assert 1.9 < two / one < 2.1


@pytest.mark.parametrize(("name", "digits"), [("base", "3.3e+18"), ("big", "2.3e+19")])
def test_the_papers_training_cost(name: str, digits: str) -> None:
    """By its own method, time x GPUs x what a P100 sustains; the table has two digits."""
    run = PAPER[name]
    assert f"{paper_cost(run.hours):.1e}" == digits == f"{run.cost:.1e}"
    # Steps times the seconds it gives for one step: 11.1 h, which it calls 12; and 83 h.
    by_steps = paper_cost(run.steps * run.seconds_per_step / 3600)
    assert by_steps == pytest.approx(run.cost, rel=0.1)


@pytest.mark.parametrize("name", ["base", "big"])
def test_the_paper_and_the_other_ways_to_count(name: str) -> None:
    plan = make_plan(load_recipe(RECIPES / f"wmt14-{name}.toml"), hardware="p100", count=1)
    run = PAPER[name]
    assert plan.parameters == pytest.approx(run.parameters, rel=0.04)
    assert plan.steps == run.steps
    assert plan.paper is run
    assert plan.tokens_per_step == pytest.approx(50_000, rel=0.01)
    assert plan.flops is not None
    # 6ND with the tokens of both sides is twice what is computed, and below the paper's count
    both = six_nd(plan.parameters, 50_000) * run.steps
    assert both / plan.flops == pytest.approx(2.0, rel=0.05)
    assert plan.flops < both < run.cost
    assert plan.flops / run.cost == pytest.approx({"base": 0.29, "big": 0.42}[name], rel=0.05)
    # On 8 of the paper's GPUs the assumed utilisation gives about the seconds it reports.
    eight = load_recipe(RECIPES / f"wmt14-{name}.toml", ["batches.max_tokens=3125"])
    seconds = make_plan(eight, hardware="p100", count=8).seconds_per_step
    assert seconds == pytest.approx(run.seconds_per_step, rel=0.25)


def test_base_has_63_million_parameters() -> None:
    plan = make_plan(load_recipe(RECIPES / "wmt14-base.toml"), hardware="a100")
    assert plan.parameters == sum(plan.parameters_by_part.values()) == 63_045_632


def test_a_corpus_that_is_there_is_measured(tmp_path: Path) -> None:
    recipe = recipe_for(tmp_path)
    plan = make_plan(recipe, hardware="laptop")
    tokenizer = made_up.tokenizer()
    texts = [line.split("\t") for line in (tmp_path / "train.tsv").read_text().splitlines()]
    mean = sum(len(tokenizer.encode(pair[0])) + 2 for pair in texts) / len(texts)
    assert 0.7 * mean < plan.batch.source < 1.8 * mean  # the mean over tokens is longer
    assert plan.batch.sentences * max(plan.batch.source, plan.batch.target) <= 300
    assert plan.steps_per_epoch is not None
    assert plan.steps == pytest.approx(3 * plan.steps_per_epoch, abs=1)
    assert plan.steps_per_epoch * 300 > sum(len(tokenizer.encode(pair[1])) for pair in texts) * 0.7


def test_both_directions_are_twice_an_epoch(tmp_path: Path) -> None:
    one = recipe_for(tmp_path)
    two = one.changed(data=one.data.changed(directions=("en-fr", "fr-en")))
    first, second = (make_plan(recipe, hardware="laptop") for recipe in (one, two))
    assert first.steps_per_epoch is not None
    assert second.steps_per_epoch == pytest.approx(2 * first.steps_per_epoch, rel=0.05)


def test_a_missing_corpus_is_assumed_and_said(tmp_path: Path) -> None:
    recipe = recipe_for(tmp_path)
    (tmp_path / "train.tsv").unlink()
    plan = make_plan(recipe, hardware="laptop")
    assert plan.steps is None
    assert plan.seconds is None
    assert "train.tsv is missing" in plan.assumed[0]
    told = make_plan(recipe, hardware="laptop", pairs=29_000)
    assert told.steps is not None
    assert told.epochs == pytest.approx(3, rel=0.01)


def test_the_first_end_counts(tmp_path: Path) -> None:
    steps = make_plan(recipe_for(tmp_path, training={"steps": 2}), hardware="laptop")
    assert steps.steps == 2
    minutes = make_plan(recipe_for(tmp_path, training={"minutes": 1e-6}), hardware="laptop")
    assert minutes.steps == 1


def test_memory_by_part(tmp_path: Path) -> None:
    def of(**training: object) -> tuple[dict[str, int], int]:
        recipe = recipe_for(tmp_path, training=training)
        plan = make_plan(recipe, hardware="laptop")
        return dict(plan.memory), plan.parameters

    adam, parameters = of(optimizer="adam")
    assert adam["weights"] == adam["gradients"] == 4 * parameters
    assert adam["optimizer (adam)"] == 8 * parameters
    muon, _ = of(optimizer="muon", ema_decay=0.99)
    assert 4 * parameters < muon["optimizer (muon)"] < 8 * parameters
    assert muon["moving average"] == 4 * parameters


def test_shards_share_the_memory(tmp_path: Path) -> None:
    recipe = recipe_for(tmp_path, training={"parallel": "fsdp"})
    one, four = (make_plan(recipe, hardware="a100", count=n).memory for n in (1, 4))
    assert four["weights"] == one["weights"] // 4
    assert four["activations"] == one["activations"]


def test_the_optimizers_memory_is_what_it_takes(tmp_path: Path) -> None:
    from pellucid.training.optim.optimizers import Optimizers

    for name in ("adamw", "adam", "muon"):
        recipe = recipe_for(tmp_path, training={"optimizer": name})
        model = Transformer(recipe.model.config(420))
        optimizers = Optimizers(model, recipe.training)
        model(torch.tensor([[5, 6]]), torch.tensor([[2, 7]])).sum().backward()
        optimizers.step(0.1)
        real = sum(t.numel() * t.element_size() for t in optimizers.tensors().values())
        planned = make_plan(recipe, hardware="laptop").memory[f"optimizer ({name})"]
        assert planned <= real < planned + 4000  # each parameter's count of steps besides


def test_money(tmp_path: Path) -> None:
    plan = make_plan(recipe_for(tmp_path), hardware="a100", price=3.0)
    assert plan.cost == pytest.approx(3.0 * plan.seconds / 3600)


def test_this_machine_is_measured(tmp_path: Path) -> None:
    plan = make_plan(recipe_for(tmp_path))
    assert plan.speed.how.startswith("measured")
    assert plan.seconds_per_step > plan.speed.optimizer_seconds > 0
    assert plan.steps is not None
    assert plan.seconds == pytest.approx(plan.steps * plan.seconds_per_step)


def test_measuring_draws_from_no_seed(tmp_path: Path) -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    threads = torch.get_num_threads()
    make_plan(recipe_for(tmp_path, training={"threads": 1}))
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.get_num_threads() == threads


def test_steps_are_tried_in_the_precision_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def watched(states: Tensor, *rest: Any) -> TokenLoss:
        seen.append(torch.is_autocast_enabled("cpu"))
        return linear_loss(states, *rest)

    monkeypatch.setattr(loss, "linear_loss", watched)
    for precision in ("fp32", "bf16"):
        plan = make_plan(recipe_for(tmp_path, training={"precision": precision}))
        assert plan.seconds_per_step > 0
        assert set(seen) == {precision == "bf16"}
        seen.clear()


def test_unknown_hardware_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'a100'"):
        make_plan(recipe_for(tmp_path), hardware="a10")
    assert hardware.find_hardware("RTX 4090").name == "NVIDIA RTX 4090"
    for machine in hardware.TABLE.values():
        assert 0 < machine.utilisation <= 1


def test_a_recipe_that_cannot_run_is_refused() -> None:
    with pytest.raises(ConfigError, match="heads"):
        load_recipe(RECIPES / "toy.toml", ["model.num_heads=7"])


def run_plan(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pellucid", "plan", *arguments],
        capture_output=True, text=True, check=False, env={"COLUMNS": "200", "PATH": ""},
    )  # fmt: skip


def test_the_command(tmp_path: Path) -> None:
    recipe = str(RECIPES / "wmt14-base.toml")
    run = run_plan(recipe, "--hardware", "p100", "--count", "8", "--json", "--price", "2")
    assert run.returncode == 0, run.stderr
    plan = json.loads(run.stdout)
    assert plan["parameters"] == 63_045_632
    assert plan["paper"]["by_its_method"] == pytest.approx(3.28e18, rel=0.01)
    assert plan["cost"] > 0
    assert plan["assumed"]
    wrong = run_plan(recipe, "--hardware", "abacus")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("pellucid: unknown hardware 'abacus'")
    assert "Traceback" not in wrong.stderr


def test_the_tables_say_it_all(tmp_path: Path) -> None:
    from rich.console import Console

    recipe = load_recipe(RECIPES / "wmt14-big.toml")
    plan: TrainingPlan = make_plan(recipe, hardware="h100", price=2.0, pairs=4_500_000)
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(plan.tables())
    text = console.export_text()
    for part in ("214,171,648", "300,000", "6ND", "it fits", "H100", "assumed", "2.3e+19", "2.30e"):
        assert part in text, part
