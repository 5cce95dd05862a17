"""The recipes that come with Pellucid load, are complete, and their models can be built."""

import importlib.util
import tomllib
from pathlib import Path

import pytest

from docs import settings_table
from pellucid.config import DataConfig, Recipe, as_toml, load_recipe
from pellucid.data.corpus import read_pairs
from pellucid.errors import ConfigError
from pellucid.model.flops import BatchShape
from pellucid.training.optim.schedule import peak_learning_rate
from pellucid.training.plan.estimate import dry_run

FOLDER = Path(__file__).parents[2] / "recipes"
NAMES = sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str) -> Recipe:
    return load_recipe(FOLDER / f"{name}.toml")


def test_all_are_here() -> None:
    assert NAMES == [
        "classic", "general-fr-en", "multi30k-en-de", "multi30k-en-de-more", "multi30k-en-fr",
        "multi30k-quick", "tatoeba-fr-en", "tatoeba-fr-en-more", "toy", "wmt14-base", "wmt14-big",
    ]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_loads_and_its_model_runs_as_shapes(name: str) -> None:
    recipe = load(name)
    assert recipe.title
    config = recipe.model.config(recipe.tokenizer.vocab_size)
    sentences = min(64, recipe.batches.max_tokens // 28)
    model, _ = dry_run(config, BatchShape(sentences, 27, 28))
    assert model.num_parameters() > 0
    assert recipe.data.valid
    assert recipe.data.test


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_written_out_reads_back_the_same(name: str, tmp_path: Path) -> None:
    recipe = load(name)
    (tmp_path / "recipe.toml").write_text(as_toml(recipe), encoding="utf-8")
    assert load_recipe(tmp_path / "recipe.toml") == recipe


@pytest.mark.parametrize("name", NAMES)
def test_every_key_is_known_and_a_misspelled_one_is_not(name: str, tmp_path: Path) -> None:
    text = (FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    for section, keys in tomllib.loads(text).items():
        for key in keys if isinstance(keys, dict) and section != "data" else ():
            path = tmp_path / "misspelled.toml"
            path.write_text(text.replace(f"\n{key} =", f"\n{key}x ="), encoding="utf-8")
            with pytest.raises(ConfigError, match=f"{key}x"):
                load_recipe(path)


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_explains_itself(name: str) -> None:
    text = (FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert f"pellucid train recipes/{name}.toml" in text
    assert all(len(line) <= 100 for line in text.splitlines())
    assert "/work" not in text


@pytest.mark.parametrize(
    ("name", "width", "heads", "dropout", "steps", "average"),
    [("wmt14-base", 512, 8, 0.1, 100_000, 5), ("wmt14-big", 1024, 16, 0.3, 300_000, 20)],
)
def test_the_papers_settings(
    name: str, width: int, heads: int, dropout: float, steps: int, average: int
) -> None:
    recipe = load(name)
    model, training = recipe.model, recipe.training
    assert (model.d_model, model.d_ff, model.num_heads) == (width, 4 * width, heads)
    assert (model.encoder_layers, model.decoder_layers, model.norm) == (6, 6, "post")
    assert (model.dropout, model.tie_embeddings) == (dropout, "all")
    assert (training.steps, training.average_checkpoints, training.optimizer) == (
        steps,
        average,
        "adam",
    )
    assert (training.betas, training.epsilon) == ((0.9, 0.98), 1e-9)
    assert (training.schedule, training.warmup_steps) == ("noam", 4000)
    assert training.label_smoothing == 0.1
    assert recipe.batches.max_tokens == 25_000
    assert peak_learning_rate(training, width) == pytest.approx(width**-0.5 * 4000**-0.5)
    assert recipe.checkpoints.keep >= average


def test_the_toy_is_made_by_its_script() -> None:
    spec = importlib.util.spec_from_file_location("toy_make", FOLDER / "toy" / "make.py")
    assert spec is not None
    assert spec.loader is not None
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    for name, content in make.files().items():
        assert (FOLDER / "toy" / name).read_text(encoding="utf-8") == content
    assert (make.english(42), make.french(42)) == ("forty-two", "quarante-deux")
    said = [make.french(n) for n in (71, 80, 81, 92, 99)]
    assert said == [
        "soixante et onze", "quatre-vingts", "quatre-vingt-un", "quatre-vingt-douze",
        "quatre-vingt-dix-neuf",
    ]  # fmt: skip


def test_the_toys_files_are_small_and_share_no_sentence() -> None:
    recipe = load("toy")
    seen: set[str] = set()
    for corpora in (recipe.data.train, recipe.data.valid, recipe.data.test):
        for corpus in corpora:
            assert corpus.path is not None
            assert corpus.path.stat().st_size < 300_000
            sources = [pair.first for pair in read_pairs(corpus)]
            assert len(sources) == len(set(sources)) >= 100
            assert seen.isdisjoint(sources)
            seen.update(sources)


def test_the_page_lists_every_setting_as_it_is() -> None:
    page = settings_table.PAGE.read_text(encoding="utf-8")
    assert page == settings_table.updated(page), "run: python -m docs.settings_table"
    for section in settings_table.SECTIONS:
        for name in section[1].model_fields:
            grouped = section[1] is DataConfig or section[1] is Recipe
            assert f"| `{name}` (" in page or grouped, name
            assert section[1].help_texts().get(name) or section[1] is Recipe, f"{name} has no help"


def test_the_page_names_every_recipe() -> None:
    page = settings_table.PAGE.read_text(encoding="utf-8")
    for name in NAMES:
        assert f"(../recipes/{name}.toml)" in page
