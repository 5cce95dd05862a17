"""Presets, and what a wrong setting gets: one line that names it and the remedy."""

import pytest

from pellucid.config import ModelConfig
from pellucid.errors import ConfigError, InputError


@pytest.mark.parametrize(
    ("name", "width", "inner", "heads", "depths"),
    [
        ("tiny", 128, 256, 4, (4, 4)),
        ("small", 256, 1024, 4, (3, 3)),
        ("base", 512, 2048, 8, (6, 6)),
        ("big", 1024, 4096, 16, (6, 6)),
    ],
)
def test_presets(name: str, width: int, inner: int, heads: int, depths: tuple[int, int]) -> None:
    config = ModelConfig.preset(name, vocab_size=100)
    assert (config.d_model, config.d_ff, config.num_heads) == (width, inner, heads)
    assert (config.encoder_layers, config.decoder_layers) == depths
    assert config.norm == "post"
    assert config.position_encoding == "sinusoidal"


def test_a_preset_takes_changes() -> None:
    config = ModelConfig.preset("small", vocab_size=100, norm="pre", decoder_layers=1)
    assert (config.norm, config.decoder_layers, config.encoder_layers) == ("pre", 1, 3)
    assert config.changed(norm="sandwich").norm == "sandwich"
    assert config.norm == "pre"


def test_a_config_cannot_be_changed_in_place() -> None:
    config = ModelConfig.preset("tiny", vocab_size=9)
    with pytest.raises(Exception, match="frozen"):
        config.d_model = 3


WRONG = [
    ({"num_heads": 7}, ["num_heads = 7", "d_model = 512", "set num_heads to 8"]),
    ({"num_kv_heads": 3}, ["num_kv_heads = 3", "num_heads = 8"]),
    ({"d_model": 24, "num_heads": 8, "position_encoding": "rotary"}, ["rotary", "odd", "even"]),
    ({"d_model": 33, "num_heads": 3}, ["sinusoidal", "d_model = 33", "even"]),
    ({"d_modle": 256}, ["'d_modle'", "did you mean 'd_model'"]),
    ({"wombat": 256}, ["'wombat'", "known: ", "d_model"]),
    ({"norm": "psot"}, ["'norm'", "'psot'", "'post', 'pre' or 'sandwich'"]),
    ({"activation": "tanh"}, ["'activation'", "'relu'"]),
    ({"dropout": 1.0}, ["'dropout'", "1.0", "less than 1"]),
    ({"d_model": "wide"}, ["'d_model'", "'wide'", "integer"]),
    ({"d_model": 0}, ["'d_model'", "0", "greater than"]),
    ({"pad_id": 50}, ["pad_id = 50", "below vocab_size"]),
    ({"source_vocab_size": 40}, ["tie_embeddings = 'all'", "'decoder' or 'none'"]),
]


@pytest.mark.parametrize(("wrong", "words"), WRONG, ids=lambda v: str(v)[:40])
def test_a_wrong_setting_gets_one_clear_line(wrong: dict, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        ModelConfig(vocab_size=50, **wrong)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


def test_what_is_missing_is_named() -> None:
    with pytest.raises(InputError, match="'vocab_size' is missing"):
        ModelConfig()


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown preset 'bsae': did you mean 'base'"):
        ModelConfig.preset("bsae", vocab_size=9)


def test_every_setting_has_its_help() -> None:
    for name in ModelConfig.model_fields:
        assert ModelConfig.help_texts().get(name), f"{name} needs a docstring under it"
