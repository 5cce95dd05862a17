"""The loop: accumulation, what ends a run, which weights it leaves, and what a mistake gets."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import pellucid
from pellucid.bundle import Bundle
from pellucid.cli import main as cli
from pellucid.config import Recipe, load_recipe
from pellucid.data.batches import Batch, Batches
from pellucid.data.prepare import prepare
from pellucid.data.store import PreparedData
from pellucid.errors import InputError
from pellucid.model import Transformer
from pellucid.training import run as run_module
from pellucid.training.callbacks.metrics_file import read_metrics
from pellucid.training.checkpoint.checkpoints import Checkpoints
from pellucid.training.distributed.process_group import SingleProcess
from pellucid.training.loop import Loop
from pellucid.training.optim.optimizers import Optimizers
from pellucid.training.run import train
from pellucid.training.signals import Signals
from pellucid.training.training_state import derive_seed
from pellucid.training.validate import Validation, ValidationScores
from tests.reliability.runs import make_recipe


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_recipe(tmp_path_factory.mktemp("recipe"))


@pytest.fixture(scope="module")
def prepared(path: Path) -> PreparedData:
    recipe = load_recipe(path)
    return prepare(recipe.data, recipe.tokenizer, path.parent / "data", workers=1)


def make_loop(recipe: Recipe, prepared: PreparedData, folder: Path) -> Loop:
    torch.manual_seed(0)
    model = Transformer(recipe.model.config(prepared.tokenizer.vocab_size)).double()
    return Loop(
        recipe,
        model,
        Optimizers(model, recipe.training),
        Batches(prepared, recipe.batches),
        None,
        Checkpoints(folder),
        [],
        SingleProcess(),
        Signals(),
    )


def joined(batches: list[Batch]) -> Batch:
    """Several batches as one."""

    def stacked(name: str) -> np.ndarray:
        parts = [getattr(batch, name) for batch in batches]
        width = max(part.shape[1] for part in parts)
        return np.concatenate([np.pad(p, ((0, 0), (0, width - p.shape[1]))) for p in parts])

    return replace(
        batches[-1],
        **{name: stacked(name) for name in ("source", "target_in", "target_out")},
        pairs=np.concatenate([b.pairs for b in batches]),
        directions=np.concatenate([b.directions for b in batches]),
        source_sides=np.concatenate([b.source_sides for b in batches]),
        source_tokens=sum(b.source_tokens for b in batches),
        target_tokens=sum(b.target_tokens for b in batches),
    )


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("clip", [0, 0.05])
def test_accumulated_batches_equal_one_batch(
    optimizer: str, clip: float, path: Path, prepared: PreparedData, tmp_path: Path
) -> None:
    """Of different sizes, so that a mean of means would differ; two steps, clipped or not."""
    settings = [
        "model.dropout=0",
        f"training.optimizer={optimizer}",
        f"training.max_grad_norm={clip}",
    ]
    recipe = load_recipe(path, settings)
    apart, together = (make_loop(recipe, prepared, tmp_path) for _ in range(2))
    some = [batch for _, batch in zip(range(6), apart.batches.epoch(0), strict=False)]
    assert len({batch.target_tokens for batch in some}) > 2
    for three in (some[:3], some[3:]):
        one = apart._step(three, 0.0, 0.0)
        other = together._step([joined(three)], 0.0, 0.0)
        assert one.loss == pytest.approx(other.loss, abs=1e-6)
        assert one.smoothed_loss == pytest.approx(other.smoothed_loss, abs=1e-6)
        assert one.grad_norm == pytest.approx(other.grad_norm, abs=1e-6)
        assert one.target_tokens == other.target_tokens
    for mine, yours in zip(apart.model.parameters(), together.model.parameters(), strict=True):
        torch.testing.assert_close(mine, yours, rtol=0, atol=1e-6)


def test_the_reported_loss_is_the_plain_one(
    path: Path, prepared: PreparedData, tmp_path: Path
) -> None:
    recipe = load_recipe(path, ["model.dropout=0"])
    loop = make_loop(recipe, prepared, tmp_path)
    batch = next(loop.batches.epoch(0))
    source, target_in, target_out = (
        torch.from_numpy(a) for a in (batch.source, batch.target_in, batch.target_out)
    )
    logits = loop.model(source, target_in).detach().flatten(0, 1)
    for smoothing, name in ((0.0, "loss"), (0.1, "smoothed_loss")):
        wanted = torch.nn.functional.cross_entropy(
            logits, target_out.flatten(), ignore_index=0, label_smoothing=smoothing
        )
        report = make_loop(recipe, prepared, tmp_path)._step([batch], 0.0, 0.0)
        assert getattr(report, name) == pytest.approx(wanted.item(), rel=1e-6)


def test_seeds_depend_on_every_part() -> None:
    seeds = {derive_seed(seed, "step", step, rank) for seed in range(4) for step in range(9)
             for rank in range(3)}  # fmt: skip
    assert len(seeds) == 4 * 9 * 3
    assert derive_seed(1, "step", 23) != derive_seed(12, "step", 3)
    assert all(0 <= seed < 2**63 for seed in seeds)


def lines(folder: Path, kind: str) -> list[dict[str, object]]:
    return [line for line in read_metrics(folder) if line["kind"] == kind]


def test_early_stopping_and_the_best_weights(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Best at the second validation, worse three times after: stop, and keep the second."""
    losses: Iterator[float] = iter([5.0, 4.0, 4.5, 4.3, 4.2, 0.0])

    def judged(self: Validation, model: Transformer) -> ValidationScores:
        return ValidationScores(next(losses), None, None, {}, {}, [])

    monkeypatch.setattr(Validation, "run", judged)
    settings = ["validation.every=2", "early_stopping.patience=3", "training.ema_decay=0.5"]
    train(path, folder=tmp_path / "run", overrides=[*settings, "checkpoints.keep=1"])
    validations = lines(tmp_path / "run", "valid")
    assert [line["step"] for line in validations] == [2, 4, 6, 8, 10]
    assert [line["best"] for line in validations] == [True, True, False, False, False]
    summary = lines(tmp_path / "run", "end")[0]["summary"]
    assert summary["ended"] == "stopped early: 3 validations without improvement"
    assert Checkpoints(tmp_path / "run" / "checkpoints").steps() == [4, 10]
    best = load_file(tmp_path / "run" / "checkpoints" / "step-00000004" / "average.safetensors")
    model = Bundle.open(tmp_path / "run" / "bundle").model()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, best[name])


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_higher_scores_are_better(
    metric: str, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([1.0, 3.0, 2.0, 3.4, 9.0])

    def judged(self: Validation, model: Transformer) -> ValidationScores:
        return ValidationScores(1.0, (value := next(scores)), value, {}, {"en-fr": (1, 1)}, [])

    monkeypatch.setattr(Validation, "run", judged)
    settings = [
        f"early_stopping.metric={metric}",
        "validation.translate=true",
        "validation.every=1",
        "training.steps=4",
        "early_stopping.min_delta=0.5",
    ]
    train(path, folder=tmp_path / "run", overrides=settings)
    found = [line["best"] for line in lines(tmp_path / "run", "valid")]
    assert found == [True, True, False, False]  # 3.4 is not better than 3 by more than 0.5


def test_the_mean_of_the_last_checkpoints_is_the_result(path: Path, tmp_path: Path) -> None:
    train(
        path,
        folder=tmp_path / "run",
        overrides=["training.average_checkpoints=3", "checkpoints.keep=1"],
    )
    folders = [tmp_path / "run" / "checkpoints" / f"step-000000{n}" for n in ("08", "12", "16")]
    files = [load_file(folder / "model.safetensors") for folder in folders]
    model = Bundle.open(tmp_path / "run" / "bundle").model()
    for name, parameter in model.named_parameters():
        wanted = torch.stack([file[name] for file in files]).mean(dim=0)
        torch.testing.assert_close(parameter.detach(), wanted)


def test_the_last_weights_are_the_result(path: Path, tmp_path: Path) -> None:
    train(path, folder=tmp_path / "run", overrides=["training.result=last"])
    last = load_file(tmp_path / "run" / "checkpoints" / "step-00000016" / "model.safetensors")
    model = Bundle.open(tmp_path / "run" / "bundle").model()
    assert all(torch.equal(p, last[name]) for name, p in model.named_parameters())


def test_epochs_and_minutes_end_a_run(path: Path, tmp_path: Path) -> None:
    text = path.read_text().replace("steps = 16", "epochs = 1.5")
    file = path.with_name("epochs.toml")
    file.write_text(text)
    train(file, folder=tmp_path / "epochs")
    epoch = lines(tmp_path / "epochs", "step")[-1]["epoch"]
    assert epoch == pytest.approx(1.5, abs=0.15)
    train(file, folder=tmp_path / "minutes", overrides=["training.minutes=1e-9"])
    assert len(lines(tmp_path / "minutes", "step")) == 1
    assert (tmp_path / "minutes" / "bundle").is_dir()


def test_a_run_has_all_its_parts(path: Path, tmp_path: Path) -> None:
    test = f'data.test=[{{path = "{path.parent}/valid.tsv", languages = ["en", "fr"]}}]'
    settings = ["validation.translate=true", "validation.samples=2", "training.steps=4", test]
    bundle = train(path, folder=tmp_path / "run", overrides=settings)
    validation = lines(tmp_path / "run", "valid")[-1]
    assert len(validation["samples"]) == 2
    assert set(validation["signatures"]) == {"bleu", "chrf"}
    assert "version:" in validation["signatures"]["bleu"]
    about = (bundle / "MODEL.md").read_text()
    assert "Quality on valid" in about
    assert "Quality on test" in about
    attention = json.loads((tmp_path / "run" / "attention.json").read_text())
    for head in attention["heads"]:
        assert len(head) == len(attention["target"])
        assert all(abs(sum(row) - 1) < 1e-2 for row in head)
    assert "<svg" in (tmp_path / "run" / "report.html").read_text()


def test_compiling_falls_back_quietly(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(function: object, **_: object) -> object:
        def call(*_: object) -> None:
            raise RuntimeError("no compiler here\nand more lines")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    train(path, folder=tmp_path / "with", overrides=["training.compile=on", "training.steps=4"])
    train(path, folder=tmp_path / "without", overrides=["training.steps=4"])
    one, other = (lines(tmp_path / name, "step") for name in ("with", "without"))
    assert [line["loss"] for line in one] == [line["loss"] for line in other]


def command(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["pellucid", "train", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


MISTAKES = {
    "no recipe": (["nothing.toml"], [], ["no recipe at nothing.toml"]),
    "no corpus": ([], ["data.train.0.path=gone.tsv"], ["no such file", "gone.tsv"]),
    "language pair": ([], ['data.directions=["en-de"]'], ["en-de", "there is: en-fr"]),
    "languages in the file": (
        [],
        ["data.train.0.path=memory.tmx"],
        ["memory.tmx has no fr", "its languages are de, en"],
    ),
    "vocabulary": ([], ["tokenizer.vocab_size=9000"], ["vocab_size = 9000", "or less"]),
    "budget": ([], ["batches.max_tokens=12"], ["tokens = 12", "longest sentence", "or more"]),
    "gpu": ([], ["training.device=cuda:7"], ["'cuda:7'", "GPU 7", "'auto' or 'cpu'"]),
    "setting": ([], ["training.warmup_step=3"], ["'warmup_step'", "did you mean 'warmup_steps'"]),
}

MEMORY = """<tmx version="1.4"><header/><body><tu>
<tuv xml:lang="en"><seg>A boat.</seg></tuv><tuv xml:lang="de"><seg>Ein Boot.</seg></tuv>
</tu></body></tmx>"""


@pytest.mark.parametrize("mistake", list(MISTAKES))
def test_a_mistake_gets_one_clear_line(
    mistake: str,
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given, overrides, words = MISTAKES[mistake]
    monkeypatch.chdir(tmp_path)
    Path("memory.tmx").write_text(MEMORY)
    settings = [part for override in overrides for part in ("--set", override)]
    code = command(monkeypatch, *(given or [path]), "--folder", tmp_path / "run", *settings)
    said = capsys.readouterr().err
    assert code == 2
    assert "Traceback" not in said
    last = said.strip().split("\n")[-1]
    assert last.startswith("pellucid: ")
    for word in words:
        assert word in last, last
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_folder_that_cannot_be_written(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert command(monkeypatch, path, "--folder", tmp_path / "file" / "run") == 1
    assert "cannot write the recipe" in capsys.readouterr().err


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is no training run: it has no recipe.toml"):
        train(tmp_path, resume=True)


def test_where_a_run_goes(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, folder = run_module._locate(path, None, ())
    assert folder == Path("runs") / "toy"
    recipe = load_recipe(path)
    assert run_module._locate(recipe, "here", ()) == (recipe, Path("here"))
    with pytest.raises(InputError, match="needs a folder"):
        run_module._locate(recipe, None, ())


def test_from_python(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"folder": tmp_path / "run", "overrides": ["training.steps=2"]}
    bundle = pellucid.train(path, quiet=True, **settings)
    assert bundle == tmp_path / "run" / "bundle"
    assert capsys.readouterr().err == ""
    again = pellucid.train(tmp_path / "run", resume=True)  # done before: it only says so
    assert again == bundle
    assert "resuming from step 2" in capsys.readouterr().err
