"""The rooms of the house: data flows one way, and the base install does not need PyTorch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "pellucid"

# A room may import from rooms above it, never from below. `errors` is the ground floor.
ROOMS = [
    "errors",
    "commands",
    "manifest",
    "config",
    "drawing",
    "model",
    "text",
    "bundle",
    "decoding",
    "exchange",
    "inspection",
    "translator",
    "training",
    "evaluation",
    "server",
    "cluster",
    "cli",
]


def room_of(module: str) -> str | None:
    """The room of a dotted module name, or None for the package itself and for other packages."""
    parts = module.split(".")
    return parts[1] if parts[0] == "pellucid" and len(parts) > 1 else None


def imports_of(file: Path) -> list[str]:
    """Every module that a file imports, wherever in the file the import stands."""
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import; write it in full"
            assert node.module is not None
            # `from pellucid import config` names a room in the imported name
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


SOURCES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("file", SOURCES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_imports_flow_one_way(file: Path) -> None:
    name = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if name in ("__init__", "__main__"):
        return
    assert name in ROOMS, f"{name} is not a room of the house: add it to the design and to ROOMS"
    for module in imports_of(file):
        other = room_of(module)
        if other in ROOMS:
            assert ROOMS.index(other) <= ROOMS.index(name), f"{file}: {name} imports {module}"


def test_no_room_without_a_name() -> None:
    for file in SOURCES:
        assert file.stem not in ("utils", "helpers", "common", "misc"), file


def test_the_base_does_not_import_torch() -> None:
    light = ["pellucid", "pellucid.config", "pellucid.errors", "pellucid.cli.main"]
    code = f"import sys, {', '.join(light)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_model_says_what_it_needs_without_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "try:\n    import pellucid.model\nexcept ImportError as error:\n    print(error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip().endswith("pip install 'pellucid[train]'")
