"""What the pages take from elsewhere when they are built: lines of our code, and pictures.

    {{ code pellucid.model.attention:attend }}      a function, class or method, as it stands
    {{ picture cross }}                             what `python -m docs.pictures` made
    {{ experiment heads }}                          the chart and the table of an experiment

Each stands on a line of its own.
"""

import ast
import json
import re
import textwrap
from pathlib import Path

from docs.pictures import FOLDER, PICTURES

SOURCE = Path(__file__).parents[1] / "src"
EXPERIMENTS = Path(__file__).parent / "experiments"
CODE = re.compile(r"^\{\{ code ([\w.]+):([\w.]+) \}\}$", re.MULTILINE)
PICTURE = re.compile(r"^\{\{ picture ([\w-]+) \}\}$", re.MULTILINE)
EXPERIMENT = re.compile(r"^\{\{ experiment (\w+) \}\}$", re.MULTILINE)
ANY = re.compile(r"^\{\{.*\}\}$", re.MULTILINE)


class IncludeError(Exception):
    """A page names something that is not there."""


def module_file(module: str) -> Path:
    """The file of one of our modules."""
    place = SOURCE.joinpath(*module.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    if not file.is_file():
        raise IncludeError(f"there is no module {module}")
    return file


def code(module: str, symbol: str) -> str:
    """The lines of a function, class, method or constant, its decorators included."""
    file = module_file(module)
    text = file.read_text(encoding="utf-8")
    node: ast.AST = ast.parse(text)
    for name in symbol.split("."):
        node = _child(node, name) or _missing(module, symbol)
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(one.lineno for one in decorators)])
    return textwrap.dedent("\n".join(text.splitlines()[first - 1 : node.end_lineno]))


def _child(node: ast.AST, name: str) -> ast.AST | None:
    for child in ast.iter_child_nodes(node):
        targets = [child.target] if isinstance(child, ast.AnnAssign) else []
        targets += child.targets if isinstance(child, ast.Assign) else []
        names = [getattr(child, "name", None), *(getattr(one, "id", None) for one in targets)]
        if name in names:
            return child
    return None


def _missing(module: str, symbol: str) -> ast.AST:
    raise IncludeError(f"{module} has no {symbol}")


def _code_block(match: re.Match[str]) -> str:
    module, symbol = match.groups()
    title = f"{module_file(module).relative_to(SOURCE.parent)}: {symbol}"
    return f'```python title="{title}"\n{code(module, symbol)}\n```'


def _picture_block(match: re.Match[str]) -> str:
    name = match[1]
    if name not in PICTURES:
        raise IncludeError(f"docs/pictures.py has no picture {name!r}")
    if not (FOLDER / f"{name}.svg").exists():
        raise IncludeError(f"the picture {name} is missing: run python -m docs.pictures")
    return f"![{PICTURES[name].caption}](pictures/{name}.svg)\n\n*{PICTURES[name].caption}*"


def _experiment_block(match: re.Match[str]) -> str:
    """What an experiment found when it was last run: its settings, its chart, its numbers."""
    name = match[1]
    if not (EXPERIMENTS / f"{name}.py").exists():
        raise IncludeError(f"there is no experiment {name}")
    command = f"`python -m docs.experiments.{name}` ([source]({name}.py))"
    numbers = EXPERIMENTS / f"{name}.json"
    if not numbers.exists():
        return f"{command}\n\n*It has not been run yet.*"
    found = json.loads(numbers.read_text(encoding="utf-8"))
    about = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in found["about"].items())
    picture = (EXPERIMENTS / f"{name}.svg").read_text(encoding="utf-8")
    label = re.search(r'aria-label="([^"]*)"', picture)
    caption = label[1] if label else name
    columns, rows = found["table"]["columns"], found["table"]["rows"]
    lines = [columns, ["---"] * len(columns), *rows]
    table = "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
    chart = f"![{caption}]({name}.svg)\n\n*{caption}.*"
    return f"{command}; {about}; [numbers]({name}.json)\n\n{chart}\n\n{table}"


def expanded(page: str) -> str:
    """A page with everything it names put in."""
    page = CODE.sub(_code_block, page)
    page = PICTURE.sub(_picture_block, page)
    page = EXPERIMENT.sub(_experiment_block, page)
    left = ANY.search(page)
    if left:
        raise IncludeError(f"not understood: {left[0]}")
    return page
