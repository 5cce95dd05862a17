"""The README is true: its code runs, its commands and links exist."""

import contextlib
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from examples import toy

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def of_the_toy(block: str) -> bool:
    return "def train(" in block


def test_the_python_blocks_run_in_order() -> None:
    assert len(blocks("python")) >= 3
    together: dict[str, object] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for block in blocks("python"):
            if of_the_toy(block):
                continue  # tested below
            exec(compile(block, "README.md", "exec"), together)
    assert "étudiant" in printed.getvalue()
    assert "torch.Size([1, 4, 2, 3])" in printed.getvalue()


def test_the_heart_of_the_toy_is_the_files_own_text_and_learns() -> None:
    (heart,) = filter(of_the_toy, blocks("python"))
    assert heart in Path(toy.__file__).read_text("utf-8")
    shown = dict(vars(toy))
    exec(compile(heart, "README.md", "exec"), shown)
    threads, losses = torch.get_num_threads(), list[float]()
    torch.set_num_threads(1)
    try:
        torch.manual_seed(1)
        model = shown["small_model"]()
        shown["train"](
            model, toy.TASKS["copy"], steps=150, batch_size=48, warmup_steps=30,
            on_step=lambda step, loss: losses.append(loss),
        )  # fmt: skip
        rows = toy.examples(100, torch.Generator().manual_seed(99))
        right = sum(a == b for a, b in zip(rows, shown["translate"](model, rows), strict=True))
    finally:
        torch.set_num_threads(threads)
    print(losses[0], sum(losses[-10:]) / 10, right)
    assert sum(losses[-10:]) / 10 < 0.1 * losses[0]
    assert right > 50


def commands() -> list[str]:
    lines = [line.split("#")[0].strip() for block in blocks("bash") for line in block.splitlines()]
    return [line for line in lines if line]


@pytest.mark.parametrize("command", commands())
def test_the_commands_exist(command: str, tmp_path: Path) -> None:
    program, *arguments = shlex.split(command)
    if program == "make":  # too long to run inside a test; CI runs them
        assert re.search(rf"^{arguments[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif program == "pip":
        assert arguments[0] == "install"
        assert arguments[1] in (".", ".[train]")
    else:
        assert program == "pellucid"
        (tmp_path / "recipes").symlink_to(ROOT / "recipes")
        run = [sys.executable, "-m", "pellucid", *arguments]
        done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_the_links_exist() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)", README)
    assert len(links) >= 4
    for link in links:
        assert (ROOT / link).exists(), link
