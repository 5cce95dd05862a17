"""The reference pages, made from the code each time the site is built."""

import ast
import importlib
import inspect
import re
from types import SimpleNamespace
from typing import Any

from docs.settings_table import table, tables
from pellucid.cli.main import app
from pellucid.cli.parser import Parameter, parameters_of
from pellucid.config import Settings

MADE = "*This page is made from the code.*"
MODULES = {
    "pellucid": ["load", "train"],
    "pellucid.translator": None,
    "pellucid.decoding": None,
    "pellucid.model": None,
    "pellucid.inspection": None,
    "pellucid.bundle": ["Bundle", "BundleConfig", "DamagedBundleError"],
    "pellucid.evaluation": None,
    "pellucid.exchange": None,
    "pellucid.bulk": None,
    "pellucid.errors": ["PellucidError", "InputError", "ConfigError", "MissingExtraError"],
}
"""Which names of each module are public; None: those in its __all__."""


def pages() -> dict[str, str]:
    """Each page by its place in the site."""
    return {
        "reference/cli.md": cli_page(),
        "reference/recipe.md": f"# Recipe keys\n\n{MADE}\n\n{tables()}\n".replace("### ", "## "),
        "reference/python.md": python_page(),
        "reference/http.md": http_page(),
    }


def cli_page() -> str:
    """Every command with its options."""
    parts = ["# Commands", MADE, "Exit codes: 0 done, 1 failed, 2 the call or the input was wrong."]
    for name, function in app.commands.items():
        about, *rest = (inspect.getdoc(function) or "").split("\n\n")
        parts += [f"## pellucid {name}", about]
        parts += [f"    {one}" if one.startswith("pellucid ") else one for one in rest]
        parameters = parameters_of(function)
        if parameters:
            rows = "\n".join(_option(parameter) for parameter in parameters)
            parts.append(f"| | what | default |\n|---|---|---|\n{rows}")
    return "\n\n".join(parts) + "\n"


def _option(parameter: Parameter) -> str:
    shown = ", ".join(parameter.flags) or parameter.metavar
    if parameter.flags and parameter.metavar:
        shown += f" {parameter.metavar}"
    default = "" if parameter.default in (None, "", False) else str(parameter.default)
    if parameter.required:
        default = "required"
    elif parameter.default is True:
        default = "on"
    more = " *(several)*" if parameter.several and "epeatable" not in parameter.about.help else ""
    return f"| {_code(shown)} | {_cell(parameter.about.help)}{more} | {_cell(default)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _code(text: str) -> str:
    """Text in code inside a table, where a bar would end the cell."""
    return f"<code>{text.replace('|', '&#124;').replace('<', '&lt;')}</code>"


def python_page() -> str:
    """The public names, with their signatures and what is said about them."""
    parts = ["# Python", MADE]
    for name, chosen in MODULES.items():
        module = importlib.import_module(name)
        parts += [f"## {name}", _said(module)]
        for one in chosen or module.__all__:
            parts += _thing(name, one, getattr(module, one))
    return "\n\n".join(part for part in parts if part) + "\n"


def _thing(module: str, name: str, thing: Any) -> list[str]:
    parts = [f"### {name}"]
    if inspect.isclass(thing) and issubclass(thing, Settings):
        parts += [_said(thing), "\n".join(table(thing)), *_members(thing)]
    elif inspect.isclass(thing):
        parts += [_signature(name, thing), _said(thing)]
        parts += _members(thing)
    elif callable(thing):
        parts += [_signature(name, thing), _said(thing)]
    return parts


def _members(kind: type) -> list[str]:
    parts = []
    for name, member in vars(kind).items():
        if name.startswith("_") and name != "__call__":
            continue
        function = getattr(member, "__func__", member)
        if inspect.isfunction(function) and inspect.getdoc(function):
            shown = "self" if name == "__call__" else f"{kind.__name__}.{name}"
            parts += [_signature(shown, function), _said(function)]
        elif isinstance(member, property) and member.__doc__:
            parts.append(f"`{kind.__name__}.{name}`: {_said(member)}")
    return parts


class _Plain:
    """An annotation that is written as it stands in the source, without quotes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _plain(annotation: Any) -> Any:
    return _Plain(annotation) if isinstance(annotation, str) else annotation


def _signature(name: str, thing: Any) -> str:
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    keep = [
        one.replace(annotation=_plain(one.annotation))
        for one in signature.parameters.values()
        if one.name not in ("self", "cls")
    ]
    returned = _plain(signature.return_annotation)
    text = str(signature.replace(parameters=keep, return_annotation=returned))
    text = re.sub(r"<[\w. ]+ object at 0x[0-9a-f]+>", "...", text)
    return f"```python\n{name}{_folded(text)}\n```"


def _folded(signature: str) -> str:
    """A long signature, a parameter a line."""
    if len(signature) < 70:
        return signature
    inside, depth, parts = signature[1:], 0, [""]
    for place, letter in enumerate(inside):
        if letter == ")" and depth == 0:
            return "(\n    " + ",\n    ".join(one.strip() for one in parts) + "\n" + inside[place:]
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return signature


def _said(thing: Any) -> str:
    """The docstring as Markdown; a paragraph that is Python is shown as code."""
    parts = (inspect.getdoc(thing) or "").split("\n\n")
    return "\n\n".join(
        f"```python\n{part}\n```" if _is_python(part) else part.replace("<", "&lt;")
        for part in parts
    )


def _is_python(text: str) -> bool:
    """Whether it is code: prose is no valid Python, but for a single word."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return False
    return any(isinstance(node, ast.Call | ast.Assign) for node in ast.walk(tree))


def http_page() -> str:
    """Every route, as the server itself describes it at /docs."""
    from pellucid.server.app import build_app
    from pellucid.server.routes.api_docs import api_docs
    from pellucid.server.settings import ServerSettings

    # Only described, never asked: so the routes need no models and no threads behind them.
    server = SimpleNamespace(settings=ServerSettings(), metrics=None, log=None)
    whole = api_docs(build_app(server).openapi())  # type: ignore[arg-type]
    inner = whole.partition("<main>")[2].partition("<footer>")[0]
    inner = inner.partition("</p>")[2]  # the page brings its own heading and introduction
    inner = re.sub(r"<section><h2>(.*?)</h2>", r"\n\n## \1\n\n", inner).replace("</section>", "")
    inner = inner.replace("<p></p>", "").replace("<table>", "\n\n<table>")
    about = "A server that runs has the same at `/docs`, and for programs at `/openapi.json`."
    return f"# HTTP\n\n{MADE} {about} How to run one is in [Serving](../serve.md).\n{inner}\n"
