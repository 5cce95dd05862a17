"""`pellucid evaluate`: what is checked first, and where the result goes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from pellucid.console.progress import Progress
from pellucid.drawing.page import write_page
from pellucid.errors import InputError, PellucidError
from pellucid.evaluation.evaluate import evaluate
from pellucid.evaluation.report.tables import show
from pellucid.evaluation.results import Evaluation
from pellucid.training.callbacks.formatting import harmless


def run_evaluate(
    model: str,
    *,
    references: Sequence[Path],
    languages: str | None,
    as_json: bool,
    output: Path | None,
    save: Path | None,
    examples: int,
    **settings: Any,
) -> None:
    """Judge a model, print what was found, and write what was asked for.

    settings: further arguments of `evaluate`.
    """
    if output is not None and output.suffix.lower() not in (".html", ".htm", ".json"):
        raise InputError(f"-o {output}: name a file that ends in .html or .json")
    read = {Path(p).resolve() for p in (model, *references, settings.get("source")) if p}
    for path in (output, save):
        if path is not None:
            _check_writable(path, read)
    with Progress(Console(stderr=True)) as progress:
        found = evaluate(
            model,
            references=list(references),
            languages=_languages(languages),
            progress=progress,
            **settings,
        )
    for line in found.cautions:
        print(f"pellucid: note: {harmless(line)}", file=sys.stderr)
    if save is not None:
        _save(save, found)
    if output is not None:
        _write(output, found, examples)
    try:
        if as_json:
            print(_json(found))
        else:
            show(found)
        sys.stdout.flush()
    except BrokenPipeError:
        # Who read our output has gone (`pellucid ... | head`). Python would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _languages(given: str | None) -> tuple[str, str] | None:
    if given is None:
        return None
    parts = [part.strip() for part in given.split(",")]
    if len(parts) != 2 or not all(parts):
        raise InputError(f"--languages {given}: name two with a comma between, e.g. en,fr")
    return parts[0], parts[1]


def _check_writable(path: Path, read: set[Path]) -> None:
    """Now, and not after an hour of translating."""
    if path.is_dir():
        raise InputError(f"{path} is a folder: name a file in it")
    if path.resolve() in read:
        raise InputError(f"{path} is a file to be read: name another to write")
    folder = path.parent
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder} to write {path.name} into: make it first")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise InputError(f"{path} may not be written: check its permissions")


def _save(path: Path, found: Evaluation) -> None:
    """The translations of the first system, a line each, whatever breaks they have in them."""
    lines = (text.replace("\n", " ") for text in found.systems[0].system.texts)
    try:
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    except OSError as error:
        raise PellucidError(f"cannot write {path}: {error.strerror}") from None


def _write(path: Path, found: Evaluation, examples: int) -> None:
    if path.suffix.lower() == ".json":
        write_page(path, _json(found) + "\n")
        return
    from pellucid.evaluation.report.html_report import report

    write_page(path, report(found, examples))


def _json(found: Evaluation) -> str:
    return json.dumps(found.to_dict(), ensure_ascii=False, indent=1)
