"""`pellucid import` and `pellucid export`: where a model comes from, and where it goes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pellucid.bundle import Bundle
from pellucid.errors import InputError
from pellucid.exchange import hub
from pellucid.exchange.exporting import export_model
from pellucid.exchange.importing import import_model


def run_import(model: str, output: Path | None, directions: Sequence[str], models: Path) -> Bundle:
    """Import a folder or a public model; without `output`, into the folder of the user's models."""
    path = Path(model).expanduser()
    if path.is_dir():
        return import_model(path, output or models / path.absolute().name, directions=directions)
    named = hub.parse_name(model)
    if named is None:
        raise InputError(
            f"no folder {model!r}, and no name of a public model, which is written like "
            "Helsinki-NLP/opus-mt-fr-en"
        )
    if output is None:
        return hub.install(named, models, directions=directions, again=True)
    found = hub.fetch(named)
    return import_model(
        found.folder, output, directions=directions, name=named.name, revision=found.commit
    )


def run_export(
    bundle: Bundle, output: Path, form: str, quantization: str, about: Path | None
) -> Path:
    """Export a bundle; `about` is a file with what a person should know of it."""
    text = None
    if about is not None:
        try:
            text = about.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read {about}: {error}") from None
    return export_model(bundle, output, form, quantization, text)
