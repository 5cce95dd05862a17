"""Several models: which one translates what, through a third language, and changed on the way."""

import json
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

import pellucid
from pellucid.bundle import Bundle
from pellucid.config import TokenizerConfig
from pellucid.decoding.ct2.conversion import add_ct2
from pellucid.errors import InputError, PellucidError
from pellucid.exchange import import_model
from pellucid.server.service.served_models import ModelLoader, ServedModels, reload
from pellucid.tokenizers.sentencepiece import Tokenizer
from tests.bundles import random_model, write_bundle
from tests.made_up import pairs
from tests.marian_models import write_marian
from tests.server.running import Here

TEXT = "The old captain carries an umbrella."


def write_other(folder: Path, *directions: str, seed: int = 1) -> Path:
    """A model with other weights, for these directions."""
    languages = tuple(dict.fromkeys(code for way in directions for code in way.split("-")))
    lines = [line for pair in pairs(300) for line in pair]
    words = Tokenizer.train(lines, TokenizerConfig(vocab_size=400), languages)
    model = random_model(words.vocab_size)
    torch.manual_seed(seed)
    for weight in model.parameters():
        weight += 0.1 * torch.randn_like(weight)
    model.output.bias[:6] = -40.0
    model.output.bias[3] = 1.5
    add_ct2(
        Bundle.write(folder, model.config, model.state_dict(), words, directions=directions,
                     about={"title": "Other"})
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_other(tmp_path_factory.mktemp("other") / "german", "en-de", "en-fr")


def asked(here: Here, **body: Any) -> httpx.Response:
    return httpx.post(f"{here.address}/translate", json={"q": TEXT, **body}, timeout=60)


def test_each_direction_goes_to_its_model(folder: Path, other: Path) -> None:
    first, second = pellucid.load(folder, "ct2"), pellucid.load(other, "ct2")
    with Here(folder, other) as here:

        def said(**body: Any) -> str:
            return str(asked(here, **body).json()["translatedText"])

        assert said(source="en", target="fr") == first(TEXT, source="en", target="fr")
        assert said(source="en", target="de") == second(TEXT, source="en", target="de")
        named = said(source="en", target="fr", model="german")
        assert named == second(TEXT, source="en", target="fr")
        assert asked(here, source="fr", target="de").status_code == 422
        about = httpx.get(f"{here.address}/about").json()
        assert about["directions"] == ["fr-en", "en-fr", "en-de"]
        assert about["models"] == {"small": ["fr-en", "en-fr"], "german": ["en-de", "en-fr"]}


def test_through_a_third_language_where_it_is_allowed(folder: Path, other: Path) -> None:
    first, second = pellucid.load(folder, "ct2"), pellucid.load(other, "ct2")
    with Here(folder, other, pivot=True) as here:
        text = "Le boulanger vend des poires."
        answer = asked(here, q=text, source="fr", target="de", alternatives=1).json()
        middle = first(text, source="fr", target="en")
        (made,) = second.translate([middle], "en", "de", n_best=2)
        assert answer == {
            "translatedText": made.text,
            "alternatives": list(made.n_best[1:]),
            "pivot": "en",
        }
        languages = {
            one["code"]: one["targets"] for one in httpx.get(f"{here.address}/languages").json()
        }
        assert languages["fr"] == ["de", "en"]
        refused = asked(here, source="fr", target="de", details=True)
        assert refused.status_code == 422
        assert "two steps" in refused.json()["error"]


def test_a_folder_of_models_is_read_again(tmp_path: Path, folder: Path, other: Path) -> None:
    place = tmp_path / "models"
    place.mkdir()
    write_bundle(place / "one")
    loader = ModelLoader([str(place)], "auto", 1)
    models = ServedModels(loader.load())
    kept = models.table.default
    assert reload(models, loader) == ([], [])
    assert models.table.default is kept, "what has not changed stays loaded"
    write_other(place / "two", "en-de")
    assert reload(models, loader) == (["two"], [])
    with models.using("en", "de") as steps:
        (place / "two").rename(tmp_path / "elsewhere")
        assert reload(models, loader) == ([], ["two"])
        made = steps[0].model.translator.translate([TEXT], "en", "de")[0].text
        assert made == pellucid.load(tmp_path / "elsewhere", "ct2")(TEXT), "still there in use"
    with pytest.raises(InputError, match="'de' is not served"), models.using("en", "de"):
        pass
    (place / "one" / "config.toml").write_text("damaged")
    with pytest.raises(PellucidError):
        reload(models, loader)
    assert models.table.default is kept, "a damaged one changes nothing"
    models.close()


def test_models_change_while_requests_are_under_way(tmp_path: Path) -> None:
    place = tmp_path / "model"
    write_other(place, "en-de", seed=1)
    old = pellucid.load(place, "ct2")(TEXT)
    with Here(place) as here:
        answers: list[tuple[int, str]] = []
        stop = threading.Event()

        def ask() -> None:
            with httpx.Client(timeout=60, verify=False) as client:
                body = {"q": TEXT, "source": "en", "target": "de"}
                while not stop.is_set():
                    answer = client.post(f"{here.address}/translate", json=body)
                    answers.append((answer.status_code, answer.json()["translatedText"]))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        write_other(place, "en-de", seed=2)
        here.running.reload()
        new = pellucid.load(place, "ct2")(TEXT)
        assert old != new
        assert asked(here, source="en", target="de").json()["translatedText"] == new
        stop.set()
        for thread in threads:
            thread.join(60)
        here.close()
    assert {status for status, _ in answers} == {200}
    assert {text for _, text in answers} <= {old, new}
    assert [e["added"] for e in here.log.events if e["event"] == "reloaded"] == [["model"]]


def test_an_imported_model_is_served_and_looked_into(tmp_path: Path) -> None:
    write_marian(tmp_path / "public")
    text = "le vieux capitaine porte un parapluie"
    imported = import_model(tmp_path / "public", tmp_path / "imported", directions=["fr-en"])
    translator = pellucid.load(imported.folder)
    with Here(imported.folder) as here:
        answer = asked(here, q=text, source="fr", target="en").json()
        assert answer["translatedText"] == translator(text)
        question = {"q": text, "source": "fr", "target": "en", "beam_size": 1}
        seen = httpx.post(f"{here.address}/trace", json=question, timeout=120).json()
    inside = translator.look(text, beam_size=1)
    assert seen["text"] == inside.text
    assert seen["tokens"] == json.loads(json.dumps(inside.as_dict()["tokens"]))
