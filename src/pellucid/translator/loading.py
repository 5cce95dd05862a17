"""Installed models, and loading one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pellucid.bundle import MANIFEST, Bundle
from pellucid.decoding.engine_selection import EngineName, open_engine
from pellucid.errors import InputError, PellucidError
from pellucid.translator.translator import Translator

EMBEDDED = Path(__file__).parents[1] / "models"
"""Folder of the models that came with the package."""


def user_folder() -> Path:
    """Return the folder of the user's models: PELLUCID_MODELS, or one in the home directory."""
    given = os.environ.get("PELLUCID_MODELS")
    if given:
        return Path(given).expanduser()
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else Path.home() / ".local" / "share") / "pellucid" / "models"


@dataclass(frozen=True)
class Installed:
    """A model that `load` finds by its name."""

    name: str
    folder: Path
    directions: tuple[str, ...]
    trouble: str = ""
    """Why it cannot be used, if it cannot."""


def installed() -> list[Installed]:
    """Return the models that came with the package and those in the user's folder, by name."""
    found = {}
    for place in (user_folder(), EMBEDDED):
        for folder in sorted(place.iterdir()) if place.is_dir() else ():
            if not (folder / MANIFEST).is_file():
                continue
            try:
                directions = Bundle.open(folder, lazily=True).directions
                found[folder.name] = Installed(folder.name, folder, directions)
            except PellucidError as error:
                found[folder.name] = Installed(folder.name, folder, (), str(error))
    return [found[name] for name in sorted(found)]


def load(
    model: str | Path | None = None, engine: EngineName = "auto", *, threads: int | None = None
) -> Translator:
    """Load a translator for a model: its name, its folder, or None for the one that is installed.

    A name like "Helsinki-NLP/opus-mt-fr-en" is a public model, which is downloaded the first time.
    engine: "ct2" (CTranslate2, fast), "torch" (the reference), or "auto": ct2 where it can, torch
    where it must. threads: number of cores that ct2 uses (default: all).
    """
    bundle = open_bundle(model)
    return Translator(bundle, open_engine(bundle, engine, threads))


def open_bundle(model: str | Path | None = None) -> Bundle:
    """Open the bundle of a model: its name, its folder, or None for the one that is installed."""
    return Bundle.open(_folder(model), lazily=True)


def _folder(model: str | Path | None) -> Path:
    if model is not None:
        path = Path(model).expanduser()
        if path.is_dir():
            if (path / "config.json").is_file() and not (path / MANIFEST).is_file():
                raise InputError(f"{path} is not a model of Pellucid: pellucid import {path}")
            return path
        for place in (user_folder(), EMBEDDED):
            if path.name == str(model) and (place / path.name / MANIFEST).is_file():
                return place / path.name
        from pellucid.exchange.hub import install, parse_name  # only where a name is no folder

        public = parse_name(str(model))
        if public is not None:
            return install(public, user_folder()).folder
        names = ", ".join(one.name for one in installed()) or "none"
        raise InputError(f"no model {str(model)!r}: it is no folder, and installed are: {names}")
    for place in (EMBEDDED, user_folder()):
        for folder in sorted(place.iterdir()) if place.is_dir() else ():
            if (folder / MANIFEST).is_file():
                return folder
    raise InputError(
        "no model is installed: train one (pellucid train RECIPE.toml) and name its folder with "
        f"--model, or put it into {user_folder()}"
    )
