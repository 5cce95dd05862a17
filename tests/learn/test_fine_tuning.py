"""Fine-tuning an imported model: its own weights at the start, and a domain that is learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sacrebleu import corpus_chrf
from transformers import MarianMTModel

import pellucid
from pellucid.bundle import Bundle
from pellucid.config import BatchConfig, CorpusConfig, DataConfig, Recipe, load_recipe
from pellucid.data.batches import Batches
from pellucid.data.prepare import prepare
from pellucid.errors import ConfigError, InputError
from pellucid.exchange import export_model, import_model
from tests.made_up import pairs
from tests.marian_models import LANGUAGES, write_marian

# What a lighthouse keeper talks about, and nobody else.
DOMAIN = ("the lighthouse", "a map", "some pears", "The old captain")


def general(count: int, seed: int) -> list[tuple[str, str]]:
    """French and English, of anything else."""
    rows = [(french, english) for english, french in pairs(20 * count, seed)]
    return [row for row in rows if not any(word in row[1] for word in DOMAIN)][:count]


def domain(count: int, seed: int) -> list[tuple[str, str]]:
    """Sentences of the domain."""
    rows = [(french, english) for english, french in pairs(20 * count, seed)]
    return [row for row in rows if any(word in row[1] for word in DOMAIN)][:count]


def write_tsv(path: Path, rows: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    return path


def corpus(path: Path) -> CorpusConfig:
    return CorpusConfig(path=path, languages=("fr", "en"))


def recipe(start: Path, train: list[Path], valid: Path, **training: Any) -> Recipe:
    return Recipe(
        init_from=str(start),
        data=DataConfig(
            directions=("fr-en",),
            train=tuple(corpus(path) for path in train),
            valid=(corpus(valid),),
            temperature=training.pop("temperature", None),
        ),
        batches=BatchConfig(max_tokens=1500),
        training={"seed": 1, "warmup_steps": 20, "threads": 1, **training},
        validation={"every": 1000, "translate": False},
    )


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> tuple[MarianMTModel, Bundle]:
    folder = tmp_path_factory.mktemp("start")
    peer, _ = write_marian(folder / "opus-mt-fr-en", init_std=0.05)
    return peer, import_model(folder / "opus-mt-fr-en", folder / "bundle")


def test_batches_are_as_marian_wants_them(
    start: tuple[MarianMTModel, Bundle], tmp_path: Path
) -> None:
    """And the loss on them is that of transformers."""
    peer, bundle = start
    words, pad = bundle.tokenizer, peer.config.pad_token_id
    rows = general(30, seed=3)
    data = DataConfig(directions=("fr-en",), train=(corpus(write_tsv(tmp_path / "t.tsv", rows)),))
    prepared = prepare(data, words, tmp_path / "data", workers=1)
    assert prepared.tokenizer.sha256 == words.sha256
    seen = 0
    for batch in Batches(prepared, BatchConfig(max_tokens=400)).epoch(0):
        seen += len(batch)
        assert batch.pad_id == pad
        for number, pair in enumerate(batch.pairs):
            french, english = rows[pair]
            source = [token for token in batch.source[number] if token != pad]
            target = [token for token in batch.target_out[number] if token != pad]
            assert source == words.encode(french, target_language="en")
            assert target == [*words.encode(english, side="target"), words.eos_id]
            assert batch.target_in[number].tolist()[0] == peer.config.decoder_start_token_id
        assert batch.source_tokens == (batch.source != pad).sum()
        labels = torch.tensor(np.where(batch.target_out == pad, -100, batch.target_out))
        source = torch.tensor(batch.source)
        with torch.no_grad():
            theirs = peer(input_ids=source, attention_mask=(source != pad).long(), labels=labels)
            logits = bundle.model()(source, torch.tensor(batch.target_in))
        mine = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        assert mine.item() == pytest.approx(theirs.loss.item(), abs=1e-5)
    assert seen == len(rows)


def test_a_run_starts_with_the_weights_it_was_given(
    start: tuple[MarianMTModel, Bundle], tmp_path: Path
) -> None:
    bundle = start[1]
    train = write_tsv(tmp_path / "train.tsv", general(40, seed=3))
    valid = write_tsv(tmp_path / "valid.tsv", general(10, seed=4))
    given = recipe(bundle.folder, [train], valid, steps=2, learning_rate=1e-7)
    made = Bundle.open(pellucid.train(given, folder=tmp_path / "run", quiet=True))
    assert made.directions == ("fr-en",)
    assert made.tokenizer.files() == bundle.tokenizer.files()
    before, after = bundle.weights(), made.weights()
    assert before.keys() == after.keys()
    for name, array in before.items():
        np.testing.assert_allclose(after[name], array, atol=1e-6)
    assert any((after[name] != array).any() for name, array in before.items())
    assert str(bundle.folder) in made.about
    # half of what changed is taken back, where that is wanted
    half = Bundle.open(
        pellucid.train(
            tmp_path / "run", resume=True, overrides=["training.init_interpolation=0.5"], quiet=True
        )
    )
    for name, array in before.items():
        mean = (after[name].astype(np.float64) + array) / 2
        np.testing.assert_allclose(half.weights()[name], mean, rtol=0, atol=1e-7)
    assert "with 50% of the weights" in half.about
    pellucid.train(
        tmp_path / "run", resume=True, overrides=["training.init_interpolation=0.0"], quiet=True
    )
    # and resumes with the recipe that it wrote into its folder
    assert load_recipe(tmp_path / "run" / "recipe.toml") == given
    again = pellucid.train(
        tmp_path / "run", resume=True, overrides=["training.steps=3"], quiet=True
    )
    assert Bundle.open(again).config == made.config


def test_what_init_from_decides_is_not_set_again(tmp_path: Path) -> None:
    for section, value in (("model", {"d_model": 64}), ("model", {"preset": "tiny"}),
                           ("tokenizer", {"vocab_size": 500})):  # fmt: skip
        path = write_tsv(tmp_path / "t.tsv", general(3, 1))
        with pytest.raises(ConfigError, match=f"{section}.* comes from the model"):
            Recipe(
                init_from="x",
                data=DataConfig(directions=("fr-en",), train=(corpus(path),)),
                training={"steps": 1},
                **{section: value},
            )


def test_one_way_at_a_time(start: tuple[MarianMTModel, Bundle], tmp_path: Path) -> None:
    words = start[1].tokenizer
    train = (corpus(write_tsv(tmp_path / "t.tsv", general(30, seed=3))),)
    both = DataConfig(directions=("fr-en", "en-fr"), train=train)
    with pytest.raises(InputError, match="train one direction at a time"):
        prepare(both, words, tmp_path / "a", workers=1)
    turned = CorpusConfig(path=train[0].path, languages=("en", "fr"))
    mixed = DataConfig(directions=("fr-en",), train=(*train, turned))
    with pytest.raises(InputError, match="different orders"):
        prepare(mixed, words, tmp_path / "b", workers=1)
    one = prepare(DataConfig(directions=("fr-en",), train=train), words, tmp_path / "c", workers=1)
    with pytest.raises(InputError, match="subword_regularization"):
        Batches(one, BatchConfig(subword_regularization=0.1))


def test_tags(tmp_path: Path) -> None:
    """A model for many languages learns with the tag of each."""
    write_marian(tmp_path / "en-mul", tags=LANGUAGES)
    bundle = import_model(tmp_path / "en-mul", tmp_path / "b", directions=("en-fra", "en-deu"))
    path = write_tsv(tmp_path / "t.tsv", general(20, seed=3))
    train = [CorpusConfig(path=path, languages=("en", code)) for code in ("fra", "deu")]
    data = DataConfig(directions=("en-fra", "en-deu"), train=tuple(train))
    prepared = prepare(data, bundle.tokenizer, tmp_path / "data", workers=1)
    tags = [bundle.tokenizer.tag_ids(code)[0] for code in ("fra", "deu")]
    for batch in Batches(prepared, BatchConfig(max_tokens=600)).epoch(0):
        assert batch.source[:, 0].tolist() == [tags[way] for way in batch.directions]


def chrf(bundle: Bundle, rows: list[tuple[str, str]]) -> float:
    made = pellucid.load(bundle.folder).translate([french for french, _ in rows], beam_size=1)
    return corpus_chrf([t.text for t in made], [[english for _, english in rows]]).score


@pytest.mark.slow
def test_a_domain_is_learned_and_the_rest_is_not_forgotten(tmp_path: Path) -> None:
    """The way of docs/models.md: as many general pairs in the mix, and a lower learning rate.

    As many steps without the domain's sentences show what more training alone does.
    """
    shape = {"d_model": 64, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "init_std": 0.05}
    write_marian(tmp_path / "opus-mt-fr-en", **shape)
    empty = import_model(tmp_path / "opus-mt-fr-en", tmp_path / "empty")
    wide = write_tsv(tmp_path / "general.tsv", general(3000, seed=1))
    valid = write_tsv(tmp_path / "valid.tsv", general(50, seed=2))
    learn = recipe(empty.folder, [wide], valid, steps=700, learning_rate=4e-3, schedule="cosine")
    knows = Bundle.open(pellucid.train(learn, folder=tmp_path / "first", quiet=True))
    # Out and in again: what is fine-tuned is a model that came from elsewhere.
    public = import_model(
        export_model(knows, tmp_path / "public", "huggingface"), tmp_path / "imported"
    )
    few = write_tsv(tmp_path / "domain.tsv", domain(60, seed=5))
    gentle: dict[str, Any] = {
        "steps": 150, "learning_rate": 2e-3, "temperature": 100, "schedule": "cosine"
    }  # fmt: skip
    own, wider = domain(60, seed=8), general(60, seed=9)
    before, kept = chrf(public, own), chrf(public, wider)
    found = {}
    for name, train in (("tuned", [few, wide]), ("control", [wide])):
        given = recipe(public.folder, train, valid, **gentle)
        made = Bundle.open(pellucid.train(given, folder=tmp_path / name, quiet=True))
        found[name] = chrf(made, own), chrf(made, wider)
    print(f"domain, general: {before:.1f}, {kept:.1f} before; {found}")
    assert kept > 60  # it had learned something
    assert found["tuned"][0] > before + 3
    assert found["tuned"][0] > found["control"][0] + 3
    assert found["tuned"][1] > kept - 3
