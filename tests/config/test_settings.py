"""Settings and values by a former name: one line that gives the new name, and no alias."""

from pathlib import Path

import pytest

from pellucid.config import Recipe, load_recipe
from pellucid.config.settings import FORMER_NAMES, FORMER_VALUES, Settings
from pellucid.decoding.options import DecodingOptions
from pellucid.errors import ConfigError

TEXT = """
[data]
directions = ["fr-en"]
[[data.train]]
path = "a.tsv"
languages = ["fr", "en"]
[training]
steps = 5
"""

NAMES = [
    (section, old, new) for section, names in FORMER_NAMES.items() for old, new in names.items()
]
VALUES = [
    (section, name, old, new)
    for (section, name), values in FORMER_VALUES.items()
    for old, new in values.items()
]


def settings_of(section: str) -> type[Settings]:
    """The class of a section's settings."""
    if section == "decoding":
        return DecodingOptions
    found = Recipe.model_fields[section].annotation if section else Recipe
    assert isinstance(found, type)
    assert issubclass(found, Settings)
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "recipe.toml"
    file.write_text(TEXT, encoding="utf-8")
    return file


@pytest.mark.parametrize(("section", "old", "new"), NAMES)
def test_every_new_name_is_a_setting_and_no_old_one_is(section: str, old: str, new: str) -> None:
    assert settings_of(section).section == section
    assert old not in settings_of(section).model_fields
    *moved_to, name = new.split(".")
    assert name in settings_of(moved_to[0] if moved_to else section).model_fields


@pytest.mark.parametrize(("section", "old", "new"), NAMES)
def test_an_old_name_in_python_gets_one_line(section: str, old: str, new: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_of(section)(**{old: 1})
    assert str(caught.value) == f"unknown setting {old!r}: it is now called {new}"


@pytest.mark.parametrize(("section", "old", "new"), [n for n in NAMES if n[0] != "decoding"])
@pytest.mark.parametrize("way", ["in the file", "--set"])
def test_an_old_name_in_a_recipe_gets_one_line(
    section: str, old: str, new: str, way: str, path: Path
) -> None:
    dotted = f"{section}.{old}" if section else old
    if way == "in the file":
        text = f"{dotted} = 1\n{TEXT}".replace("[training]\nsteps = 5\n", "training.steps = 5\n")
        head, tables = text.split("[data]")
        *rest, last = tables.splitlines()
        path.write_text(f"{head}{last}\n[data]" + "\n".join(rest), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_recipe(path, [] if way == "in the file" else [f"{dotted}=1"])
    assert str(caught.value) == f"{path}: unknown setting {dotted!r}: it is now called {new}"


@pytest.mark.parametrize(("section", "name", "old", "new"), VALUES)
def test_an_old_value_gets_one_line(
    section: str, name: str, old: str, new: str, path: Path
) -> None:
    kind = settings_of(section)
    with pytest.raises(ConfigError) as caught:
        kind(**{name: old})
    assert str(caught.value) == f"setting {name!r} is {old!r}: it is now called {new}"
    if " = " in new:  # moved to another setting
        assert kind(**{new.split(" = ")[0]: old}) == kind(
            **{new.split(" = ")[0]: new.split("'")[1]}
        )
        return
    if section != "decoding":
        with pytest.raises(ConfigError, match=f"setting '{section}.{name}' is '{old}': .*{new}"):
            load_recipe(path, [f"{section}.{name}={old}"])
        recipe = load_recipe(path, [f"{section}.{name}={new}"])
        assert getattr(getattr(recipe, section), name) == new.strip("'")


def test_whole_sections_by_a_former_name(path: Path) -> None:
    path.write_text(TEXT + "[stopping]\npatience = 3\n", encoding="utf-8")
    with pytest.raises(
        ConfigError, match="unknown setting 'stopping': it is now called early_stop"
    ):
        load_recipe(path)
    path.write_text(TEXT + '[model]\npreset = "tiny"\nwidth = 64\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"unknown setting 'model\.width': it is now .* d_model"):
        load_recipe(path)
