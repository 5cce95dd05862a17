"""`pellucid translate`: lines in are lines out, whatever is in them; mistakes get one line."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.translator import Translator, command, load
from pellucid.translator.text_io import LineReader
from tests.bundles import write_bundle


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("bundle") / "model").folder


@pytest.fixture(scope="module")
def translator(folder: Path) -> Translator:
    return load(folder, threads=1)


def pellucid(*arguments: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "pellucid", *arguments],
        input=data, capture_output=True, check=False, timeout=240,
    )  # fmt: skip


def in_process(translator: Translator, data: bytes, **more: Any) -> bytes:
    """What `pellucid translate` writes for these bytes on standard input."""
    written = io.BytesIO()
    there, here = os.pipe()
    assert len(data) < 1 << 15  # so that it fits into the pipe
    os.write(here, data)
    os.close(here)
    with pytest.MonkeyPatch.context() as patch, os.fdopen(there, "rb") as stream:
        patch.setattr(command, "load", lambda *_: translator)
        patch.setattr(sys, "stdin", io.TextIOWrapper(stream))
        patch.setattr(sys, "stdout", io.TextIOWrapper(written))
        command.translate(**{"beam_size": 1, **more})
        sys.stdout.flush()
        return written.getvalue()


PIECE = st.one_of(
    st.sampled_from([b"le phare", b"\r", b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b" ", b"\t"]),
    st.sampled_from(["\u2028", "\u2029", "\u0085", "\v", "\f", "😀", "https://a.b", "1.", "-"]).map(
        str.encode
    ),
    st.binary(max_size=4).map(lambda b: b.replace(b"\n", b"")),
)
LINES = st.lists(st.lists(PIECE, max_size=4).map(b"".join), max_size=5)


@settings(max_examples=40, deadline=None)
@given(chunks=st.lists(st.sampled_from([b"a", b"\n", b"b\n\nc", b"\xc3", b"\xa9\n", b"long" * 9])))
def test_lines_arrive_whole_however_they_come(chunks: list[bytes]) -> None:
    there, here = os.pipe()

    def write() -> None:
        for chunk in chunks:
            os.write(here, chunk)
        os.close(here)

    writer = threading.Thread(target=write)
    with os.fdopen(there, "rb") as stream:
        reader = LineReader(stream)
        writer.start()
        found = [line for line in reader if line is not None]
    writer.join()
    data = b"".join(chunks)
    expected = data.decode("utf-8", "replace").split("\n")
    assert found == (expected[:-1] if not expected[-1] else expected)
    assert reader.ended == (not data or data.endswith(b"\n"))


def test_an_answer_before_the_next_question(folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "pellucid", "translate", "--model", str(folder), "--beam-size", "1"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as run:  # fmt: skip
        assert run.stdin is not None
        assert run.stdout is not None
        for question in (b"12\n", b"3\n4\n"):  # numbers come back as they are
            run.stdin.write(question)
            run.stdin.flush()
            for line in question.splitlines():
                assert run.stdout.readline() == line + b"\n"
        run.stdin.write(b"5")
        run.stdin.close()
        assert run.stdout.read() == b"5"
        assert run.wait(60) == 0


@given(LINES, st.booleans())
@settings(max_examples=40)
def test_lines_in_are_lines_out(translator: Translator, lines: list[bytes], ended: bool) -> None:
    """As many lines out as in, whatever bytes they have; and one line of JSON for each."""
    data = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        data = b"a" + data
    assert in_process(translator, data).count(b"\n") == data.count(b"\n")
    as_json = in_process(translator, data, as_json=True).splitlines()
    assert len(as_json) == len(data.split(b"\n")) - data.endswith(b"\n") - (not data)


def test_what_has_no_words_comes_back_byte_for_byte(translator: Translator) -> None:
    data = "\n  \n\u2028 42\r\n😀\x00\nhttps://a.example/b\n\t--\n1. 2. 3".encode()
    assert in_process(translator, data) == data


def test_a_whole_run(folder: Path, tmp_path: Path) -> None:
    data = b"le phare\r\n\n\xff\xfe binaire \x00\nune carte"
    run = pellucid("translate", "--model", str(folder), data=data)
    assert run.returncode == 0
    assert run.stdout.count(b"\n") == 3
    assert b"lines with bytes that are not UTF-8 (now U+FFFD): 1\n" in run.stderr
    output = tmp_path / "out.txt"
    run = pellucid(
        "translate", "--model", str(folder), "--json", "-o", str(output), "le phare", "42"
    )
    assert (run.returncode, run.stdout) == (0, b"")
    first, second = (json.loads(line) for line in output.read_text().splitlines())
    assert first["from"] == "fr"
    assert len(first["sentences"][0]["probabilities"]) == first["length"]
    assert len(first["sentences"][0]["alignment"]) == len(first["sentences"][0]["tokens"])
    assert (second["text"], second["sentences"]) == ("42", [])


def test_n_best_lines(folder: Path) -> None:
    """Always n lines for a text; outputs that read alike are given once, so some may be empty."""
    run = pellucid(
        "translate", "--model", str(folder), "--n-best", "3", "le phare", "42", "un lundi"
    )
    lines = run.stdout.decode().split("\n")
    assert len(lines) == 3 * 3 + 1
    assert lines[3:6] == ["42", "", ""]
    for first in (0, 6):
        different = [line for line in lines[first : first + 3] if line]
        assert lines[first] == different[0]
        assert 1 < len(different) == len(set(different))


def test_documents(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Le phare\n\nUne `carte` et [le pont](https://a.example).\n")
    run = pellucid("translate", "--model", str(folder), "--beam-size", "1", "--file", str(page))
    assert run.returncode == 0
    made = (tmp_path / "page.en.md").read_text()
    assert made.startswith("# ")
    assert "`carte`" in made
    assert "](https://a.example)" in made
    assert made.count("\n") == 3
    binary = tmp_path / "x.txt"
    binary.write_bytes(b"\x00\xff\x01")
    run = pellucid("translate", "--model", str(folder), "--file", str(binary))
    assert run.returncode == 2
    long = tmp_path / "long.txt"
    long.write_text("le vélo vert " * 200)
    run = pellucid("translate", "--model", str(folder), "--beam-size", "1", "--file", str(long))
    assert run.returncode == 0
    assert b"over-long sentences, translated in parts: 1\n" in run.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--to", "de"], "it translates fr-en, en-fr"),
        (["--from", "fr", "--to", "fr"], "does not translate from fr into fr: it translates fr-en"),
        (["--engine", "fast"], "choose auto, ct2 or torch"),
        (["--file", "nowhere.md"], "there is no file nowhere.md"),
        (["--file", "a.docx"], "not a kind of document"),
        (["--file", "a.md", "text"], "not both"),
    ],
)
def test_mistakes(folder: Path, arguments: list[str], said: str) -> None:
    run = pellucid("translate", "--model", str(folder), *arguments)
    assert run.returncode == 2
    assert said in run.stderr.decode()
    assert run.stderr.count(b"\n") == 1


def test_models(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PELLUCID_MODELS", str(tmp_path / "none"))
    run = pellucid("translate", "Merci.")
    assert run.stdout in (b"Thanks.\n", b"Thank you.\n")
    assert run.stderr == b""
    run = pellucid("translate", "--model", "nothing-there", "bonjour")
    assert run.returncode == 2
    monkeypatch.setenv("PELLUCID_MODELS", str(folder.parent))
    run = pellucid("models")
    listed = [line.split("\t")[:2] for line in run.stdout.decode().splitlines()]
    assert listed == [["fr-en", "fr-en, en-fr"], ["model", "fr-en, en-fr"]]
    run = pellucid("translate", "--model", "model", "42")
    assert run.stdout == b"42\n"


def test_nobody_listens(folder: Path) -> None:
    """`pellucid translate | head -1` ends well, and soon."""
    with subprocess.Popen(
        [sys.executable, "-m", "pellucid", "translate", "--model", str(folder), "--beam-size", "1"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"le phare\n" * 300)
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        try:
            for _ in range(100):
                process.stdin.write(b"le phare\n" * 1000)
            process.stdin.close()
        except BrokenPipeError:
            pass
        said = process.stderr.read()
        assert process.wait(timeout=240) == 0
        assert b"Traceback" not in said
