"""The templates behind the general recipe: numbers, dates and times in both languages."""

from __future__ import annotations

import importlib.util
import itertools
import re
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "recipes" / "general" / "make.py"


@pytest.fixture(scope="module")
def make() -> ModuleType:
    spec = importlib.util.spec_from_file_location("general_make", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("number", "english", "french"),
    [
        (21, "twenty-one", "vingt et un"),
        (71, "seventy-one", "soixante et onze"),
        (77, "seventy-seven", "soixante-dix-sept"),
        (80, "eighty", "quatre-vingts"),
        (81, "eighty-one", "quatre-vingt-un"),
        (91, "ninety-one", "quatre-vingt-onze"),
        (99, "ninety-nine", "quatre-vingt-dix-neuf"),
        (100, "one hundred", "cent"),
        (200, "two hundred", "deux cents"),
        (201, "two hundred and one", "deux cent un"),
        (1000, "one thousand", "mille"),
        (1005, "one thousand and five", "mille cinq"),
        (80_000, "eighty thousand", "quatre-vingt mille"),
        (200_300, "two hundred thousand three hundred", "deux cent mille trois cents"),
    ],
)
def test_numbers_in_words(make: ModuleType, number: int, english: str, french: str) -> None:
    assert (make.english_number(number), make.french_number(number)) == (english, french)


def test_different_numbers_have_different_words(make: ModuleType) -> None:
    for words in (make.english_number, make.french_number):
        assert len({words(n) for n in range(20_000)}) == 20_000


def test_feminine_nouns_take_une(make: ModuleType) -> None:
    assert make.french_number(21, feminine=True) == "vingt et une"
    assert make.french_number(81, feminine=True) == "quatre-vingt-une"
    assert make.french_number(71, feminine=True) == "soixante et onze"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_digits_and_names_are_the_same_on_both_sides(make: ModuleType, seed: int) -> None:
    for english, french in itertools.islice(make.Templates(seed).pairs(), 5000):
        assert english
        assert french
        assert "{" not in english + french
        assert ".." not in english
        if not re.search(r"[ap]\.m\.|:00", english):  # 2 p.m. is 14 h, and 9:00 is 9 h
            digits = [sorted(re.findall(r"\d", side)) for side in (english, french)]
            assert digits[0] == digits[1], (english, french)
        names = set(re.findall(r"\w+", english)) & set(make.FIRST_NAMES)
        places = {city for both in make.CITIES for city in both}
        assert names - places <= set(re.findall(r"\w+", french)), (english, french)


def test_the_same_seed_gives_the_same_pairs(make: ModuleType) -> None:
    one, other = (list(itertools.islice(make.Templates(7).pairs(), 200)) for _ in range(2))
    assert one == other
