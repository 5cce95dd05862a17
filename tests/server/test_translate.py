"""The API as LibreTranslate's clients use it: two of them unchanged, and every way of asking."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from deep_translator import LibreTranslator
from libretranslatepy import LibreTranslateAPI

from pellucid.text.documents import open_document
from pellucid.translator import Translator
from tests.made_up import pairs
from tests.server.running import Here

TEXT = "The baker sells some pears."
OTHER = "My sister found a map near the station."
LONG = "The baker sells some pears. Nobody found her café!\n\n- An engineer carries a map.\n  42\n"
WAY = {"source": "en", "target": "fr"}


def said(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_client_libretranslatepy_works_unchanged(here: Here, alone: Translator) -> None:
    client = LibreTranslateAPI(here.address)
    assert client.translate(TEXT, "en", "fr") == alone(TEXT, source="en", target="fr")
    assert client.translate("Personne", "auto", "en") == alone("Personne", source="fr")
    assert client.detect("Bonjour, je voudrais deux billets pour demain.")[0]["language"] == "fr"
    languages = {one["code"]: one for one in client.languages()}
    assert languages["en"] == {"code": "en", "name": "English", "targets": ["fr"]}


def test_the_client_deep_translator_works_unchanged(here: Here, alone: Translator) -> None:
    client = LibreTranslator(source="en", target="fr", api_key="any", custom_url=f"{here.address}/")
    assert client.translate(TEXT) == alone(TEXT, source="en", target="fr")
    assert client.translate_batch([TEXT, OTHER]) == [
        alone(text, source="en", target="fr") for text in (TEXT, OTHER)
    ]


WAYS_TO_ASK: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "json": lambda fields: {"json": fields},
    "form": lambda fields: {"data": fields},
    "multipart": lambda fields: {"data": fields, "files": {"nothing": b""}},
    "address": lambda fields: {"params": fields},
}


@pytest.mark.parametrize("how", WAYS_TO_ASK)
def test_every_way_of_asking_gets_the_same(
    client: httpx.Client, alone: Translator, how: str
) -> None:
    fields = {"q": TEXT, **WAY, "alternatives": 2, "format": "text", "secret": ""}
    answer = said(client.post("/translate", **WAYS_TO_ASK[how](fields)))
    (made,) = alone.translate([TEXT], "en", "fr", n_best=3)
    assert answer == {"translatedText": made.text, "alternatives": list(made.n_best[1:])}


def test_several_texts_come_back_in_order(client: httpx.Client, alone: Translator) -> None:
    texts = [english for english, _ in pairs(40)]
    answer = said(client.post("/translate", json={"q": texts, **WAY}))
    assert answer["translatedText"] == [made.text for made in alone.translate(texts, "en", "fr")]
    assert said(client.post("/translate", json={"q": [], **WAY})) == {"translatedText": []}
    assert said(client.post("/translate", json={"q": "", **WAY})) == {"translatedText": ""}
    form = {"q": texts[:3], **WAY}
    assert said(client.post("/translate", data=form))["translatedText"] == [
        made.text for made in alone.translate(texts[:3], "en", "fr")
    ]


def test_the_language_is_found_for_each_text(client: httpx.Client, alone: Translator) -> None:
    english, french = "The old captain has forgotten what you said.", "Le vieux capitaine l'a dit."
    asked = {"q": [english, french, "42"], "source": "auto", "target": "fr"}
    answer = said(client.post("/translate", json=asked))
    assert [one["language"] for one in answer["detectedLanguage"]] == ["en", "fr", "en"]
    assert all(0 <= one["confidence"] <= 100 for one in answer["detectedLanguage"])
    assert answer["translatedText"] == [alone(english, source="en"), french, "42"]


def test_html_keeps_its_tags(client: httpx.Client, alone: Translator) -> None:
    fragment = f'<p class="x">{TEXT}</p><script>let a = "The baker";</script><br><b>{OTHER}</b>'
    answer = said(client.post("/translate", json={"q": fragment, **WAY, "format": "html"}))
    document = open_document(fragment.encode(), "html", target="fr")
    made = [alone(text, source="en") for text in document.texts()]
    assert answer["translatedText"] == document.rebuilt(made).decode()
    assert '<script>let a = "The baker";</script>' in answer["translatedText"]


def test_our_own_fields(client: httpx.Client, alone: Translator) -> None:
    asked = {"q": LONG, **WAY, "details": True, "beam_size": 2, "model": "small"}
    answer = said(client.post("/translate", json=asked))
    (made,) = alone.translate([LONG], "en", "fr", 2, attention=True, token_log_probabilities=True)
    assert answer["translatedText"] == made.text
    assert answer["score"] == pytest.approx(made.score)
    for found, sentence in zip(answer["sentences"], made.sentences, strict=True):
        assert found["tokens"] == list(sentence.best.tokens)
        assert found["alignment"] == list(sentence.alignment or ())
    (forced,) = alone.translate([TEXT], "en", "fr", prefix="Le phare")
    asked = {"q": TEXT, **WAY, "prefix": "Le phare"}
    assert said(client.post("/translate", json=asked))["translatedText"] == forced.text


def events(text: str) -> list[tuple[str, Any]]:
    found = []
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def test_a_stream_is_the_same_text_sentence_by_sentence(
    client: httpx.Client, alone: Translator
) -> None:
    text = LONG + " ".join(english for english, _ in pairs(30)) + "\n" + TEXT
    with client.stream("POST", "/translate/stream", json={"q": text, **WAY}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        parts = list(answer.iter_text())
    found = events("".join(parts))
    assert len(parts) > 3, "it came in parts"
    assert [name for name, _ in found] == ["sentence"] * (len(found) - 1) + ["done"]
    (made,) = alone.translate([text], "en", "fr")
    assert found[-1][1]["translatedText"] == made.text
    assert [data["index"] for _, data in found[:-1]] == list(range(len(made.sentences)))
    for (_, data), sentence in zip(found[:-1], made.sentences, strict=True):
        assert data["source"] == sentence.source
        assert data["text"] in made.text


def test_a_stream_tells_the_language_and_what_is_wrong(client: httpx.Client) -> None:
    answer = client.post("/translate/stream", data={"q": LONG, "source": "auto", "target": "fr"})
    assert events(answer.text)[0][0] == "detected"
    for wrong in ({"q": [TEXT], **WAY}, {"q": TEXT, "source": "en", "target": "xx"}):
        assert client.post("/translate/stream", json=wrong).status_code == 422


@pytest.mark.parametrize("ending", ["txt", "md", "html", "srt", "po"])
def test_documents(client: httpx.Client, alone: Translator, ending: str) -> None:
    body = {
        "txt": f"{TEXT}\n\n{OTHER}\n",
        "md": f"# {TEXT}\n\n* {OTHER}\n\n```\ncode\n```\n",
        "html": f"<html lang='en'><body><h1>{TEXT}</h1></body></html>",
        "srt": f"1\n00:00:01,000 --> 00:00:02,000\n{TEXT}\n",
        "po": f'msgid "{TEXT}"\nmsgstr ""\n',
    }[ending].encode()
    for source in ("en", "auto"):
        answer = client.post(
            "/translate_file",
            data={"source": source, "target": "fr"},
            files={"file": (f"a letter.{ending}", body)},
        )
        fetched = httpx.get(said(answer)["translatedFileUrl"])
        document = open_document(body, ending, source="en", target="fr")
        made = [alone(text, source="en") for text in document.texts()]
        assert fetched.content == document.rebuilt(made)
        name = fetched.headers["content-disposition"]
        assert name == f'attachment; filename="a_letter.fr.{ending}"'


@pytest.mark.parametrize(
    ("asked", "status", "told"),
    [
        ({"q": TEXT}, 422, "target"),
        ({**WAY}, 422, "q"),
        ({"q": TEXT, "source": "en", "target": "de"}, 422, "'de' is not served"),
        ({"q": TEXT, "source": "en", "target": "en", "model": "large"}, 422, "no model 'large'"),
        ({"q": TEXT, **WAY, "format": "docx"}, 422, "format"),
    ],
)
def test_mistakes_get_one_line(
    client: httpx.Client, asked: dict[str, Any], status: int, told: str
) -> None:
    answer = client.post("/translate", json=asked)
    assert answer.status_code == status
    assert told in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


def test_settings_for_frontends(client: httpx.Client) -> None:
    settings = said(client.get("/frontend/settings"))
    assert settings["charLimit"] == 20_000
    assert ".srt" in settings["supportedFilesFormat"]
    assert said(client.get("/health")) == {"status": "ok"}
