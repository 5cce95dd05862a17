"""Evaluation of translations: what must hold of any scores, and findings in constructed cases."""

import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.errors import InputError, PellucidError
from pellucid.evaluation import evaluate
from pellucid.evaluation.findings import MEANINGS, findings, loop, repeats
from pellucid.evaluation.length_groups import group_by_length
from pellucid.evaluation.overlap import find_overlap
from pellucid.evaluation.results import percent
from pellucid.evaluation.systems import SentenceOutput, SystemOutput
from pellucid.evaluation.test_set import EvaluationSet, load_lines, read_pairs_file, words
from pellucid.evaluation.warnings import find_warnings, lower_cased, tokenized
from tests.systems import french_and_english, spoiled

SOURCES, ENGLISH = french_and_english(60)
GOOD, BAD = spoiled(ENGLISH, 0.15, 1), spoiled(ENGLISH, 0.5, 2)


def evaluated(texts: list[str], **more: Any) -> Any:
    more = {"source": SOURCES, "references": [ENGLISH], "ter": False, "resamples": 200, **more}
    return evaluate(texts, **more)


def found_in(source: str, reference: str, text: str, **written: Any) -> set[str]:
    """The kinds of finding of one sentence."""
    made = SentenceOutput(text, -1.0, 3, **written) if written else None
    system = SystemOutput("s", [text], [made] if made else None)
    found = findings(EvaluationSet([source], [[reference]]), system)
    assert set(found) == set(MEANINGS) - (set() if made else {"cut"})
    return {kind for kind, places in found.items() if places}


# Scores and significance


def test_the_order_of_sentences_changes_no_score() -> None:
    order = list(range(len(SOURCES)))
    random.Random(0).shuffle(order)
    mixed = [[lines[i] for i in order] for lines in (GOOD, SOURCES, ENGLISH)]
    one = evaluated(GOOD, resamples=0, ter=True)
    other = evaluated(mixed[0], source=mixed[1], references=[mixed[2]], resamples=0, ter=True)
    for key, score in one.scores.items():
        assert score.value == pytest.approx(other.scores[key].value, abs=1e-9)
    for ours, theirs in zip(one.systems[0].by_length, other.systems[0].by_length, strict=True):
        assert ours.scores == pytest.approx(theirs.scores)
    assert [one.systems[0].sentence_chrf[i] for i in order] == other.systems[0].sentence_chrf


def test_a_system_does_not_differ_from_itself() -> None:
    for one in evaluated(GOOD, against=[GOOD], ter=True).comparisons:
        assert (one.difference.value, one.difference.p_value, one.difference.wins) == (0, 1, 0.5)
        assert one.verdict == "no clear difference"
        assert one.sentence == f"{one.metric.name}: no difference"


def test_better_is_better_both_ways_round() -> None:
    there = evaluated(GOOD, against=[BAD], ter=True)
    back = evaluated(BAD, against=[GOOD], ter=True)
    assert [one.metric.key for one in there.comparisons] == ["bleu", "chrf", "ter"]
    for one, other in zip(there.comparisons, back.comparisons, strict=True):
        assert (one.verdict, other.verdict) == ("better", "worse")
        assert one.difference.value == -other.difference.value
        assert one.difference.p_value == other.difference.p_value < 0.05
        assert one.difference.wins == 1 - other.difference.wins > 0.9
        assert one.difference.low <= one.difference.value <= one.difference.high
        assert "better by" in one.sentence
        assert "worse by" in other.sentence
    assert there.comparisons[2].difference.value < 0 < there.comparisons[2].gain  # TER


def test_little_is_said_of_a_small_difference() -> None:
    nearly = [GOOD[0] + " indeed", *GOOD[1:]]
    for one in evaluated(nearly, against=[GOOD]).comparisons:
        assert one.difference.p_value > 0.05
        assert "may well be chance" in one.sentence


def test_the_same_seed_gives_the_same_numbers() -> None:
    one, again, other = (evaluated(GOOD, against=[BAD], seed=seed) for seed in (3, 3, 4))
    assert one.comparisons[0].to_dict() == again.comparisons[0].to_dict()
    assert one.comparisons[0].difference.low != other.comparisons[0].difference.low
    assert evaluated(GOOD, against=[BAD], resamples=0).comparisons == []


def test_perfect_and_hopeless() -> None:
    perfect = evaluated(ENGLISH, ter=True)
    assert [round(score.value, 6) for score in perfect.scores.values()] == [100, 100, 0]
    assert not any(perfect.systems[0].findings.values())
    hopeless = evaluated([""] * len(SOURCES), ter=True)
    assert [score.value for score in hopeless.scores.values()] == [0, 0, 100]
    assert hopeless.systems[0].findings["empty"] != []


@pytest.mark.parametrize(
    ("share", "said"),
    [(0.0001, "below 0.1%"), (0.003, "0.3%"), (0.049, "4.9%"), (0.34, "34%"), (1.0, "100%")],
)
def test_probabilities_in_words(share: float, said: str) -> None:
    assert percent(share) == said


# Findings


@pytest.mark.parametrize(
    ("source", "reference", "text", "kinds"),
    [
        ("Le pont est long.", "The bridge is long.", "The bridge is long.", set()),
        ("Le pont est long.", "The bridge is long.", "  ", {"empty"}),
        ("", "", "", set()),
        ("Le pont est long.", "The bridge is long.", "le  pont est long.", {"copied"}),
        ("Paris 2024", "Paris 2024", "Paris 2024", set()),  # a copy is right here
        ("42 %", "42%", "42 %", set()),
        ("un long trajet vers la mer", "a long way to the sea", "a long way", {"short"}),
        ("un long trajet vers la mer", "a long way to the sea", "a long way!", set()),
        ("oui et non", "yes and no", "yes and also no, really", {"long"}),
        ("oui et non", "yes and no", "yes and also no, now", set()),
        ("oui", "yes", "yes indeed", set()),  # few characters
        ("Non !", "No!", "No no!", set()),
        ("Il est très bon.", "It is very good.", "It is very very very good.", {"loops"}),
        ("Il est très très très bon.", "It is quite good.", "It is very very very good.", set()),
        ("Un pont vert", "A green bridge", "A greeeeeen bridge", {"loops"}),
        ("Un pont vert", "A green bridge", "A Tee„Tee„Tee„ bridge", {"loops"}),
        ("Nooooooon", "Noooooo", "Nooooo", set()),
        ("Fin de la partie", "The end of the part", "End....... ------ 1000000", set()),
        ("la mer et le vent", "the sea and the wind", "the sea the sea the wind", {"loops"}),
        (
            "le vieux pont de pierre ou la tour près du vieux mur",
            "the old bridge of stone or the tower near the old wall",
            "the old bridge of stone or the old bridge of stone wall",
            {"repeats"},
        ),
        ("Il a 1 000 vaches.", "He has 1,000 cows.", "He has 1.000 cows.", set()),
        ("Il a 12 vaches.", "He has 12 cows.", "He has 21 cows.", {"numbers"}),
        ("Il a 12 vaches.", "He has twelve cows.", "He has cows.", set()),
    ],
)
def test_what_is_worth_a_look(source: str, reference: str, text: str, kinds: set[str]) -> None:
    assert found_in(source, reference, text) == kinds


def test_cut_is_known_of_models_only() -> None:
    assert found_in("le pont", "the bridge", "the the bridge", cut=True) == {"cut"}
    assert found_in("le pont", "the bridge", "the bridge", cut=False) == set()
    assert "cut" not in evaluated(GOOD).systems[0].findings


def test_the_worst_come_first() -> None:
    reference = ["the wide sea and the wind"] * 3
    texts = ["sea sea sea", "sea sea sea sea sea sea", "the wide sea"]
    found = findings(EvaluationSet(["la mer"] * 3, [reference]), SystemOutput("s", texts))
    assert found["loops"] == [1, 0]


@given(st.lists(st.sampled_from("abc"), max_size=12), st.integers(1, 4), st.integers(2, 4))
def test_any_loop_is_found(line: list[str], period: int, times: int) -> None:
    group = [f"w{place}" for place in range(period)]
    assert loop([*line, *group * times, *line]) >= period * (times - 1)
    assert loop([f"w{place}" for place in range(12)]) == 0


@given(st.lists(st.integers(), unique=True, max_size=30))
def test_what_stands_once_repeats_nothing(numbers: list[int]) -> None:
    line = [str(number) for number in numbers]
    assert (loop(line), repeats(line)) == (0, 0)
    assert repeats(line + line) == max(0, len(line) - 3)


def test_words_of_scripts_without_spaces_are_characters() -> None:
    assert words("a bridge, 中国人") == ["a", "bridge,", "中", "国", "人"]
    assert words(" \t") == []


@given(st.lists(st.integers(0, 90), min_size=1, max_size=30))
def test_each_sentence_is_in_one_group(lengths: list[int]) -> None:
    found = group_by_length(["w " * length for length in lengths])
    assert sorted(place for group in found for place in group.indices) == list(range(len(lengths)))
    for group in found:
        for place in group.indices:
            assert lengths[place] <= (group.high or 1000)
            assert lengths[place] >= (0 if group.low == 1 else group.low)


# Warnings


@pytest.mark.parametrize(
    ("sources", "reference", "text", "said"),
    [
        ("Le pont.", "the bridge , over there .", "the bridge , over there !", "look tokenized"),
        ("Le pont.", "the bridge over there.", "The bridge there", "are lower-cased: scores"),
        ("Le pont.", "The bridge is there.", "The bridge is there", ""),
        ("Le pont.", "The bridge.", "The bridge , there .", "look tokenized and the references"),
        ("Le pont.", "The bridge.", "the bridge", "are lower-cased and the references are not"),
        ("Le pont.", "Le pont.", "The bridge", "are the source itself"),
        ("Le pont.", "The bridge.", "The bridge.", "are a reference, line for line"),
        ("Le pont.", "The \ufffdbridge.", "The", "bytes that are not UTF-8"),
        ("Le pont.", " ", "The", "are empty"),
    ],
)
def test_warnings(sources: str, reference: str, text: str, said: str) -> None:
    numbers = range(120)
    lines = [[f"{line} {number}" for number in numbers] for line in (sources, reference, text)]
    if said == "are empty":
        lines[1] = [""] * 120
    test_set = EvaluationSet(lines[0], [lines[1]], "s", ["r"])
    found = find_warnings(test_set, [SystemOutput("t", lines[2])])
    assert any(said in line for line in found) if said else found == []


def test_warnings_about_a_test_set() -> None:
    few = EvaluationSet(["a"] * 20, [["B"] * 20, ["B"] * 20], "s", ["r1", "r2"], left_out=3)
    said = " / ".join(find_warnings(few, []))
    for part in (
        "only 20 sentences", "19 of the 20 sources are duplicates",
        "r2 is the same as a reference before it", "3 fuzzy or obsolete entries",
    ):  # fmt: skip
        assert part in said


def test_plain_text_is_not_suspected() -> None:
    french = [f"Est-ce vrai ? Oui ! Il dit : « {n},5 » ; c’est tout." for n in range(30)]
    assert not tokenized(french)
    assert not lower_cased(french)
    assert not lower_cased(["这是一座桥。"] * 30)
    assert not tokenized(["a , b ."] * 9)  # too few to tell


# Test and training data


def test_what_stands_in_training_data(tmp_path: Path) -> None:
    tsv, jsonl = tmp_path / "train.tsv", tmp_path / "more.jsonl"
    tsv.write_text("Une tour.\tA tower.\nle Pont, est long\tx\n", encoding="utf-8")
    jsonl.write_text('{"fr": "Une porte.", "en": "A gate."}\n', encoding="utf-8")
    test_set = EvaluationSet(
        ["Une tour.", "Le pont est long.", "La mer", "La porte", ""],
        [["The tower.", "The bridge is long.", "The sea", "A gate.", ""]],
    )
    overlap = find_overlap(test_set, [tsv, jsonl], ("fr", "en"))
    assert (overlap.sources, overlap.references, overlap.similar) == ([0], [3], [0, 1, 3])
    assert overlap.to_dict()["similar"] == [1, 2, 4]
    with pytest.raises(InputError, match="--languages"):
        find_overlap(test_set, [jsonl], None)


def test_scores_without_what_was_seen(tmp_path: Path) -> None:
    train = tmp_path / "train.fr"
    lines = [*SOURCES[:10], *(line.upper() for line in SOURCES[10:20])]
    train.write_text("\n".join(lines) + "\n", encoding="utf-8")
    texts = ENGLISH[:20] + BAD[20:]
    found = evaluated(texts, train=[train])
    assert found.overlap is not None
    assert 10 <= len(found.overlap.sources) < len(found.overlap.similar) < 60
    left = [i for i in range(60) if i not in found.overlap.similar]
    alone = evaluated(
        [texts[i] for i in left], source=[SOURCES[i] for i in left],
        references=[[ENGLISH[i] for i in left]],
    )  # fmt: skip
    assert found.systems[0].unseen == pytest.approx(
        {key: score.value for key, score in alone.scores.items()}
    )
    train.write_text("\n".join(SOURCES) + "\n", encoding="utf-8")
    assert evaluated(texts, train=[train]).systems[0].unseen == {}


# Files


def test_one_file_with_both_sides(tmp_path: Path) -> None:
    path = tmp_path / "test.tsv"
    path.write_text("The sea\tLa mer\nThe bridge\tLe pont\n", encoding="utf-8")
    one = read_pairs_file(path, ("en", "fr"), ("en", "fr"))
    other = read_pairs_file(path, ("en", "fr"), ("fr", "en"))
    assert (one.sources, one.references) == (["The sea", "The bridge"], [["La mer", "Le pont"]])
    assert (other.sources, other.references) == (one.references[0], [one.sources])
    path.write_text("The sea\tLa mer\nThe bridge\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"line 2 of .* is not a pair"):
        read_pairs_file(path, ("en", "fr"), ("en", "fr"))
    with pytest.raises(InputError, match="has en and fr, and the translation is from de to fr"):
        read_pairs_file(path, ("en", "fr"), ("de", "fr"))
    catalogue = tmp_path / "test.po"
    catalogue.write_text(
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
        'msgid "The sea"\nmsgstr "La mer"\n\n#, fuzzy\nmsgid "The bridge"\nmsgstr "La tour"\n',
        encoding="utf-8",
    )
    assert read_pairs_file(catalogue, ("en", "fr"), ("en", "fr")).left_out == 1


def test_lines_too_long_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text("a\n" + "b" * (1 << 20) + "\n")
    with pytest.raises(InputError, match=r"line 2 of .* longer than 1 MB"):
        load_lines(path)


@settings(max_examples=30)
@given(st.lists(st.text(max_size=20), min_size=1, max_size=5), st.data())
def test_any_text_is_evaluated(lines: list[str], data: st.DataObject) -> None:
    texts = data.draw(st.lists(st.text(max_size=20), min_size=len(lines), max_size=len(lines)))
    found = evaluate(texts, source=lines, references=[lines, texts], resamples=40)
    assert all(0 <= chrf <= 100.0001 for chrf in found.systems[0].sentence_chrf)
    assert found.to_dict()["count"] == len(lines)


# COMET


class FakeComet(ModuleType):
    """As much of the package as is used, with its call contract checked."""

    def __init__(self) -> None:
        super().__init__("comet")
        self.calls: list[list[dict[str, str]]] = []

    def load_from_checkpoint(self, path: str) -> "FakeComet":
        assert isinstance(path, str)
        return self

    def predict(self, rows: list[dict[str, str]], **more: Any) -> SimpleNamespace:
        assert more["gpus"] == 0
        self.calls.append(rows)
        scores = [0.5 + 0.4 * (row["mt"] == row["ref"]) for row in rows]
        return SimpleNamespace(scores=scores, system_score=sum(scores) / len(scores))


def test_comet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = FakeComet()
    monkeypatch.setitem(sys.modules, "comet", fake)
    checkpoint = tmp_path / "small-da" / "checkpoints" / "model.ckpt"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.touch()
    texts = ENGLISH[:45] + BAD[45:]
    found = evaluated(texts, comet=checkpoint, against=[ENGLISH])
    right = sum(a == b for a, b in zip(texts, ENGLISH, strict=True))
    assert found.scores["comet"].value == pytest.approx(0.5 + 0.4 * right / 60)
    assert found.scores["comet"].signature == "nrefs:1|bs:200|seed:12345|checkpoint:small-da"
    assert [len(rows) for rows in fake.calls] == [60, 60]
    assert fake.calls[0][50] == {"src": SOURCES[50], "mt": texts[50], "ref": ENGLISH[50]}
    assert found.comparisons[-1].metric.key == "comet"
    assert found.comparisons[-1].verdict == "worse"
    monkeypatch.setattr(fake, "predict", lambda *_, **__: 1 / 0)
    with pytest.raises(PellucidError, match=r"COMET failed with .*division by zero"):
        evaluated(texts, comet=checkpoint)


def test_no_comet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no COMET checkpoint nowhere\.ckpt"):
        evaluated(GOOD, comet="nowhere.ckpt")
    checkpoint = tmp_path / "model.ckpt"
    checkpoint.touch()
    monkeypatch.setitem(sys.modules, "comet", None)
    with pytest.raises(InputError, match="pip install unbabel-comet"):
        evaluated(GOOD, comet=checkpoint)


def test_no_torch_is_needed() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pellucid.evaluation import evaluate\n"
        "import pellucid.evaluation.command, pellucid.evaluation.report.html_report\n"
        "print(evaluate(['a b'], source=['x'], references=[['a b']]).scores['chrf'])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "100.0 ± 0.0\n"
