"""How the options of a command are written down, and how they are read.

A command is a function: its parameters are the options, its docstring the help. argparse reads
them, for it is part of Python and ready at once; a parser is made only for the command that runs.

    app = Commands("pellucid", "What it is.", version="1.0")

    @app.command()
    def greet(
        name: Annotated[str, Argument(help="Whom.")],
        times: Annotated[int, Option("-t", "--times", min=1, help="How often.")] = 1,
    ) -> None:
        '''Say hello.'''
"""

from __future__ import annotations

import argparse
import inspect
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pellucid.errors import InputError, nearest

Function = TypeVar("Function", bound=Callable[..., None])


class Argument:
    """A value that is given by its place."""

    def __init__(self, *, metavar: str | None = None, help: str = "") -> None:
        self.metavar, self.help = metavar, help


class Option:
    """A value that is given by name; "--wide/--narrow" names both values of a bool.

    Without a name it is called as the parameter. min and max bound a number.
    """

    def __init__(
        self,
        *names: str,
        metavar: str | None = None,
        help: str = "",
        min: float | None = None,
        max: float | None = None,
    ) -> None:
        self.names, self.metavar, self.help = names, metavar, help
        self.min, self.max = min, max


@dataclass(frozen=True)
class Parameter:
    """A parameter of a command, as it is read and as the reference shows it."""

    name: str
    kind: type
    """str, int, float, bool or Path; of one value, where there may be several."""
    several: bool
    default: Any
    """`inspect.Parameter.empty` where it must be given."""
    about: Argument | Option

    @property
    def needed(self) -> bool:
        """Whether it must be given."""
        return self.default is inspect.Parameter.empty

    @property
    def flags(self) -> list[str]:
        """What it is called on the command line; nothing for an argument."""
        if isinstance(self.about, Argument):
            return []
        names = self.about.names or (f"--{self.name.replace('_', '-')}",)
        return [flag for name in names for flag in name.split("/")]

    @property
    def shown(self) -> str:
        """What stands for its value in the help."""
        if self.about.metavar or isinstance(self.about, Argument):
            return self.about.metavar or self.name.upper()
        return {int: "N", float: "X", bool: "", str: "NAME"}.get(self.kind, "FILE")

    def read(self, text: str) -> Any:
        """The value of what was typed, or argparse's error."""
        if isinstance(self.about, Argument) or self.kind not in (int, float):
            return self.kind(text)
        low, high = self.about.min, self.about.max
        try:
            value = self.kind(text)
        except ValueError:
            what = "a whole number" if self.kind is int else "a number"
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}") from None
        if (low is not None and not value >= low) or (high is not None and not value <= high):
            between = f"from {low} to {high}" if high is not None else f"at least {low}"
            raise argparse.ArgumentTypeError(f"{text} is outside what it may be: {between}")
        return value


def parameters_of(function: Callable[..., None]) -> list[Parameter]:
    """The parameters of a command, in their order."""
    hints = get_type_hints(function, include_extras=True)
    found = []
    for name, parameter in inspect.signature(function).parameters.items():
        kind, *extras = get_args(hints[name])
        assert get_origin(hints[name]) is Annotated, f"{name} has no Option and no Argument"
        (about,) = (extra for extra in extras if isinstance(extra, Argument | Option))
        if get_origin(kind) in (Union, types.UnionType):  # X | None: it may be left out
            (kind,) = (one for one in get_args(kind) if one is not type(None))
        several = get_origin(kind) is list
        kind = get_args(kind)[0] if several else kind
        found.append(Parameter(name, kind, several, parameter.default, about))
    return found


class _Help(argparse.RawDescriptionHelpFormatter):
    """argparse's help with the value of an option named once: -o, --output FILE."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        return f"{', '.join(action.option_strings)} {action.metavar}"


class _Parser(argparse.ArgumentParser):
    """argparse, whose errors are ours: one line that says what to do."""

    def error(self, message: str) -> Any:
        message = message.removeprefix("argument ")
        missing = "the following arguments are required: "
        if message.startswith(missing):
            message = f"{message.removeprefix(missing)} is missing"
        raise InputError(f"{message} (see {self.prog} --help)")


class Commands:
    """The commands of a program. Calling it with the words after its name runs one."""

    def __init__(self, name: str, about: str, version: str) -> None:
        self.name, self.about, self.version = name, about, version
        self.commands: dict[str, Callable[..., None]] = {}

    def command(self, name: str | None = None) -> Callable[[Function], Function]:
        """Make a function a command. A name of several words is a command below another."""

        def add(function: Function) -> Function:
            self.commands[name or function.__name__] = function
            return function

        return add

    def __call__(self, words: Sequence[str]) -> None:
        """Run a command."""
        if not words or words[0] in ("-h", "--help"):
            print(self.help())
            if not words:
                raise SystemExit(2)
            return
        if words[0] == "--version":
            print(f"{self.name} {self.version}")
            return
        name = self._chosen(words)
        self.commands[name](**self._values(name, words[len(name.split()) :]))

    def help(self) -> str:
        """The commands, a line for each."""
        width = max(map(len, self.commands)) + 2
        lines = [
            f"  {name:{width}}{_summary(function)}" for name, function in self.commands.items()
        ]
        return "\n".join(
            [
                f"Usage: {self.name} COMMAND [OPTIONS] ...",
                f"\n{self.about}\n",
                "Commands:",
                *lines,
                "\nOptions:",
                "  --version  Show the version.",
                "  --debug    Show the whole traceback of an error.",
                f"\n{self.name} COMMAND --help says more about a command.",
            ]
        )

    def parser(self, name: str) -> argparse.ArgumentParser:
        """The parser of one command."""
        function = self.commands[name]
        program, parameters = f"{self.name} {name}", parameters_of(function)
        places = [p for p in parameters if isinstance(p.about, Argument)]
        usage = " ".join([program, "[OPTIONS]", *(p.shown for p in places)])
        parser = _Parser(
            prog=program,
            usage=usage,
            description=inspect.getdoc(function),
            formatter_class=_Help,
            add_help=False,
            allow_abbrev=False,
        )
        if places:
            group = parser.add_argument_group("Arguments")
            for parameter in places:
                _add_place(group, parameter)
        group = parser.add_argument_group("Options")
        for parameter in parameters:
            if isinstance(parameter.about, Option):
                _add_option(group, parameter)
        group.add_argument("-h", "--help", action="help", help="Show this.")
        return parser

    def _chosen(self, words: Sequence[str]) -> str:
        """The command that the first words name, the longest that fits."""
        fitting = (
            name for name in self.commands if name.split() == list(words[: len(name.split())])
        )
        name = max(fitting, key=len, default=None)
        if name is None:
            first = [known.split()[0] for known in self.commands]
            below = [known for known in self.commands if known.startswith(f"{words[0]} ")]
            if below:
                raise InputError(f"{self.name} {words[0]} needs one of: {', '.join(below)}")
            raise InputError(
                f"there is no command {words[0]!r}: {nearest(words[0], list(dict.fromkeys(first)))}"
            )
        return name

    def _values(self, name: str, words: Sequence[str]) -> dict[str, Any]:
        parser = self.parser(name)
        values, unknown = parser.parse_known_intermixed_args(list(words))
        if unknown:
            wrong = unknown[0].split("=")[0]
            known = [flag for p in parameters_of(self.commands[name]) for flag in p.flags]
            if wrong.startswith("-"):
                hint = nearest(wrong, known) if known else "it has none"
                raise InputError(f"{parser.prog} has no option {wrong}: {hint}")
            raise InputError(f"{wrong!r} is one word too many (see {parser.prog} --help)")
        return vars(values)


def _add_place(group: Any, parameter: Parameter) -> None:
    how: dict[str, Any] = {"type": parameter.read, "help": _escaped(parameter.about.help)}
    if parameter.several:
        how["nargs"] = "+" if parameter.needed else "*"
    elif not parameter.needed:
        how["nargs"] = "?"
    if not parameter.needed:
        how["default"] = parameter.default
    # argparse names an argument by its metavar in errors, and by `dest` in what it returns
    group.add_argument(parameter.name, metavar=parameter.shown, **how)


def _add_option(group: Any, parameter: Parameter) -> None:
    about, flags = _escaped(parameter.about.help), parameter.flags
    how: dict[str, Any] = {"dest": parameter.name, "help": about}
    if parameter.kind is bool:
        on = [flag for flag in flags if not flag.startswith("--no-")]
        off = [flag for flag in flags if flag.startswith("--no-")]
        how["default"] = parameter.default
        group.add_argument(*on, action="store_true", **how)
        if off:
            how["help"] = f"Not {on[-1]}."
            group.add_argument(*off, action="store_false", **how)
        return
    if parameter.several:
        how["action"] = "append"
    elif parameter.default not in (None, "", inspect.Parameter.empty):
        how["help"] = f"{about} [{_escaped(str(parameter.default))}]".strip()
    how["default"] = None if parameter.needed else parameter.default
    group.add_argument(
        *flags, type=parameter.read, metavar=parameter.shown, required=parameter.needed, **how
    )


def _escaped(text: str) -> str:
    return text.replace("%", "%%")  # argparse formats its help


def _summary(function: Callable[..., None]) -> str:
    return (inspect.getdoc(function) or "").split("\n")[0]


def say(text: object = "", *, error: bool = False) -> None:
    """Print a line, on standard error if it is not a result."""
    print(text, file=sys.stderr if error else sys.stdout)
