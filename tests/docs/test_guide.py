"""The guide is true: its commands run, in its order, in one folder; its messages are ours."""

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide"
ORDER = ["start", "train", "fine-tune", "evaluate", "server", "look", "python", "grow"]
PUBLIC = "Helsinki-NLP/opus-mt-en-fr"
SHORT = [
    "training.steps=2", "validation.translate=false", "early_stopping.metric=loss",
    "training.threads=1",
]  # fmt: skip
SMALL = [
    "model.d_model=32", "model.d_ff=32", "model.encoder_layers=1",
    "model.decoder_layers=1",
]  # fmt: skip
"""Training is cut short: what is tested is that the commands work, not that the model is good."""


class Block(NamedTuple):
    language: str
    mark: str
    text: str


def blocks(page: str) -> list[Block]:
    text = (GUIDE / f"{page}.md").read_text("utf-8")
    found = re.findall(r"^```(\w+) ?(.*)\n((?:.*\n)*?)```$", text, re.MULTILINE)
    return [Block(*one) for one in found]


def test_every_block_is_run_or_says_why_not() -> None:
    assert {file.stem for file in GUIDE.glob("*.md")} == {*ORDER, "troubleshooting"}
    for page in ORDER:
        for block in blocks(page):
            if block.language in ("bash", "python", "toml"):
                assert re.fullmatch(r"run|serve|file=\S+|skip: .{10,}", block.mark), block


class Reader:
    """Someone who types what the guide says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.looked: set[str] = set()
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = one.getsockname()[1]
        programs = folder / "programs"
        programs.mkdir()
        command = programs / "pellucid"
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m pellucid "$@"\n')
        command.chmod(0o755)
        self.environment = os.environ | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(folder),
            "PELLUCID_MODELS": str(folder / "models"),
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "100",
        }

    def typed(self, text: str) -> str:
        """What is typed: our port, a model that is here, and short training."""
        text = text.replace("8000", str(self.port)).replace(PUBLIC, "runs/pairs/bundle")
        lines = []
        for line in text.splitlines():
            line = line.partition("   #")[0].rstrip()
            if line.startswith("pellucid look") and line in self.looked:
                continue  # once is enough: each loads PyTorch
            self.looked.add(line)
            if line.startswith("pellucid train"):
                settings = SHORT if "fine" in line else SHORT + SMALL
                line += "".join(f" --set {one}" for one in settings)
            elif line.startswith("pellucid plan pairs"):
                line += " --hardware laptop"  # nothing to measure
            elif line.startswith("pellucid evaluate"):
                line += " --no-ter --resamples 100 --beam-size 1"
            elif line.startswith("pellucid serve") and " keys " not in line:
                line += f" --port {self.port}"
            lines.append(line)
        return "\n".join(lines)

    def run(self, block: Block) -> None:
        text = self.typed(block.text)
        how = (
            ["bash", "-e", "-c", text] if block.language == "bash" else [sys.executable, "-c", text]
        )
        done = subprocess.run(
            how, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=500
        )
        assert done.returncode == 0, f"{text}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"

    @contextmanager
    def serving(self, block: Block) -> Iterator[None]:
        command = f"exec {self.typed(block.text).strip()}"
        with subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stderr=subprocess.DEVNULL,
        ) as server:
            try:
                self.wait(server)
                yield
            finally:
                server.terminate()
            assert server.wait(60) == 0

    def wait(self, server: "subprocess.Popen[bytes]") -> None:
        until = time.monotonic() + 300
        while time.monotonic() < until:
            assert server.poll() is None, "the server ended"
            try:
                with urlopen(f"http://127.0.0.1:{self.port}/health/ready", timeout=5):
                    return
            except URLError:
                time.sleep(0.2)
        pytest.fail("the server did not come")


def test_the_guide_can_be_followed(tmp_path: Path) -> None:
    if shutil.which("curl") is None or shutil.which("shuf") is None:
        pytest.skip("a reader of the guide has curl and shuf")
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    for file in (tmp_path / "recipes" / "toy").glob("*.tsv"):  # fewer, as they are not learned well
        lines = file.read_text("utf-8").splitlines(keepends=True)
        file.write_text("".join(lines[: len(lines) // 4]), encoding="utf-8")
    reader = Reader(tmp_path)
    for page in ORDER:
        waiting = blocks(page)
        while waiting:
            block = waiting.pop(0)
            if block.mark.startswith("file="):
                text = reader.typed(block.text)
                (tmp_path / block.mark.removeprefix("file=")).write_text(text, encoding="utf-8")
            elif block.mark == "run":
                reader.run(block)
            elif block.mark == "serve":
                with reader.serving(block):
                    while waiting and waiting[0].mark == "run":
                        reader.run(waiting.pop(0))
    for made in ("inside.html", "notes.fr.md", "report.html", "cross.svg", "translated/part-1.txt"):
        assert (tmp_path / made).stat().st_size > 0, made
    assert len((tmp_path / "out.txt").read_text("utf-8").splitlines()) == 2


def messages() -> list[str]:
    text = (GUIDE / "troubleshooting.md").read_text("utf-8")
    return re.findall(r"^> (.+)$", text, re.MULTILINE)


@pytest.fixture(scope="module")
def said() -> str:
    """All texts of the source, with what is filled in left out."""
    import ast

    parts = []
    for file in (ROOT / "src" / "pellucid").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                inner = (v.value if isinstance(v, ast.Constant) else "…" for v in node.values)
                parts.append("".join(map(str, inner)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                parts.append(node.value)
    return "\n".join(parts)


@pytest.mark.parametrize("message", messages())
def test_a_quoted_message_is_one_of_ours(message: str, said: str) -> None:
    assert message in said


def test_a_message_that_nobody_says_would_be_noticed(said: str) -> None:
    assert len(messages()) > 25
    assert "no model at …: it is nowhere" not in said
