"""How a command declares its arguments and options.

A command is a function in the `command.py` of its room: its parameters are the options, its
docstring is the help. `pellucid.cli.parser` reads them.

    def greet(
        name: Annotated[str, Argument(help="Name of the person.")],
        times: Annotated[int, Option("-t", "--times", min=1, help="Number of greetings.")] = 1,
    ) -> None:
        '''Print a greeting.'''
"""

from __future__ import annotations

import sys
from typing import Annotated


class Argument:
    """A positional argument."""

    def __init__(self, *, metavar: str | None = None, help: str = "") -> None:
        self.metavar, self.help = metavar, help


class Option:
    """A named option; "--wide/--narrow" names both values of a bool.

    Without a name it gets that of the parameter. min and max bound a number. help_off: help of the
    second name of a bool.
    """

    def __init__(
        self,
        *names: str,
        metavar: str | None = None,
        help: str = "",
        min: float | None = None,
        max: float | None = None,
        help_off: str = "",
    ) -> None:
        self.names, self.metavar, self.help = names, metavar, help
        self.min, self.max = min, max
        self.help_off = help_off


FORMER_NAMES = {
    "--beam": "--beam-size",
    "--characters": "--char-limit",
    "--grace": "--graceful-timeout",
    "--per-minute": "--req-limit",
    "--seconds": "--timeout",
    "--texts": "--batch-limit",
}
"""Options by the names they used to have: for the error message alone."""

# Options that several commands have.
From = Annotated[str | None, Option("--from", metavar="LANGUAGE", help="Source language.")]
To = Annotated[str | None, Option("--to", metavar="LANGUAGE", help="Target language.")]
Model = Annotated[
    str | None, Option(metavar="NAME|DIR", help="Model to use; `pellucid models` lists them.")
]
Engine = Annotated[str, Option(metavar="auto|ct2|torch", help="Inference engine.")]
Set = Annotated[
    list[str] | None,
    Option(
        "--set", metavar="SECTION.KEY=VALUE", help="Override a setting of the recipe. Repeatable."
    ),
]


def say(text: object = "", *, error: bool = False) -> None:
    """Print a line to standard output, or to standard error if it is not a result."""
    print(text, file=sys.stderr if error else sys.stdout)
