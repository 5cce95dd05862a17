"""The model that comes with Pellucid: what it is, and what a person would try on it first."""

from __future__ import annotations

import re

import pytest

import pellucid
from pellucid.bundle import Bundle
from pellucid.translator import Translator
from pellucid.translator.loading import EMBEDDED

FOLDER = EMBEDDED / "fr-en"


@pytest.fixture(scope="module")
def translator() -> Translator:
    return pellucid.load()


def test_what_it_is() -> None:
    files = [file for file in FOLDER.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 30e6
    bundle = Bundle.open(FOLDER)  # compares every hash
    assert set(bundle.directions) == {"fr-en", "en-fr"}
    assert sum(tensor.size for tensor in bundle.weights().values()) < 15e6
    about = (FOLDER / "MODEL.md").read_text("utf-8")
    for needed in ("CC-BY 2.0 FR", "Tatoeba", "BLEU", "nrefs:1", "recipes/tatoeba-fr-en.toml"):
        assert needed in about


def test_it_is_what_is_taken_when_nobody_says() -> None:
    assert pellucid.load().bundle.folder == FOLDER
    assert pellucid.load("fr-en").bundle.folder == FOLDER


FRENCH = [
    ("je suis étudiant", r"(I am|I'm) a student"),
    ("Merci.", r"Thank(s| you)"),
    ("Bonne nuit.", r"Good night"),
    ("Bonjour !", r"Good (morning|afternoon|day)|Hello"),
    ("chien", r"^(the |The )?dog\.?$"),
    ("livre", r"^(the |The )?book\.?$"),
    ("Où habites-tu ?", r"Where do you live\?"),
    ("Je ne sais pas.", r"(don't|do not) know"),
    ("Elle a trois enfants.", r"She has (three|3) (children|kids)"),
    ("Il est parti à huit heures.", r"(He|It).*(eight|8)"),
    ("JE SUIS FATIGUÉ", r"(?i)tired"),
    ("Je suis fatigué. Je vais dormir.", r"tired\. .*sleep|tired\. .*bed"),
]
ENGLISH = [
    ("I am a student.", r"[Jj]e suis (un |une )?étudiante?"),
    ("Thank you very much.", r"Merci (beaucoup|bien)"),
    ("The animal didn't cross the street because it was too tired.", r"pas traversé la rue"),
    ("What time is it?", r"Quelle heure est-il|heure.*\?"),
    ("She has three children.", r"Elle a (trois|3) enfants"),
    ("Tom doesn't like coffee.", r"Tom n'aime pas le café"),
    ("I live in Boston.", r"Boston"),
    ("How are you?", r"Comment (vas-tu|allez-vous|ça va)"),
    ("cat", r"^([Ll]e )?chat\.?$"),
    ("happy", r"^[Hh]eureux\.?$"),
]


@pytest.mark.parametrize(
    ("source", "target", "text", "said"),
    [("fr", "en", *one) for one in FRENCH] + [("en", "fr", *one) for one in ENGLISH],
)
def test_it_translates(
    translator: Translator, source: str, target: str, text: str, said: str
) -> None:
    assert re.search(said, translator(text, source=source, target=target))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", ""),
        ("Regarde https://example.org/a?b=1 demain.", "https://example.org/a?b=1"),
        ("Merci beaucoup 🎉", "🎉"),
        ("Il a 1984 livres.", "1984"),
    ],
)
def test_what_must_survive(translator: Translator, text: str, kept: str) -> None:
    assert kept in translator(text, source="fr", target="en")
    assert (translator(text, source="fr", target="en") == "") == (text == "")


def test_a_long_sentence_is_not_dropped(translator: Translator) -> None:
    text = (
        "Hier soir, après avoir fini mon travail, je suis allé au marché avec ma sœur pour acheter "
        "du pain, des pommes et du fromage, mais le marché était déjà fermé, alors nous sommes "
        "rentrés à la maison et nous avons préparé une soupe."
    )
    found = translator(text, source="fr", target="en")
    assert 20 <= len(found.split()) <= 60
    for word in ("night", "sister", "market", "closed", "home", "soup"):  # its parts, not each word
        assert word in found


def test_both_engines_say_the_same(translator: Translator) -> None:
    """CTranslate2 runs it in int8, so a near-tie may fall otherwise; most do not."""
    texts = ["Je suis étudiant.", "Où est la gare ?", "Elle n'a jamais vu la mer.", "Merci.",
             "Mon frère est plus grand que moi.", "Il fait froid ce matin."]  # fmt: skip
    ours = pellucid.load(engine="torch").translate(texts, "fr", "en")
    theirs = translator.translate(texts, "fr", "en")
    same = sum(a.text == b.text for a, b in zip(ours, theirs, strict=True))
    assert same >= len(texts) - 1


def test_a_look_inside_reads_capitals_as_the_translation_does(translator: Translator) -> None:
    loud, quiet = (translator.look(text) for text in ("JE SUIS ÉTUDIANT.", "Je suis étudiant."))
    assert loud.source == "JE SUIS ÉTUDIANT."
    assert loud.tokens == quiet.tokens
    assert loud.text.upper() == translator.translate([loud.source])[0].text
    assert any("capitals" in said for said in loud.changed)
    assert not quiet.changed
