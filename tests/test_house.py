"""The rooms of the house: data flows one way, and the base install does not need PyTorch."""

import ast
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "pellucid"

# A room may import from rooms above it in this list, never from below.
ROOMS = [
    "errors",
    "console",
    "storage",
    "config",
    "drawing",
    "model",
    "tokenizers",
    "text",
    "data",
    "bundle",
    "decoding",
    "inspection",
    "exchange",
    "translator",
    "training",
    "evaluation",
    "web",
    "server",
    "bulk",
    "cli",
]

COMMAND = "command"
"""The module of a room that declares its commands: it may import any room, and only cli uses it."""

MOST_MODULES = 14

SHARED_STEMS = {
    "command": "the commands of each room",
    "distillation": "its settings, and its work",
    "engine": "what an engine is, and each engine",
    "options": "of commands, and of decoding",
    "predictor": "what a predictor is, and that of PyTorch",
    "settings": "of a recipe, and of the server",
    "translate": "the route, and the service behind it",
}
"""File names that two modules may share, and why."""


def room_of(module: str) -> str | None:
    """The room of a dotted module name; None for the package itself and for other packages."""
    parts = module.split(".")
    return parts[1] if parts[0] == "pellucid" and len(parts) > 1 else None


def imports_of(file: Path) -> list[str]:
    """Every module that a file imports, anywhere in the file."""
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


def test_the_package_is_found() -> None:
    assert PACKAGE / "errors.py" in SOURCES
    assert {file.relative_to(PACKAGE).parts[0].removesuffix(".py") for file in SOURCES} == {
        *ROOMS,
        "__init__",
        "__main__",
    }


@pytest.mark.parametrize("file", SOURCES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_imports_flow_one_way(file: Path) -> None:
    name = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if name in ("__init__", "__main__"):
        return
    for module in imports_of(file):
        other = room_of(module)
        if name != "cli":
            assert module.split(".")[2:3] != [COMMAND], f"{file} imports {module}, as only cli may"
        if other in ROOMS and file.stem != COMMAND:
            assert ROOMS.index(other) <= ROOMS.index(name), f"{file}: {name} imports {module}"


def test_no_module_without_a_subject() -> None:
    for file in SOURCES:
        assert file.stem not in ("utils", "helpers", "common", "misc"), file


def test_no_folder_is_crowded() -> None:
    for folder in {file.parent for file in SOURCES}:
        modules = [file for file in folder.glob("*.py") if file.stem != "__init__"]
        assert len(modules) <= MOST_MODULES, f"{folder} has {len(modules)} modules"


def test_a_file_name_means_one_thing() -> None:
    named = defaultdict(list)
    for file in SOURCES:
        if file.stem not in ("__init__", "__main__"):
            named[file.stem].append(str(file.relative_to(PACKAGE)))
    shared = {stem: files for stem, files in named.items() if len(files) > 1}
    assert shared.keys() == SHARED_STEMS.keys(), shared


def test_a_class_name_means_one_thing() -> None:
    named = defaultdict(list)
    for file in SOURCES:
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                named[node.name].append(str(file.relative_to(PACKAGE)))
    assert not {name: files for name, files in named.items() if len(files) > 1}


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
