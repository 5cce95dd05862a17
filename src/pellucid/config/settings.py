"""What every group of settings is: frozen data that refuses what it does not know."""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from textwrap import dedent
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from pellucid.errors import ConfigError, nearest


class Settings(BaseModel):
    """A group of settings that refuses what it does not know, in one clear line."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        defer_build=True,  # a command pays for the settings it uses, not for all
    )

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(_one_line(type(self), error)) from None

    @classmethod
    def help_texts(cls) -> dict[str, str]:
        """The docstring under each setting; read from the source only when somebody asks."""
        found: dict[str, str] = {}
        for kind in reversed(cls.__mro__):
            if not issubclass(kind, Settings):
                continue
            (tree,) = ast.parse(dedent(inspect.getsource(kind))).body
            assert isinstance(tree, ast.ClassDef)
            for setting, below in pairwise(tree.body):
                if isinstance(setting, ast.AnnAssign) and isinstance(below, ast.Expr):
                    name, text = ast.unparse(setting.target), ast.literal_eval(below.value)
                    found[name] = inspect.cleandoc(text)
        return found

    def changed(self, **changes: Any) -> Self:
        """The same settings with some of them changed, validated again."""
        return type(self)(**{**self.model_dump(exclude_unset=True), **changes})


def _one_line(cls: type[BaseModel], error: ValidationError) -> str:
    """The first problem of a pydantic error, as what was given and what to do."""
    problems = error.errors()
    # a misspelled setting often shows as a missing one too; the misspelling is the cause
    first = next((e for e in problems if e["type"] == "extra_forbidden"), problems[0])
    name = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in first["loc"]).lstrip(".")
    if first["type"] == "extra_forbidden":
        return f"unknown setting {name!r}: {nearest(name, list(cls.model_fields))}"
    if first["type"] == "missing":
        return f"setting {name!r} is missing: give it a value"
    if first["type"] == "value_error":  # raised by a validator below, or by a group in the group
        message = str(first["ctx"]["error"])
        return f"in {name}: {message}" if name else message
    given = first["input"]
    if first["type"] == "literal_error":
        return f"setting {name!r} is {given!r}: choose {first['ctx']['expected']}"
    message = first["msg"][0].lower() + first["msg"][1:]
    return f"setting {name!r} is {given!r}: {message}"
