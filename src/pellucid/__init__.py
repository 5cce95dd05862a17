"""Pellucid: a Transformer you can train, use, serve and see through.

Nothing heavy is imported here; `load` and `Translator` are imported when they are first used.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pellucid.config import Recipe
    from pellucid.translator import Translator as Translator
    from pellucid.translator import load as load

__version__ = "0.1.0.dev0"


def train(
    recipe: Recipe | Path | str,
    *,
    folder: Path | str | None = None,
    resume: bool = False,
    overrides: Sequence[str] = (),
    quiet: bool = False,
) -> Path:
    """Train a model from a recipe; return the folder of the trained model (its bundle).

    recipe: a recipe's TOML file, a `Recipe`, or the folder of a run to resume. folder: folder of
    the run; by default runs/ and the name of the recipe's file. resume: resume from the last
    checkpoint, if there is one. overrides: settings to change, each "section.key=value". quiet:
    print nothing.
    """
    from rich.console import Console

    from pellucid.training.run import train as run

    console = None if quiet else Console(stderr=True)
    return run(recipe, folder=folder, resume=resume, overrides=overrides, console=console)


_FROM_TRANSLATOR = ("Translator", "load")


def __getattr__(name: str) -> Any:
    """Import `pellucid.load` and `pellucid.Translator` when they are first used."""
    if name in _FROM_TRANSLATOR:
        from pellucid import translator

        return getattr(translator, name)
    raise AttributeError(f"module 'pellucid' has no attribute {name!r}")
