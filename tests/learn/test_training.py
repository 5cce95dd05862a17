"""`pellucid train` from a recipe to a bundle that translates sentences it has never seen."""

import io
from pathlib import Path

from rich.console import Console
from sacrebleu.metrics import BLEU

import pellucid
from pellucid.bundle import Bundle
from pellucid.decoding import DecodingOptions
from pellucid.decoding.torch.engine import TorchEngine
from pellucid.training.callbacks.metrics_file import read_metrics
from pellucid.training.run import train
from pellucid.training.validate import SPECIAL
from tests.learn.trained import Trained
from tests.reliability.runs import make_recipe

STATED_BLEU = 90  # seeds 1 to 4 gave 100.0, 100.0, 99.1 and 99.8


def test_a_tiny_run_reaches_its_bleu(trained: Trained) -> None:
    assert trained.printed.strip() == "runs/toy/bundle"
    for name in ("report.html", "attention.json", "recipe.toml"):
        assert (trained.run / name).stat().st_size > 0
    losses = [line["loss"] for line in read_metrics(trained.run) if line["kind"] == "step"]
    assert len(losses) == 250
    assert losses[-1] < losses[0] / 10

    tokenizer = trained.bundle.tokenizer
    engine = TorchEngine(trained.bundle.model(), SPECIAL)
    sources = [tokenizer.encode(one, target_language="xb") for one, _ in trained.unseen[:100]]
    results = engine.translate_ids(sources, DecodingOptions(beam_size=1))
    found = [tokenizer.decode(result.best.tokens) for result in results]
    bleu = BLEU().corpus_score(found, [[two for _, two in trained.unseen[:100]]]).score
    assert bleu > STATED_BLEU


def test_the_bundle_is_ready_for_both_engines(trained: Trained) -> None:
    bundle = trained.bundle
    assert bundle.has_ct2
    longest = max(len(bundle.tokenizer.encode(side)) for pair in trained.unseen for side in pair)
    assert bundle.settings.longest is not None
    assert abs(bundle.settings.longest - longest) <= 3


def test_a_model_without_ct2_says_why(tmp_path: Path) -> None:
    """In one line, and the bundle translates all the same."""
    said = Console(file=io.StringIO(), width=200)
    recipe = make_recipe(tmp_path)
    changes = ["training.steps=2", "model.activation=relu2"]
    folder = train(recipe, folder=tmp_path / "run", overrides=changes, console=said)
    bundle = Bundle.open(folder)
    assert not bundle.has_ct2
    lines = [line for line in said.file.getvalue().splitlines() if "no ct2/" in line]  # type: ignore[attr-defined]
    assert len(lines) == 1
    assert "PyTorch: CTranslate2 has no activation = 'relu2'" in lines[0]
    language = bundle.directions[0].split("-")[0]
    assert pellucid.load(folder).translate(["a b"], source=language, max_length=3)
