"""`pellucid data RECIPE` reads a recipe as `pellucid train` does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pellucid.config import load_recipe
from pellucid.data.command import data
from pellucid.data.store import PreparedData
from pellucid.errors import ConfigError, InputError
from tests import made_up

RECIPE = """
[data]
directions = ["en-fr"]
[[data.train]]
path = "PATH"
languages = ["en", "fr"]
[tokenizer]
vocab_size = 400
[training]
steps = 5
"""


def write_recipe(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "recipe.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "path", ["~/corpora/c.tsv", "../home/corpora/c.tsv", "{home}/corpora/c.tsv"]
)
def test_paths_are_those_that_training_reads(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "corpora").mkdir(parents=True)
    made_up.write_tsv(home / "corpora" / "c.tsv", 300)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    text = RECIPE.replace("PATH", path.replace("{home}", home.as_posix()))
    recipe = Path(os.path.relpath(write_recipe(tmp_path / "recipes", text)))
    assert load_recipe(recipe).data.train[0].path == home / "corpora" / "c.tsv"
    data(str(recipe), tmp_path / "store", workers=1)
    assert len(PreparedData.open(tmp_path / "store").splits["train"]) == 300


def test_mistakes_get_the_lines_that_training_gives(tmp_path: Path) -> None:
    path = write_recipe(tmp_path / "recipes", RECIPE.replace("vocab_size", "kind"))
    with pytest.raises(ConfigError) as prepared:
        data(str(path), tmp_path / "store")
    with pytest.raises(ConfigError) as loaded:
        load_recipe(path)
    assert str(prepared.value) == str(loaded.value)
    assert "unknown setting 'tokenizer.kind': it is now called model_type" in str(loaded.value)


@pytest.mark.parametrize(
    ("key", "old", "new"),
    [
        ("tokenizer.from_model", "vocab_size = 400", 'from_model = "somebody/model"'),
        ("init_from", "\n[data]", 'init_from = "somebody/model"\n[data]'),
    ],
)
def test_the_tokenizer_of_a_model_is_left_to_training(
    key: str, old: str, new: str, tmp_path: Path
) -> None:
    text = RECIPE.replace("vocab_size = 400\n", "") if key == "init_from" else RECIPE
    path = write_recipe(tmp_path / "recipes", text.replace(old, new))
    with pytest.raises(InputError, match=rf"\({key}\).*pellucid train"):
        data(str(path), tmp_path / "store")
    assert not (tmp_path / "store").exists()
