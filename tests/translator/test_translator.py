"""The translator on whole texts: nothing lost, nothing shifted, everything reported."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pellucid
from pellucid.bundle import Bundle
from pellucid.decoding import Hypothesis, Result, SpecialIds
from pellucid.decoding.ct2.conversion import add_ct2
from pellucid.errors import InputError
from pellucid.text.passage import Passage, Unit, one_line
from pellucid.text.preserve import Preserved, has_words
from pellucid.text.segmentation import cut
from pellucid.translator import TranslationReport, Translator
from tests.bundles import write_bundle

SHORT = {"max_length": 6, "max_length_extra": 6}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("bundle") / "model").folder


@pytest.fixture(scope="module")
def translator(folder: Path) -> Translator:
    return pellucid.load(folder, threads=1)


class Parrot:
    """An engine that gives back what it read, as a perfect translator into the same language."""

    special = SpecialIds(0, 2, 3)

    def __init__(self, change: Any = lambda ids: ids) -> None:
        self.change = change
        self.seen: list[list[int]] = []

    def translate_ids(self, sources: Any, options: Any, prefixes: Any = None) -> list[Result]:
        self.seen += [list(s) for s in sources]
        made = []
        for source in sources:
            tokens = tuple(self.change(list(source[1:-1])))
            made.append(Result((Hypothesis(tokens, len(tokens) + 1, -1.0, -0.1, "eos"),)))
        return made

    def next_tokens(self, *_: Any) -> Any:
        raise NotImplementedError


@pytest.fixture(scope="module")
def bundle(folder: Path) -> Bundle:
    return Bundle.open(folder)


TEXT = st.text(
    st.one_of(
        st.sampled_from("ab .!?\n\r\u2028\u0085\x00\t😀👍🏽é-1239/`\u00a0"),
        st.characters(exclude_categories=("Cs",)),
    ),
    max_size=80,
)


@given(TEXT)
@settings(max_examples=150)
def test_a_perfect_engine_gives_the_text_back(bundle: Bundle, text: str) -> None:
    """White space, line breaks and what is not translated: all of it stays where it was."""
    translator = Translator(bundle, Parrot())
    found = translator.translate([text])[0]
    assert found.text == text
    assert list(translator.translate_lines([text])) == [text]


@given(TEXT)
@settings(max_examples=100)
def test_cutting_loses_nothing(text: str) -> None:
    for passage in (cut(text), cut(text, limit=5)):
        assert passage.joined([unit.text for unit in passage.units]) == text
        assert all(has_words(unit.text) for unit in passage.units)
    line = one_line(text)
    around = Preserved(line).without_protected()
    assert around.restored([unit.text for unit in around.passage.units]) == line


@given(st.lists(TEXT, max_size=5))
@settings(max_examples=25)
def test_line_breaks_are_neither_made_nor_lost(translator: Translator, texts: list[str]) -> None:
    for text, found in zip(texts, translator.translate(texts, **SHORT), strict=True):
        assert len(found.text.splitlines()) == len(text.splitlines())


def test_engines_agree_on_texts(folder: Path, translator: Translator) -> None:
    texts = ["Le boulanger vend des poires. Personne !", "ma sœur porte une carte\n\n- un lundi"]
    torch_one = pellucid.load(folder, "torch")
    for a, b in zip(torch_one.translate(texts), translator.translate(texts), strict=True):
        if not a.near_tie:
            assert a.text == b.text
            assert a.score == pytest.approx(b.score, abs=1e-4)


def test_what_must_survive_survives(translator: Translator) -> None:
    """Even a model that writes nonsense keeps addresses, code, numbers and emoji."""
    text = "Lis https://a.example/x?y=1 avant 2031, dit `rm -rf` à moi@b.example 😀 !"
    found = translator.translate([text], **SHORT)[0]
    for piece in ("https://a.example/x?y=1", "2031", "`rm -rf`", "moi@b.example", "😀"):
        assert piece in found.text
    assert found.rescued == 1


@pytest.mark.parametrize(
    "text", ["https://a.example/b", "42", "3,50 €", "😀👍", "`code`", "--", ""]
)
def test_what_has_no_words_is_copied(bundle: Bundle, text: str) -> None:
    parrot = Parrot()
    found = Translator(bundle, parrot).translate([text])[0]
    assert (found.text, found.sentences, parrot.seen) == (text, (), [])


@pytest.mark.parametrize(
    ("source", "translation", "wanted"),
    [
        ("va sur https://A.b/C", "go to https : //a.b/c", "go to https://A.b/C"),
        ("en 1998", "in 1989", "in 1998"),
        ("en 1998", "in 1998", "in 1998"),
        ("1 000 vis", "1,000 screws", "1,000 screws"),
        ("2 vis", "two screws", "two screws"),
        ("elle a 42 ans", "she is 2 years old", "she is 42 years old"),
        ("3 vis, 12 clous", "3 screws, 20 nails", "3 screws, 12 nails"),
        ("2 vis, 12 clous", "12 nails and two screws", "12 nails and two screws"),
        ("à 17 h", "at 5 p.m.", "at 5 p.m."),
        ("2 vis en 1998", "4 screws in 1989", "2 screws in 1998"),
        ("12 vis, 800 clous", "120 screws, 800 nails", "12 screws, 800 nails"),
        ("à 18:45", "at 18:450", None),
        ("à 18h52", "at 18", None),
        ("à 6:52 p.m.", "à 18 h 52", "à 18 h 52"),
        ("à 7:30", "at half past seven", "at half past seven"),
        ("à 7:30", "at 7", None),
        ("à 7:00", "at 7", "at 7"),
        ("à 7:30", "à 17 h 30", "à 7 h 30"),
        ("à 7:30 p.m.", "à 19 h 30", "à 19 h 30"),
        ("à 19h30 ce soir", "at 7:30 this evening", "at 7:30 this evening"),
        ("en 1998", "then", None),
        ("merci 😀", "thanks", None),
        ("%s fichiers", "%s files", "%s files"),
        ("un `\\d+` là", "a ` \\D+` there", "a `\\d+` there"),
    ],
)
def test_what_is_damaged_is_repaired(source: str, translation: str, wanted: str | None) -> None:
    assert Preserved(source).repaired(translation) == wanted


def forgetful(bundle: Bundle, knows: str) -> Parrot:
    """Gives back what it reads, but for numbers and addresses that it does not know."""
    words = bundle.tokenizer

    def change(ids: list[int]) -> list[int]:
        said = re.sub(r"\S*[\d/]\S*", lambda m: m[0] if m[0] in knows else "so", words.decode(ids))
        return words.encode(said)

    return Parrot(change)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("il y a 127 vis et 4096 clous", "il y a 20 vis et 30 clous"),
        ("lis https://a.example/b/127 avant 4096", "lis Tom avant 20"),
    ],
)
def test_what_is_lost_is_read_as_a_common_word(bundle: Bundle, text: str, read: str) -> None:
    found = Translator(bundle, forgetful(bundle, "20 30")).translate([text])[0]
    assert found.text == text
    assert [sentence.source for sentence in found.sentences] == [read]
    assert found.rescued == 1


def test_where_that_fails_too_it_is_translated_around(bundle: Bundle) -> None:
    text = "il y a 127 vis"
    found = Translator(bundle, forgetful(bundle, "")).translate([text])[0]
    assert found.text == text
    assert [sentence.source for sentence in found.sentences] == ["il y a", "vis"]


def test_stand_ins_are_words_that_are_not_there() -> None:
    found = Preserved("Tom a 20 vis, 127 clous et /usr/share/x.txt").with_stand_ins()
    assert found is not None
    assert [unit.text for unit in found.passage.units] == ["Tom a 30 vis, 50 clous et Mary"]
    assert found.restored(["Mary, 50 nails, 30 screws, Tom"]) == (
        "/usr/share/x.txt, 127 nails, 20 screws, Tom"
    )
    assert found.restored(["Mary and 50 and 30 and 30"]) is None
    assert found.restored(["Mary and 500 and 30"]) is None
    for text in ("merci 😀 127", "rien à garder", " et ".join(map(str, range(100, 110)))):
        assert Preserved(text).with_stand_ins() is None


@pytest.mark.parametrize(
    ("part", "translation", "wanted"),
    [
        ("quand il pleut,", "When it rains.", "When it rains,"),
        ("quand il pleut", "When it rains.", "When it rains"),
        ("quand il pleut.", "When it rains.", "When it rains."),
        ("et puis", "and then ...", "and then ..."),
        ("il part !", "He leaves!", "He leaves!"),
    ],
)
def test_a_part_of_a_sentence_gets_no_full_stop(part: str, translation: str, wanted: str) -> None:
    assert Passage((Unit(part, 0, part=True),)).joined([translation]) == wanted
    assert Passage((Unit(part, 0),)).joined([translation]) == translation


@pytest.mark.parametrize(
    ("part", "translation", "language", "wanted"),
    [
        ("le vieil homme dort,", "The old man sleeps.", "en", "the old man sleeps,"),
        ("je dors,", "I'm asleep.", "en", "I'm asleep,"),
        ("il fait froid.", "It is cold.", "en", "it is cold."),
        ("Paul dort,", "Paul sleeps,", "en", "Paul sleeps,"),
        ("dogs bark,", "Hunde bellen,", "de", "Hunde bellen,"),
        ("dogs bark,", "Les chiens aboient,", "fr", "les chiens aboient,"),
        ("dogs bark,", "Les chiens aboient,", None, "Les chiens aboient,"),
    ],
)
def test_a_part_of_a_sentence_begins_with_a_small_letter_where_its_source_does(
    part: str, translation: str, language: str | None, wanted: str
) -> None:
    assert Passage((Unit(part, 0, part=True),)).joined([translation], language) == wanted
    assert Passage((Unit(part, 0),)).joined([translation], language) == translation


def test_an_address_is_not_cut_and_does_not_make_a_sentence_long() -> None:
    address = "https://a.example/" + "b/?" * 40 + "c"
    text = f"lis {address} demain"
    assert [unit.text for unit in cut(text, limit=30).units] == [text]
    longer = f"{'un petit mot, ' * 5}puis {address} et encore {'deux mots, ' * 5}fin"
    passage = cut(longer, limit=30)
    assert passage.split == 1
    assert len(passage.units) > 4
    assert sum(address in unit.text for unit in passage.units) == 1


def test_long_sentences_are_split_and_reported(bundle: Bundle) -> None:
    text = " ".join(["un petit vélo vert"] * 400)
    found = Translator(bundle, Parrot()).translate([text])[0]
    assert found.text == text
    assert found.split == 1
    assert len(found.sentences) > 4
    report = TranslationReport()
    assert list(Translator(bundle, Parrot()).translate_lines([text], report=report)) == [text]
    assert report.split == 1


def test_outputs_that_are_cut_are_reported(translator: Translator) -> None:
    found = translator.translate(["le vélo"], max_length=2)[0]
    assert found.ended == "length"
    report = TranslationReport()
    list(translator.translate_lines(["le vélo"], report=report, max_length=2))
    assert report.cut == 1


def test_directions(bundle: Bundle, translator: Translator) -> None:
    assert translator.direction() == ("fr", "en")
    assert translator.direction(target="FR") == ("en", "fr")
    assert translator.direction(source="en") == ("en", "fr")
    with pytest.raises(InputError, match="it translates fr-en, en-fr"):
        translator.direction("fr", "fr")
    with pytest.raises(InputError, match=r"'de'.*it translates fr-en, en-fr"):
        translator("hallo", source="de")
    parrot = Parrot()
    Translator(bundle, parrot)("a tree", target="fr")
    assert parrot.seen[0][0] == bundle.tokenizer.tag_id("fr")


def test_details(translator: Translator) -> None:
    found = translator.translate(
        ["le vélo vert"], n_best=3, attention=True, token_log_probabilities=True, **SHORT
    )[0]
    sentence = found.sentences[0]
    assert len(found.n_best) == len(set(found.n_best))
    assert len(sentence.n_best) == 3
    assert found.text == found.n_best[0] == sentence.best.text
    assert sentence.token_log_probabilities is not None
    assert sum(sentence.token_log_probabilities) == pytest.approx(found.log_probability, abs=1e-4)
    assert sentence.alignment is not None
    assert len(sentence.alignment) == len(sentence.best.tokens)
    assert all(0 <= place < len(sentence.source_tokens) for place in sentence.alignment)
    assert found.as_dict()["sentences"][0]["tokens"] == list(found.tokens)


def test_a_forced_beginning(translator: Translator) -> None:
    found = translator.translate(["le vélo vert", "le phare"], prefix=["the green", None], **SHORT)
    assert found[0].text.startswith("the green")
    assert not found[1].text.startswith("the green")
    with pytest.raises(InputError, match="1 prefixes for 2 texts"):
        translator.translate(["a", "b"], prefix=["x"])


def test_alternatives(translator: Translator) -> None:
    whole = translator.translate(["le vélo vert"], **SHORT)[0]
    tokens = whole.sentences[0].best.tokens
    found = translator.alternatives("le vélo vert", 1, count=3, **SHORT)
    assert len({a.token for a in found}) == len(found) == 3
    assert [a.probability for a in found] == sorted((a.probability for a in found), reverse=True)
    for alternative in found:
        again = translator.tokenizer.encode(alternative.text)
        assert again is not None
        assert alternative.position == 1
    assert all(0 < a.probability < 1 for a in found)
    everywhere = translator.translate(["le vélo vert"], alternatives=2, **SHORT)[0]
    assert {a.position for a in everywhere.alternatives} == set(range(len(tokens)))
    with pytest.raises(InputError, match="position 99"):
        translator.alternatives("le vélo vert", 99)


def test_look(folder: Path, translator: Translator) -> None:
    look = translator.look("le vélo", **SHORT)
    assert look.text == translator("le vélo", **SHORT)
    assert look.hypotheses[0].text == look.text
    assert len(look.beam) >= len(look.tokens.answers) - 1
    assert look.tokens.source[0].piece == "<2en>"
    weights = look["decoder.0.cross.weights"]
    assert weights.shape[-2:] == (len(look.tokens.target), len(look.tokens.source))
    code = (
        "import sys; sys.modules['torch'] = None; import pellucid\n"
        f"t = pellucid.load({str(folder)!r}, threads=1); t('le')\n"
        "try:\n    t.look('le vélo')\nexcept pellucid.errors.PellucidError as error: print(error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip().endswith("pip install 'pellucid[train]'")


def test_threads_may_share_a_translator(translator: Translator) -> None:
    texts = [f"le vélo vert numéro {n} et le phare" for n in range(12)]
    wanted = [t.text for t in translator.translate(texts, **SHORT)]
    found: dict[int, str] = {}

    def work(n: int) -> None:
        found[n] = translator(texts[n], **SHORT)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[n] for n in range(len(texts))] == wanted


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"beam": 2}, "beam_size"),
        ({"alpha": 0.6}, "length_penalty"),
        ({"length_penalty": "gnmt"}, "length_normalization"),
        ({"no_repeat_ngram": 3}, "no_repeat_ngram_size"),
        ({"forbidden": {7}}, "suppress_tokens"),
        ({"watch": 9}, "record_candidates"),
    ],
)
def test_an_old_name_of_an_option_is_an_error_with_the_new_one(
    translator: Translator, old: dict[str, Any], new: str
) -> None:
    for call in (translator, translator.look):
        with pytest.raises(InputError, match=new):
            call("le vélo", **old)


def test_engines_tell_what_they_are(folder: Path) -> None:
    for kind, name in (("auto", "ct2"), ("ct2", "ct2"), ("torch", "torch")):
        engine = pellucid.load(folder, kind, threads=1).engine
        assert (engine.name, engine.device, engine.threads) == (name, "cpu", 1)
        assert (engine.model is None) == (kind == "ct2")


def test_what_ct2_cannot_do_falls_to_torch(translator: Translator) -> None:
    first = translator("le vélo", sample=True, seed=3, **SHORT)
    assert translator("le vélo", sample=True, seed=3, **SHORT) == first
    assert translator("le vélo", length_normalization="gnmt", length_penalty=0.6, **SHORT)


def test_a_model_that_ct2_cannot_express(tmp_path: Path) -> None:
    made = write_bundle(tmp_path / "model", activation="relu2")
    assert not made.has_ct2
    assert pellucid.load(made.folder)("le vélo", **SHORT)
    with pytest.raises(InputError, match=r"relu2.*torch engine"):
        pellucid.load(made.folder, "ct2")


def test_adding_ct2(tmp_path: Path) -> None:
    plain = write_bundle(tmp_path / "model", ct2=False)
    assert not plain.has_ct2
    made = add_ct2(plain)
    assert made.has_ct2
    assert made.fingerprint != plain.fingerprint
    assert made.ct2() == made.folder / "ct2"
    assert add_ct2(made).fingerprint == made.fingerprint  # the same bytes again
    weights = made.weights()
    for name, tensor in made.model().state_dict().items():
        assert (weights[name] == tensor.numpy()).all(), name
    binary = made.folder / "ct2" / "model.bin"
    binary.write_bytes(binary.read_bytes()[:-1] + b"x")
    with pytest.raises(pellucid.errors.PellucidError, match=r"model\.bin is damaged"):
        pellucid.load(made.folder)


def test_memory_stays_flat_over_many_lines(bundle: Bundle) -> None:
    """200,000 lines through a cheap engine: what is held does not grow with what was read."""
    ahead = 0
    read = 0

    def lines() -> Iterator[str]:
        nonlocal read
        for number in range(200_000):
            read += 1
            yield f"{number}"  # no words: copied, so that only the stream itself is measured

    for count, line in enumerate(Translator(bundle, Parrot()).translate_lines(lines())):
        assert line == str(count)
        ahead = max(ahead, read - count)
    assert count == 199_999
    assert ahead <= 2 * 2048 + 1


def test_results_appear_as_they_come(bundle: Bundle) -> None:
    read = 0

    def lines() -> Iterator[str | None]:
        nonlocal read
        while True:
            yield from ["le vélo"] * 3
            read += 3
            yield None  # the next may be long in coming

    stream = Translator(bundle, Parrot()).translate_lines(lines())
    for count in range(1, 13):
        assert next(stream) == "le vélo"
        assert read == -(-count // 3) * 3
    stream.close()  # type: ignore[attr-defined]


def test_the_ct2_path_does_not_import_torch(folder: Path) -> None:
    code = (
        f"import sys, pellucid; t = pellucid.load({str(folder)!r}, threads=1)\n"
        "t.translate(['le vélo. Le phare !'], n_best=2, attention=True, alternatives=2)\n"
        "list(t.translate_lines(['le vélo'] * 3)); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
