"""`pellucid look`: pictures, one page, data; and what it says when it cannot."""

import base64
import io
import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.cli.main import app
from pellucid.errors import InputError
from pellucid.inspection import Trace, command
from pellucid.inspection.command import page_tensors
from tests.bundles import write_bundle
from tests.pages import HARM, Page

TEXT = "Ma sœur a trouvé le phare </script> !"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("look") / "model"
    write_bundle(made, ct2=False)
    return made


def look(folder: Path, output: Path, text: str = TEXT, **changes: Any) -> list[str]:
    """The lines that the command prints."""
    with redirect_stdout(io.StringIO()) as printed:
        command.look(text, output, **{"model": str(folder), "beam_size": 2, **changes})
    return printed.getvalue().splitlines()


@pytest.fixture(scope="module")
def trace(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    file = tmp_path_factory.mktemp("look") / "x.trace"
    told = look(folder, file)
    assert "all" in told[1]
    return Trace.load(file)


@pytest.mark.parametrize(
    "changes",
    [
        {"what": "attention", "kind": "encoder", "layer": "1", "head": "4"},
        {"what": "attention", "layer": "mean"},
        {"what": "beam"},
        {"what": "positions"},
    ],
    ids=str,
)
def test_pictures(folder: Path, tmp_path: Path, changes: dict[str, str]) -> None:
    output = tmp_path / "x.svg"
    told = look(folder, output, **changes)
    assert told[0].startswith(TEXT)
    assert str(output) in told[1]
    assert ET.parse(output).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_the_loss_of_a_run(folder: Path, tmp_path: Path) -> None:
    lines = [{"kind": "run", "title": "Toy"}]
    lines += [{"kind": "step", "step": n, "loss": 9 / n, "elapsed": n} for n in range(1, 9)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    look(folder, tmp_path / "x.svg", str(tmp_path), what="curve")
    assert "Loss" in (tmp_path / "x.svg").read_text(encoding="utf-8")
    with pytest.raises(InputError, match=r"\.svg"):
        look(folder, tmp_path / "x.html", str(tmp_path), what="curve")


def test_data(folder: Path, trace: Trace, tmp_path: Path) -> None:
    output = tmp_path / "x.json"
    look(folder, output)
    told = json.loads(output.read_text(encoding="utf-8"))
    assert told["text"] == trace.text
    assert told["shapes"] == {name: list(trace[name].shape) for name in trace}
    for name in trace.names("*.weights"):
        np.testing.assert_allclose(told["tensors"][name], trace[name], atol=1e-6)


def test_a_page_carries_everything_and_nothing_breaks_out(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "x.html"
    look(folder, output, HARM.replace("\x00", "").replace("\ud800", ""))
    text = output.read_text(encoding="utf-8")
    page = Page(text)
    kinds = [attributes.get("type") for tag, attributes in page.tags if tag == "script"]
    assert kinds == ["importmap", "application/json", "module"]
    assert not any(tag in ("img", "iframe", "object") for tag, _ in page.tags)
    assert not any(
        not (attributes[name] or "").startswith("data:")
        for tag, attributes in page.tags
        for name in ("src", "href")
        if name in attributes
    )


def test_the_tensors_of_a_page_are_the_traces(trace: Trace) -> None:
    found, left_out = page_tensors(trace)
    assert left_out == []
    for name, text in found.items():
        data = base64.b64decode(found[text[1:]] if text.startswith("=") else text)
        np.testing.assert_array_equal(
            np.frombuffer(data, "<f4"), trace[name].astype("<f4").reshape(-1)
        )
    assert sum(text.startswith("=") for text in found.values()) > 10


def test_a_page_is_bounded(trace: Trace) -> None:
    whole = sum(map(len, page_tensors(trace)[0].values()))
    found, left_out = page_tensors(trace, whole // 2)
    assert sum(map(len, found.values())) <= whole // 2
    assert left_out
    assert set(trace.names("*.weights")) <= set(found)
    for text in found.values():  # none stands for one that was left out
        assert not text.startswith("=") or not found[text[1:]].startswith("=")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"output": "x.png"}, "has to end in .svg, .html, .json, .trace"),
        ({"what": "dreams"}, "choose attention, positions, beam, curve"),
        ({"head": "5"}, "no head '5': choose 1 to 4"),
        ({"layer": "0"}, "no layer '0': choose 1 to 2"),
        ({"kind": "sideways"}, "choose encoder, decoder or cross"),
        ({"text": "  "}, "give a sentence"),
        ({"target": "de"}, "does not know the language 'de'"),
    ],
    ids=str,
)
def test_mistakes_are_told(
    folder: Path, tmp_path: Path, changes: dict[str, str], said: str
) -> None:
    output = tmp_path / changes.pop("output", "x.svg")
    with pytest.raises(InputError, match=said.replace(".", r"\.")):
        look(folder, output, changes.pop("text", TEXT), **changes)
    assert not output.exists()


def test_no_position_encodings_to_draw(tmp_path: Path) -> None:
    write_bundle(tmp_path / "model", ct2=False, position_encoding="rotary")
    with pytest.raises(InputError, match="rotary"):
        look(tmp_path / "model", tmp_path / "x.svg", what="positions")


def test_the_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "x.svg"
    app(["look", TEXT, "-o", str(output), "--model", str(folder)])
    assert str(output) in capsys.readouterr().out
    assert output.exists()


def test_without_pytorch(folder: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None; from pellucid.cli.main import main\n"
        f"sys.argv = ['pellucid', 'look', 'x', '-o', {str(tmp_path / 'x.html')!r}, "
        f"'--model', {str(folder)!r}]; main()"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert run.stderr == "pellucid: looking inside needs an extra: pip install 'pellucid[train]'\n"
