"""Recipes: read, overridden, written, compared; and what a mistake in one gets."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.config import (
    ModelConfig,
    Recipe,
    Settings,
    as_toml,
    load_recipe,
    recipe_differences,
)
from pellucid.errors import ConfigError, InputError

TEXT = """
[data]
directions = ["fr-en"]
[[data.train]]
path = "corpus/a.tsv"
languages = ["fr", "en"]
[[data.valid]]
source = "/there/b.fr"
target = "b.en"
languages = ["fr", "en"]
[model]
preset = "tiny"
d_model = 100
[training]
steps = 5
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "recipe.toml"
    file.write_text(TEXT, encoding="utf-8")
    return file


def test_paths_are_relative_to_the_file(path: Path) -> None:
    recipe = load_recipe(path)
    assert recipe.data.train[0].path == path.parent / "corpus" / "a.tsv"
    assert recipe.data.valid[0].source == Path("/there/b.fr")
    assert recipe.data.valid[0].target == path.parent / "b.en"


def test_a_path_in_an_override_is_relative_to_the_caller(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    recipe = load_recipe(path, ["data.train.0.path=c.tsv"])
    assert recipe.data.train[0].path == tmp_path / "here" / "c.tsv"


def test_the_model_starts_from_its_preset(path: Path) -> None:
    recipe = load_recipe(path, ["model.norm=pre"])
    config = recipe.model.config(vocab_size=50)
    wanted = ModelConfig.preset("tiny", vocab_size=50, d_model=100, norm="pre")
    assert config.model_dump() == wanted.model_dump()


def test_overrides_of_every_kind(path: Path) -> None:
    overrides = [
        "training.learning_rate=3e-4",
        "training.betas=[0.9, 0.95]",
        "validation.translate=false",
        "title=two words",
        "data.cleaning.max_words=7",
    ]
    recipe = load_recipe(path, overrides)
    assert recipe.training.learning_rate == 3e-4
    assert recipe.training.betas == (0.9, 0.95)
    assert recipe.validation.translate is False
    assert recipe.title == "two words"
    assert recipe.data.cleaning.max_words == 7


def test_a_resolved_recipe_reads_back_the_same(path: Path, tmp_path: Path) -> None:
    recipe = load_recipe(path, ['title="quotes \\" and \\\\ and é"', "training.ema_decay=0.99"])
    copy = tmp_path / "copy.toml"
    copy.write_text(as_toml(recipe), encoding="utf-8")
    assert load_recipe(copy) == recipe
    assert recipe_differences(recipe, load_recipe(copy)) == []


class _Anything(Settings):
    text: str
    number: float
    whole: int
    flags: tuple[bool, ...]


@given(
    text=st.text(st.characters(blacklist_categories=["Cs"])),
    number=st.floats(allow_nan=False),
    whole=st.integers(-(2**63), 2**63 - 1),
    flags=st.lists(st.booleans(), max_size=3),
)
def test_any_value_survives_toml(text: str, number: float, whole: int, flags: list[bool]) -> None:
    settings = _Anything(text=text, number=number, whole=whole, flags=tuple(flags))
    assert _Anything(**tomllib.loads(as_toml(settings))) == settings


WRONG = [
    ("training.stesp=4", ["'stesp'", "did you mean 'steps'"]),
    ("trainig.steps=4", ["'trainig'", "did you mean 'training'"]),
    ("training.steps", ["section.key=value"]),
    ("training.steps.x=3", ["training.steps is a single value"]),
    ("data.train.7.path=x", ["data.train is a list of 1"]),
    ("model.vocab_size=3", ["unknown setting 'vocab_size'"]),
    ("model.num_heads=3", ["num_heads = 3", "d_model = 100"]),
    ("training.schedule=noma", ["'noma'", "'noam'"]),
    ("training.result=ema", ["needs ema_decay"]),
    ("training.result=average", ["needs average_checkpoints"]),
    ("training.init_interpolation=0.5", ["init_interpolation", "init_from", "leave it out"]),
    ("training.betas=[1.0, 0.9]", ["betas", "below 1"]),
    ("training.device=gpu", ["device"]),
    ("early_stopping.metric=ter", ["'loss', 'bleu' or 'chrf'"]),
    ("early_stopping.patience=0", ["patience"]),
    ('data.directions=["de-en"]', ["no training corpus has both languages", "de-en", "en-fr"]),
]


@pytest.mark.parametrize(("override", "words"), WRONG, ids=lambda v: str(v)[:30])
def test_a_mistake_gets_one_clear_line(override: str, words: list[str], path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_recipe(path, [override])
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


def test_no_end_and_no_validation_data(path: Path) -> None:
    text = TEXT.replace("steps = 5", "seed = 5")
    path.write_text(text)
    with pytest.raises(ConfigError, match="set steps, epochs or minutes"):
        load_recipe(path)
    path.write_text(text.replace("[data.valid]", "[data.test]").replace("seed", "steps"))
    for override in (
        "early_stopping.patience=3",
        "early_stopping.metric=bleu",
        "training.result=best",
    ):
        with pytest.raises(ConfigError, match=r"add \[\[data.valid\]\]"):
            load_recipe(path, [override])


def test_a_file_that_is_no_recipe(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no recipe at"):
        load_recipe(tmp_path / "nothing.toml")
    (tmp_path / "bad.toml").write_text("[data\n")
    with pytest.raises(ConfigError, match=r"not valid TOML: .*line 1"):
        load_recipe(tmp_path / "bad.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="cannot read the recipe"):
        load_recipe(tmp_path / "bytes.toml")
    with pytest.raises(InputError, match="cannot read the recipe"):
        load_recipe(tmp_path)


def test_differences_say_what_may_change(path: Path) -> None:
    old = load_recipe(path)
    new = load_recipe(
        path,
        [
            "training.seed=3",
            "data.train.0.path=/x.tsv",
            "validation.beam_size=2",
            "training.steps=9",
        ],
    )
    found = {d.key: d.may_change for d in recipe_differences(old, new)}
    assert found == {
        "training.seed": False,
        "data.train.0.path": True,
        "validation.beam_size": True,
        "training.steps": True,
    }


def test_every_setting_has_its_help() -> None:
    def check(cls: type[Settings]) -> None:
        for name, field in cls.model_fields.items():
            kind = field.annotation
            if isinstance(kind, type) and issubclass(kind, Settings):
                assert kind.__doc__
                check(kind)
            else:
                assert cls.help_texts().get(name), f"{cls.__name__}.{name}: no docstring under it"

    check(Recipe)
