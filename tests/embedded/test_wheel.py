"""A new user: the wheel, without extras, in a clean environment. No PyTorch there."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LARGEST_WHEEL = 31 << 20
"""The bundle may take 30 MB."""

LARGEST_INSTALLATION = 315
"""MB with all dependencies. CTranslate2 and numpy, which it needs, take 223 of them."""


def run(*words: object, folder: Path | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT)
    (found,) = folder.glob("pellucid-*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with nothing but the wheel and what it needs."""
    folder = tmp_path_factory.mktemp("clean") / "venv"
    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin" / "python", "-m", "pip", "install", "-q", wheel)
    return folder / "bin"


def test_what_is_in_the_wheel(wheel: Path) -> None:
    assert wheel.stat().st_size < LARGEST_WHEEL
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    for needed in ("py.typed", "web/static/index.html", "models/fr-en/manifest.json",
                   "models/fr-en/ct2/model.bin", "models/fr-en/MODEL.md"):  # fmt: skip
        assert f"pellucid/{needed}" in names
    assert not [name for name in names if name.startswith(("tests/", "docs/", "runs/"))]


def test_it_translates_both_ways(environment: Path, tmp_path: Path) -> None:
    pellucid = environment / "pellucid"
    assert "fr-en" in run(pellucid, "models")
    english = run(pellucid, "translate", "--to", "en", "Merci beaucoup.", folder=tmp_path)
    assert "thank" in english.lower()
    french = run(pellucid, "translate", "--to", "fr", "Thank you very much.", folder=tmp_path)
    assert "merci" in french.lower()
    code = (
        "import sys, json, pellucid; t = pellucid.load(); "
        "print(json.dumps([t('Je suis étudiant.'), 'torch' in sys.modules]))"
    )
    text, torch = json.loads(run(environment / "python", "-c", code, folder=tmp_path))
    assert "student" in text
    assert torch is False


def test_its_size(environment: Path) -> None:
    packages = next((environment.parent / "lib").glob("python*/site-packages"))
    sizes: dict[str, int] = {}
    for file in packages.rglob("*"):
        if file.is_file() and not file.is_symlink():
            name = file.relative_to(packages).parts[0]
            sizes[name] = sizes.get(name, 0) + file.stat().st_size
    for name in [n for n in sizes if n.startswith(("pip", "setuptools", "_distutils"))]:
        del sizes[name]  # a new environment has them anyway
    total = sum(sizes.values()) / 1e6
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:6]
    print(f"{total:.0f} MB: " + ", ".join(f"{n} {s / 1e6:.0f}" for n, s in largest))
    assert total < LARGEST_INSTALLATION
