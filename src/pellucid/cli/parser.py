"""Command-line parsing: the functions that rooms declare as commands, read by argparse.

A command is a function: its parameters are the options (see `pellucid.console.options`), its
docstring is the help. argparse is part of Python and imports quickly, and a parser is built only
for the command that runs.

    app = Commands("pellucid", "What it is.", version="1.0")
    app.add("greet", "pellucid.greeting.command:greet", "Print a greeting.")
    app(["greet", "World", "--times", "2"])
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pellucid.console.options import FORMER_NAMES, Argument, Option
from pellucid.errors import InputError, nearest

Function = TypeVar("Function", bound=Callable[..., None])


@dataclass(frozen=True)
class Parameter:
    """A parameter of a command, as parsed and as shown in the reference."""

    name: str
    kind: type
    """str, int, float, bool or Path: the type of one value."""
    several: bool
    default: Any
    """`inspect.Parameter.empty` if it is required."""
    about: Argument | Option

    @property
    def required(self) -> bool:
        """Whether there is no default."""
        return self.default is inspect.Parameter.empty

    @property
    def flags(self) -> list[str]:
        """Names on the command line; none for a positional argument."""
        if isinstance(self.about, Argument):
            return []
        names = self.about.names or (f"--{self.name.replace('_', '-')}",)
        return [flag for name in names for flag in name.split("/")]

    @property
    def metavar(self) -> str:
        """Placeholder of its value in the help."""
        if self.about.metavar or isinstance(self.about, Argument):
            return self.about.metavar or self.name.upper()
        return {int: "N", float: "X", bool: "", str: "NAME"}.get(self.kind, "FILE")

    def read(self, text: str) -> Any:
        """Convert what was typed; a value that is not allowed is an argparse error."""
        if isinstance(self.about, Argument) or self.kind not in (int, float):
            return self.kind(text)
        low, high = self.about.min, self.about.max
        try:
            value = self.kind(text)
        except ValueError:
            what = "a whole number" if self.kind is int else "a number"
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}") from None
        if (low is not None and not value >= low) or (high is not None and not value <= high):
            allowed = f"from {low} to {high}" if high is not None else f"at least {low}"
            raise argparse.ArgumentTypeError(f"{text} is outside the allowed range: {allowed}")
        return value


def parameters_of(function: Callable[..., None]) -> list[Parameter]:
    """Return the parameters of a command, in order."""
    hints = get_type_hints(function, include_extras=True)
    found = []
    for name, parameter in inspect.signature(function).parameters.items():
        kind, *extras = get_args(hints[name])
        assert get_origin(hints[name]) is Annotated, f"{name} has no Option and no Argument"
        (about,) = (extra for extra in extras if isinstance(extra, Argument | Option))
        if get_origin(kind) in (Union, types.UnionType):  # X | None: optional
            (kind,) = (one for one in get_args(kind) if one is not type(None))
        several = get_origin(kind) is list
        kind = get_args(kind)[0] if several else kind
        found.append(Parameter(name, kind, several, parameter.default, about))
    return found


class _Help(argparse.RawDescriptionHelpFormatter):
    """argparse's help, with the placeholder of an option once: -o, --output FILE."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        return f"{', '.join(action.option_strings)} {action.metavar}"


class _Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are `InputError`s of one line."""

    def error(self, message: str) -> Any:
        message = message.removeprefix("argument ")
        missing = "the following arguments are required: "
        if message.startswith(missing):
            message = f"{message.removeprefix(missing)} is missing"
        raise InputError(f"{message} (see {self.prog} --help)")


class Commands:
    """The commands of a program. Call it with the words after the program's name to run one."""

    def __init__(self, name: str, about: str, version: str) -> None:
        self.name, self.about, self.version = name, about, version
        self._functions: dict[str, Callable[..., None] | str] = {}
        self._summaries: dict[str, str] = {}

    def add(self, name: str, target: str, summary: str) -> None:
        """Register a command by where it is, "module:function"; it is imported when it runs.

        A name of several words is a subcommand. summary: its line in the list of commands.
        """
        self._functions[name], self._summaries[name] = target, summary

    def command(self, name: str | None = None) -> Callable[[Function], Function]:
        """Register the decorated function as a command."""

        def register(function: Function) -> Function:
            chosen = name or function.__name__
            self._functions[chosen] = function
            self._summaries[chosen] = (inspect.getdoc(function) or "").split("\n")[0]
            return function

        return register

    @property
    def summaries(self) -> dict[str, str]:
        """The line of each command in the list of commands."""
        return dict(self._summaries)

    @property
    def commands(self) -> dict[str, Callable[..., None]]:
        """The function of each command; this imports all of them."""
        return {name: self.function(name) for name in self._functions}

    def function(self, name: str) -> Callable[..., None]:
        """Return the function of a command, imported if necessary."""
        target = self._functions[name]
        if not isinstance(target, str):
            return target
        module, _, attribute = target.partition(":")
        found: Callable[..., None] = getattr(importlib.import_module(module), attribute)
        return found

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
        self.function(name)(**self._values(name, words[len(name.split()) :]))

    def help(self) -> str:
        """Return the list of commands, a line each."""
        width = max(map(len, self._summaries)) + 2
        lines = [f"  {name:{width}}{summary}" for name, summary in self._summaries.items()]
        return "\n".join(
            [
                f"Usage: {self.name} COMMAND [OPTIONS] ...",
                f"\n{self.about}\n",
                "Commands:",
                *lines,
                "\nOptions:",
                "  --version  Print the version.",
                "  --debug    Show the full traceback of an error.",
                f"\n{self.name} COMMAND --help shows the options of a command.",
            ]
        )

    def parser(self, name: str) -> argparse.ArgumentParser:
        """Build the parser of one command."""
        function = self.function(name)
        parameters = parameters_of(function)
        program = f"{self.name} {name}"
        arguments = [p for p in parameters if isinstance(p.about, Argument)]
        parser = _Parser(
            prog=program,
            usage=" ".join([program, "[OPTIONS]", *(p.metavar for p in arguments)]),
            description=inspect.getdoc(function),
            formatter_class=_Help,
            add_help=False,
            allow_abbrev=False,
        )
        if arguments:
            group = parser.add_argument_group("Arguments")
            for parameter in arguments:
                _add_argument(group, parameter)
        group = parser.add_argument_group("Options")
        for parameter in parameters:
            if isinstance(parameter.about, Option):
                _add_option(group, parameter)
        group.add_argument("-h", "--help", action="help", help="Show this help.")
        return parser

    def _chosen(self, words: Sequence[str]) -> str:
        """Return the longest command name that the words begin with."""
        known = list(self._functions)
        fitting = (name for name in known if name.split() == list(words[: len(name.split())]))
        name = max(fitting, key=len, default=None)
        if name is None:
            subcommands = [name for name in known if name.startswith(f"{words[0]} ")]
            if subcommands:
                raise InputError(f"{self.name} {words[0]} needs one of: {', '.join(subcommands)}")
            first = list(dict.fromkeys(name.split()[0] for name in known))
            raise InputError(f"there is no command {words[0]!r}: {nearest(words[0], first)}")
        return name

    def _values(self, name: str, words: Sequence[str]) -> dict[str, Any]:
        parser = self.parser(name)
        values, unknown = parser.parse_known_intermixed_args(list(words))
        if unknown:
            wrong = unknown[0].split("=")[0]
            if wrong.startswith("-"):
                known = [flag for p in parameters_of(self.function(name)) for flag in p.flags]
                hint = nearest(wrong, known) if known else "it has none"
                if FORMER_NAMES.get(wrong) in known:
                    hint = f"it is called {FORMER_NAMES[wrong]} now"
                raise InputError(f"{parser.prog} has no option {wrong}: {hint}")
            raise InputError(f"{wrong!r} is one argument too many (see {parser.prog} --help)")
        return vars(values)


def _add_argument(group: Any, parameter: Parameter) -> None:
    settings: dict[str, Any] = {"type": parameter.read, "help": _escaped(parameter.about.help)}
    if parameter.several:
        settings["nargs"] = "+" if parameter.required else "*"
    elif not parameter.required:
        settings["nargs"] = "?"
    if not parameter.required:
        settings["default"] = parameter.default
    # argparse names an argument by its metavar in errors, and by `dest` in what it returns
    group.add_argument(parameter.name, metavar=parameter.metavar, **settings)


def _add_option(group: Any, parameter: Parameter) -> None:
    about, flags = parameter.about, parameter.flags
    assert isinstance(about, Option)
    settings: dict[str, Any] = {"dest": parameter.name, "help": _escaped(about.help)}
    if parameter.kind is bool:
        on = [flag for flag in flags if not flag.startswith("--no-")]
        off = [flag for flag in flags if flag.startswith("--no-")]
        settings["default"] = parameter.default
        group.add_argument(*on, action="store_true", **settings)
        if off:
            settings["help"] = _escaped(about.help_off or f"The opposite of {on[-1]}.")
            group.add_argument(*off, action="store_false", **settings)
        return
    if parameter.several:
        settings["action"] = "append"
    elif parameter.default not in (None, "", inspect.Parameter.empty):
        settings["help"] += f" [{_escaped(str(parameter.default))}]"
    settings["default"] = None if parameter.required else parameter.default
    settings |= {"type": parameter.read, "metavar": parameter.metavar}
    group.add_argument(*flags, required=parameter.required, **settings)


def _escaped(text: str) -> str:
    return text.replace("%", "%%")  # argparse formats its help
