"""`make demo`, as a new user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_demo(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "examples.demo"], cwd=tmp_path, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100", "OMP_NUM_THREADS": "1"},
        check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "student" in run.stdout
    assert "étudiant" in run.stdout
    assert "understand ← comprends" in " ".join(run.stdout.split())
    assert "█" in run.stdout
    assert "pellucid serve" in run.stdout
    page = (tmp_path / "look.html").read_text("utf-8")
    assert "Je ne comprends pas" in page
    assert "http://" not in page.replace("http://www.w3.org", "").replace("http://127.0.0.1", "")
