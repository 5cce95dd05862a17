"""Options are read as they are written down, and mistakes get one line that says what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest

from pellucid.cli.main import app as pellucid
from pellucid.cli.parser import Commands, parameters_of
from pellucid.console.options import Argument, Option
from pellucid.errors import InputError

seen: dict[str, Any] = {}
app = Commands("tool", "A tool.", version="3")


@app.command()
def paint(
    things: Annotated[list[str] | None, Argument(metavar="[THING]...", help="What.")] = None,
    colour: Annotated[str, Option("-c", "--colour", help="Which, 100% sure.")] = "red",
    coats: Annotated[int, Option(min=1, max=3, help="How many.")] = 2,
    thin: Annotated[float | None, Option(min=0.5)] = None,
    into: Annotated[list[Path] | None, Option("--into", help="Where. Repeatable.")] = None,
    dry: Annotated[bool, Option("--dry/--no-dry", help="Wait.")] = True,
    loud: Annotated[bool, Option("--loud", help="Say so.")] = False,
) -> None:
    """Paint things.

    In colours.
    """
    seen.update(locals())


@app.command("paint over")
def over(thing: Annotated[Path, Argument(help="What.")], with_: Annotated[str, Option("--with")]):  # type: ignore[no-untyped-def]
    """Paint it again."""
    seen.update(thing=thing, with_=with_)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    seen.clear()


def test_defaults() -> None:
    app(["paint"])
    assert not seen.pop("things")
    assert seen == {
        "colour": "red", "coats": 2, "thin": None, "into": None, "dry": True, "loud": False,
    }  # fmt: skip


def test_in_any_order() -> None:
    app(["paint", "wall", "-c", "blue", "door", "--coats=3", "--into", "a", "--into=b",
         "--no-dry", "--thin", "0.5", "--loud", "--", "--gate"])  # fmt: skip
    assert seen["things"] == ["wall", "door", "--gate"]
    assert seen["into"] == [Path("a"), Path("b")]
    assert (seen["colour"], seen["coats"], seen["thin"]) == ("blue", 3, 0.5)
    assert (seen["dry"], seen["loud"]) == (False, True)


def test_the_longest_name_wins() -> None:
    app(["paint", "over", "x", "--with", "green"])
    assert seen == {"thing": Path("x"), "with_": "green"}
    app(["paint", "wall", "over"])
    assert seen["things"] == ["wall", "over"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pint"], r"no command 'pint': did you mean 'paint'\?"),
        (["paint", "--color", "x"], r"tool paint has no option --color: did you mean '--colour'\?"),
        (["paint", "--coats", "4"], r"--coats: 4 .* from 1 to 3 \(see tool paint --help\)"),
        (["paint", "--coats", "many"], r"--coats: 'many' is not a whole number"),
        (["paint", "--thin", "nan"], r"--thin: nan is outside"),
        (["paint", "--colour"], r"--colour: expected one argument"),
        (["paint", "--col", "blue"], r"no option --col"),
        (["paint", "over", "x"], r"--with is missing \(see tool paint over --help\)"),
        (["paint", "over", "--with", "x"], r"THING is missing"),
        (["paint", "over", "x", "y", "--with", "x"], r"'y' is one argument too many"),
    ],
)
def test_mistakes(words: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        app(words)
    assert not seen


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    app(["--help"])
    assert "paint over  Paint it again." in capsys.readouterr().out
    with pytest.raises(SystemExit) as end:
        app(["paint", "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    for part in ("In colours.", "-c, --colour NAME", "Which, 100% sure. [red]", "--no-dry"):
        assert part in text
    app(["--version"])
    assert capsys.readouterr().out == "tool 3\n"


def test_nothing_is_a_question(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        app([])
    assert end.value.code == 2
    assert "Commands:" in capsys.readouterr().out


@pytest.mark.parametrize("name", pellucid.summaries)
def test_every_command_of_ours_explains_itself(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    function = pellucid.function(name)
    assert (function.__doc__ or "").split("\n")[0] == pellucid.summaries[name]
    for parameter in parameters_of(function):
        assert parameter.about.help, (name, parameter.name)
    with pytest.raises(SystemExit):
        pellucid([*name.split(), "--help"])
    assert f"usage: pellucid {name}" in capsys.readouterr().out


def test_the_help_imports_no_room() -> None:
    code = (
        "import sys; from pellucid.cli.main import app; app(['--help'])\n"
        "rooms = {m.split('.')[1] for m in sys.modules if m.startswith('pellucid.')}\n"
        "print(rooms - {'cli', 'console', 'errors'}, file=sys.stderr)\n"
        "heavy = {'torch', 'pydantic', 'fastapi', 'ctranslate2', 'numpy', 'rich'}\n"
        "print(heavy & set(sys.modules), file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stderr.split() == ["set()", "set()"]


@pytest.mark.parametrize(
    ("words", "new"),
    [
        (["translate", "--beam", "4", "x"], "--beam-size"),
        (["look", "x", "-o", "x.svg", "--beam", "4"], "--beam-size"),
        (["evaluate", "m", "--beam", "4"], "--beam-size"),
        (["serve", "--characters", "9"], "--char-limit"),
        (["serve", "--texts", "9"], "--batch-limit"),
        (["serve", "--per-minute", "9"], "--req-limit"),
        (["serve", "--seconds", "9"], "--timeout"),
        (["serve", "--grace", "9"], "--graceful-timeout"),
        (["serve", "keys", "add", "x", "--per-minute", "9"], "--req-limit"),
    ],
)
def test_an_old_option_names_the_new_one(words: list[str], new: str) -> None:
    with pytest.raises(InputError, match=f"has no option --.*{new}"):
        pellucid(words)
