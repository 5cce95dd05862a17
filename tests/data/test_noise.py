"""Source noise: what it does to sentences, and that batches apply it to sources alone."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.config import BatchConfig, DataConfig
from pellucid.data.batches import Batches
from pellucid.data.noise import add_typing_noise, without_accents
from pellucid.data.prepare import prepare
from pellucid.data.store import PreparedData
from tests import made_up

SENTENCE = "Élodie a retrouvé ses vieilles lunettes."


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    folder = tmp_path_factory.mktemp("noise")
    corpus = made_up.write_tsv(folder / "pairs.tsv", 300)
    data = DataConfig(directions=("en-fr", "fr-en"), train=(corpus,))
    return prepare(data, made_up.tokenizer(), folder / "data", workers=1)


def rows(prepared: PreparedData, noise: float, epoch: int = 0) -> dict[tuple[int, int], tuple]:
    """Source and target of each pair and direction."""
    config = BatchConfig(max_tokens=400, prefetch=0, source_noise=noise)
    decode = prepared.tokenizer.decode
    return {
        (int(pair), int(way)): (decode(batch.source[row]), decode(batch.target_out[row]))
        for batch in Batches(prepared, config, seed=3).epoch(epoch)
        for row, (pair, way) in enumerate(zip(batch.pairs, batch.directions, strict=True))
    }


def test_every_kind_of_noise_occurs_and_none_always() -> None:
    made = [add_typing_noise(SENTENCE, str(number)) for number in range(400)]
    kinds: Counter[str] = Counter()
    for text in made:
        kinds["lower case"] += text[0] in "ée"
        kinds["no full stop"] += not text.endswith(".")
        kinds["no accents"] += "é" not in text.lower()
        kinds["typo"] += without_accents(text).lower().rstrip(".") != (
            without_accents(SENTENCE).lower().rstrip(".")
        )
    assert all(0.05 < count / len(made) < 0.9 for count in kinds.values()), kinds
    assert len(set(made)) > 50


@given(st.text(), st.text())
def test_any_text_stays_a_text(text: str, key: str) -> None:
    text = text.encode("utf-8", "ignore").decode()
    key = key.encode("utf-8", "ignore").decode()
    made = add_typing_noise(text, key)
    assert made == add_typing_noise(text, key)
    assert bool(made) == bool(text) or not without_accents(text)


def test_a_share_of_the_sources_and_no_target_is_changed(prepared: PreparedData) -> None:
    plain, noisy = rows(prepared, 0.0), rows(prepared, 0.3)
    assert plain.keys() == noisy.keys()
    assert all(plain[key][1] == noisy[key][1] for key in plain)
    changed = [key for key in plain if plain[key][0] != noisy[key][0]]
    assert 0.15 < len(changed) / len(plain) < 0.35
    assert noisy == rows(prepared, 0.3)
    again = rows(prepared, 0.3, epoch=1)
    assert changed != [key for key in plain if plain[key][0] != again[key][0]]


def test_batches_keep_their_budget(prepared: PreparedData) -> None:
    for sampling in (None, 0.2):
        config = BatchConfig(
            max_tokens=300, prefetch=0, source_noise=1.0, subword_regularization=sampling
        )
        for batch in Batches(prepared, config).epoch(0):
            assert len(batch) * max(batch.source.shape[1], batch.target_in.shape[1]) <= 300


def test_a_position_in_other_data_is_refused(prepared: PreparedData) -> None:
    from pellucid.errors import InputError

    state = Batches(prepared, BatchConfig(max_tokens=400, source_noise=0.1)).state()
    with pytest.raises(InputError, match="source_noise"):
        Batches(prepared, BatchConfig(max_tokens=400)).restore(state)


def test_the_setting_is_a_fraction(tmp_path: Path) -> None:
    from pellucid.errors import ConfigError

    with pytest.raises(ConfigError, match="source_noise"):
        BatchConfig(source_noise=1.5)
