"""`pellucid translate --input`: files in bulk from the command line; mistakes get one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pellucid.bundle import Bundle
from pellucid.cli import main as cli
from pellucid.errors import InputError
from pellucid.translator import Translator
from tests.bulk.files import sentences, write_json, write_text


def bulk(bundle: Bundle, *arguments: object) -> None:
    """The command, in this process."""
    cli.app(["translate", "--model", str(bundle.folder), *map(str, arguments)])


def test_bulk(
    bundle: Bundle, translator: Translator, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    texts = sentences(50)
    texts[3] = "\ud800"
    source, out = write_json(tmp_path / "a.jsonl", texts), tmp_path / "out"
    bulk(bundle, "--input", source, "-o", out, "--beam-size", 1, "--into", "english", "--to", "en")
    said = capfd.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert lines[0].startswith(f"{out}: 50 rows in 1 files (0 were finished before)")
    assert lines[-1].endswith("that are not Unicode (now U+FFFD): 1")
    rows = [json.loads(line) for line in (out / "a.jsonl").open()]
    assert [row["text"] for row in rows] == texts
    assert rows[1]["english"] == translator(texts[1], beam_size=1)
    bulk(bundle, "--input", source, "-o", out, "--beam-size", 1, "--into", "english", "--json")
    told = json.loads(capfd.readouterr().out)
    assert (told["rows"], told["files_finished_before"], told["this_run"]["rows"]) == (50, 1, 0)
    assert told["failures"] == {}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--input", "{in}"], "needs --output"),
        (["--input", "{in}", "-o", "{out}", "un texte"], "pattern in quotes"),
        (["--input", "{in}", "-o", "{out}", "--to", "de"], "it translates fr-en, en-fr"),
        (["--input", "{in}", "-o", "{out}", "--engine", "x"], "choose auto, ct2 or torch"),
        (["--input", "{in}", "-o", "{out}", "--workers", "2"], "needs --cluster"),
        (["--input", "{in}", "-o", "{out}", "--cluster", "local", "--workers", "3:2"], "2:400"),
        (["--input", "{in}.md", "-o", "{out}"], "check --input"),
        (["--cluster", "local", "un texte"], "name --input"),
    ],
)
def test_mistakes(bundle: Bundle, tmp_path: Path, arguments: list[str], said: str) -> None:
    source = write_text(tmp_path / "a.txt", ["le phare"])
    places = {"in": source, "out": tmp_path / "out"}
    with pytest.raises(InputError, match=said):
        bulk(bundle, *(word.format(**places) for word in arguments))
    assert not (tmp_path / "out").exists()


def test_plain_translation_needs_none_of_it(bundle: Bundle) -> None:
    heavy = {"ray", "pandas", "pyarrow", "fsspec", "pellucid.bulk"}
    code = (
        "import sys; from pellucid.cli.main import app\n"
        f"app(['translate', '--model', {str(bundle.folder)!r}, '42'])\n"
        f"sys.exit(str({heavy} & set(sys.modules) or ''))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr.strip()) == ("42\n", "")
