"""`pellucid evaluate` on a real, tiny model: whole runs, and mistakes told before any work."""

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pellucid.cli.main import app
from pellucid.cli.parser import parameters_of
from pellucid.drawing import report_page
from pellucid.errors import InputError, PellucidError
from pellucid.evaluation import evaluate
from pellucid.translator import Translator, load
from tests.bundles import write_bundle
from tests.pages import Page
from tests.systems import french_and_english, spoiled

COUNT = 12
SOURCES, ENGLISH = french_and_english(COUNT)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and files to judge it on."""
    place = tmp_path_factory.mktemp("evaluate")
    write_bundle(place / "model")
    write_bundle(place / "again", d_model=16)
    spoiled_lines = spoiled(ENGLISH, 0.2, 1)
    files = {
        "test.fr": SOURCES, "test.en": ENGLISH, "second.en": spoiled_lines,
        "other.en": spoiled_lines, "short.en": ENGLISH[:-1], "empty.en": [],
        "test.tsv": [f"{e}\t{f}" for e, f in zip(ENGLISH, SOURCES, strict=True)],
    }  # fmt: skip
    for name, lines in files.items():
        (place / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (place / "test.fr.gz").write_bytes(gzip.compress((place / "test.fr").read_bytes()))
    return place


def pellucid(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pellucid", "evaluate", *arguments],
        capture_output=True, text=True, cwd=folder, check=False, timeout=240,
    )  # fmt: skip


def in_process(folder: Path, *arguments: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        app(["evaluate", *arguments])


def test_a_whole_run(folder: Path, tmp_path: Path) -> None:
    page, saved = tmp_path / "report.html", tmp_path / "saved.en"
    run = pellucid(
        folder, "model", "--source", "test.fr.gz", "--reference", "test.en", "--reference",
        "second.en", "--against", "other.en", "--against", "again", "--beam-size", "1",
        "--resamples", "100", "-o", str(page), "--save", str(saved),
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    for part in (
        "on 12 sentences from fr to en", "nrefs:2|bs:100", "model compared with other.en:",
        "model compared with again:", "sentences (", "on this machine:",
        "the lowest-scoring sentences",
    ):  # fmt: skip
        assert part in run.stdout, part
    assert "only 12 sentences" in run.stderr
    assert "Traceback" not in run.stderr
    Page(page.read_text(encoding="utf-8"))
    lines = saved.read_text(encoding="utf-8").split("\n")
    assert (len(lines), lines[-1]) == (COUNT + 1, "")
    wanted = load(folder / "model").translate(SOURCES, "fr", "en", beam_size=1)
    assert lines[:-1] == [one.text for one in wanted]
    # what was saved has the scores of what was made
    there, back = (
        json.loads(
            pellucid(
                folder, what, "--source", "test.fr", "--reference", "test.en", "--resamples", "0",
                "--no-ter", "--json", "--beam-size", "1",
            ).stdout
        )
        for what in ("model", str(saved))
    )  # fmt: skip
    scores = [made["systems"][0]["scores"] for made in (there, back)]
    assert scores[0] == scores[1]
    assert "ter" not in scores[0]
    assert there["systems"][0]["speed"]["tokens"] == sum(one.length for one in wanted)
    assert there["systems"][0]["speed"]["engine"] == "ct2"
    first = there["sentences"][0]["translations"][0]
    assert first["tokens"] == wanted[0].length
    assert first["cut"] == (wanted[0].ended == "length")
    assert back["systems"][0]["kind"] == "file"


def test_torch_is_not_imported(folder: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pellucid.cli.main import app\n"
        "app(['evaluate', 'model', '--pairs', 'test.tsv', '--languages', 'en,fr', '--beam-size',"
        " '1', '--no-ter', '--resamples', '0'])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "from fr to en" in run.stdout


def test_one_file_either_way(folder: Path) -> None:
    translator = load(folder / "model", threads=1)
    settings: dict[str, Any] = {"beam_size": 1, "resamples": 0, "ter": False}
    settings |= {"pairs": folder / "test.tsv", "languages": ("en", "fr")}
    by_default = evaluate(translator, **settings)
    assert (by_default.source_language, by_default.test_set.sources) == ("fr", SOURCES)
    back = evaluate(translator, target_language="fr", **settings)
    assert (back.source_language, back.test_set.sources) == ("en", ENGLISH)
    assert back.test_set.references == [SOURCES]
    # without a model, the first language is the source unless told
    given = evaluate(ENGLISH, source_language="fr", **settings)
    assert given.scores["chrf"].value == pytest.approx(100)
    assert evaluate(SOURCES, **settings).scores["chrf"].value == pytest.approx(100)


def test_a_report_as_json(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    in_process(
        folder, "other.en", "--source", "test.fr", "--reference", "test.en", "-o", str(path),
        "--resamples", "0", "--chrf-words", "2", "--lowercase",
    )  # fmt: skip
    made = json.loads(path.read_text(encoding="utf-8"))
    assert made["systems"][0]["scores"]["chrf"]["name"] == "chrF++"
    assert "case:lc" in made["systems"][0]["scores"]["bleu"]["signature"]


def keys_of(made: Any) -> set[str]:
    """Every key in some JSON, however deep."""
    if isinstance(made, dict):
        return set(made).union(*map(keys_of, made.values()))
    return set().union(*map(keys_of, made)) if isinstance(made, list) else set()


def test_the_docs_name_every_option_and_field(folder: Path) -> None:
    docs = (Path(__file__).parents[2] / "docs" / "evaluate.md").read_text(encoding="utf-8")
    code = re.findall(r"`([^`\n]+)`", docs)
    named = {name for span in code for name in re.split(r"[^\w-]+", span)}
    options = {flag for p in parameters_of(app.commands["evaluate"]) for flag in p.flags}
    assert options - {"-o", "--output", "--ter"} <= named
    found = evaluate(
        folder / "model", source=folder / "test.fr", references=[folder / "test.en"], beam_size=1,
        against=[ENGLISH], train=[folder / "test.fr"], resamples=40,
    )  # fmt: skip
    assert keys_of(found.to_dict()) <= named


BOTH = ["--source", "test.fr", "--reference", "test.en"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["model", "--source", "test.fr", "--reference", "short.en"],
            "12 lines and short.en has 11",
        ),
        (["model", "--source", "nowhere", "--reference", "test.en"], "there is no file nowhere"),
        (["model", "--source", "test.fr", "--reference", "empty.en"], "empty.en is empty"),
        (["model", "--source", "test.fr", "--reference", "model"], "model is a folder"),
        (["model", "--source", "test.fr"], "there is no reference"),
        (["model", "--reference", "test.en"], "--source and --reference, or as --pairs"),
        (["model", *BOTH, "--pairs", "test.tsv", "--languages", "en,fr"], "or as --pairs"),
        (["model", "--pairs", "test.tsv"], "say which languages test.tsv has"),
        (["model", "--pairs", "test.tsv", "--languages", "en"], "name two with a comma between"),
        (["model", "--pairs", "test.tsv", "--languages", "en,de"], "has en and de, and the"),
        (["model", "--pairs", "test.fr", "--languages", "en,fr"], "--pairs takes .tsv"),
        (["nothing", *BOTH], "nothing is not a file of translations, and there is no model"),
        (["short.en", *BOTH], "short.en has 11 lines and test.fr has 12"),
        (["model", *BOTH, "--to", "de"], "it translates fr-en, en-fr"),
        (["model", *BOTH, "--against", "short.en"], "short.en has 11 lines and test.fr has 12"),
        (["model", *BOTH, "--against", "nothing"], "nothing is not a file of translations"),
        (["model", *BOTH, "--tokenize", "13b"], "did you mean '13a'?"),
        (["model", *BOTH, "--engine", "fast"], "choose auto, ct2 or torch"),
        (["model", *BOTH, "--comet", "nowhere.ckpt"], "no COMET checkpoint nowhere.ckpt"),
        (["model", *BOTH, "--train", "nowhere"], "there is no file nowhere"),
        (["model", *BOTH, "--resamples", "3"], "3 resamples are too few"),
        (["model", *BOTH, "-o", "nowhere/report.html"], "there is no folder nowhere"),
        (["model", *BOTH, "-o", "report.pdf"], "ends in .html or .json"),
        (["model", *BOTH, "--save", "test.en"], "test.en is an input file"),
        (["model", *BOTH, "--save", "model"], "model is a folder"),
    ],
)
def test_mistakes_are_told_before_any_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    def nothing_may_be_translated(*_: Any, **__: Any) -> None:
        pytest.fail("it began to translate")

    monkeypatch.setattr(Translator, "translate", nothing_may_be_translated)
    with pytest.raises(InputError) as caught:
        in_process(folder, *arguments)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_mistake_at_the_command_line(folder: Path) -> None:
    run = pellucid(folder, "model", "--source", "test.fr", "--reference", "short.en")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.count("\n") == 1


def test_a_folder_that_may_not_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda _, mode, **__: mode != os.W_OK)
    with pytest.raises(InputError, match=r"report\.html may not be written"):
        in_process(folder, "model", *BOTH, "-o", "report.html")


def test_a_failure_while_writing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(report_page, "write_atomic", full)
    with pytest.raises(PellucidError, match=r"cannot write out\.html: No space left on device"):
        in_process(
            folder, "other.en", *BOTH, "--resamples", "0", "--no-ter", "-o", "out.html"
        )  # fmt: skip
