"""`pellucid evaluate`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

from pellucid.console.options import Argument, Engine, Option, say
from pellucid.errors import InputError, PellucidError
from pellucid.evaluation.results import Evaluation
from pellucid.storage.files import write_atomic


def evaluate(
    model: Annotated[
        str,
        Argument(metavar="MODEL", help="A model (name or folder), or a file of translations."),
    ],
    source: Annotated[
        Path | None, Option(metavar="FILE", help="Source sentences, one a line.")
    ] = None,
    references: Annotated[
        list[Path] | None,
        Option("--reference", metavar="FILE", help="Reference translations. Repeatable."),
    ] = None,
    pairs: Annotated[
        Path | None,
        Option(metavar="FILE", help="Both sides in one file: .tsv, .jsonl, .tmx, .po."),
    ] = None,
    languages: Annotated[
        str | None, Option(metavar="A,B", help="Languages of --pairs, in order.")
    ] = None,
    source_language: Annotated[str | None, Option("--from", help="Source language.")] = None,
    target_language: Annotated[str | None, Option("--to", help="Target language.")] = None,
    against: Annotated[
        list[str] | None,
        Option(metavar="MODEL|FILE", help="Another system to compare with. Repeatable."),
    ] = None,
    train: Annotated[
        list[Path] | None,
        Option(metavar="FILE", help="Training data, searched for test sentences. Repeatable."),
    ] = None,
    beam_size: Annotated[
        int, Option(min=1, max=1024, help="Beam size; 1 is greedy, the fastest.")
    ] = 4,
    engine: Engine = "auto",
    tokenize: Annotated[
        str | None,
        Option(metavar="NAME", help="sacreBLEU's tokenizer for BLEU; if unset, by language: 13a."),
    ] = None,
    lowercase: Annotated[bool, Option("--lowercase", help="Lowercase for BLEU and chrF.")] = False,
    chrf_words: Annotated[
        int, Option(min=0, max=2, help="Word n-gram order of chrF; 2 is chrF++.")
    ] = 0,
    ter: Annotated[
        bool,
        Option(
            "--ter/--no-ter",
            help="Compute TER.",
            help_off="Skip TER, which is slow for lines of many words.",
        ),
    ] = True,
    resamples: Annotated[
        int, Option(min=0, help="Bootstrap resamples; 0: no intervals and no p-values.")
    ] = 1000,
    seed: Annotated[int, Option(min=1, help="Random seed of the bootstrap.")] = 12345,
    comet: Annotated[
        Path | None, Option(metavar="CKPT", help="A COMET checkpoint that you have.")
    ] = None,
    examples: Annotated[int, Option(min=0, help="Sentences of each kind in report.html.")] = 20,
    save: Annotated[
        Path | None, Option(metavar="FILE", help="Write the translations to this file.")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print everything as JSON.")] = False,
    output: Annotated[
        Path | None,
        Option("-o", "--output", metavar="FILE", help="Write a report too: .html or .json."),
    ] = None,
) -> None:
    """Evaluate translations: BLEU, chrF and TER, and which sentences are worth a look.

    The scores are sacreBLEU's, with their signatures. With --against, also whether the difference
    could be chance:

    pellucid evaluate runs/toy/bundle --source test.fr --reference test.en --against other.en
    """
    from rich.console import Console

    from pellucid.console.formatting import sanitize_line
    from pellucid.console.progress import Progress
    from pellucid.evaluation.evaluate import evaluate as run

    if output is not None and output.suffix.lower() not in (".html", ".htm", ".json"):
        raise InputError(f"-o {output}: name a file that ends in .html or .json")
    read = {Path(path).resolve() for path in (model, *(references or []), source) if path}
    for path in (output, save):
        if path is not None:
            _check_writable(path, read)
    with Progress(Console(stderr=True)) as progress:
        found = run(
            model,
            source=source,
            references=references or [],
            pairs=pairs,
            languages=_languages(languages),
            source_language=source_language,
            target_language=target_language,
            against=against or [],
            train=train or [],
            beam_size=beam_size,
            engine=engine,
            tokenize=tokenize,
            lowercase=lowercase,
            chrf_words=chrf_words,
            ter=ter,
            resamples=resamples,
            seed=seed,
            comet=comet,
            progress=progress,
        )
    for line in found.warnings:
        say(f"pellucid: note: {sanitize_line(line)}", error=True)
    if save is not None:
        _save(save, found)
    if output is not None:
        _write(output, found, examples)
    _print(found, as_json)


def _print(found: Evaluation, as_json: bool) -> None:
    from pellucid.evaluation.report.tables import show

    try:
        if as_json:
            say(_json(found))
        else:
            show(found)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output has gone (`pellucid ... | head`). Python would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _languages(given: str | None) -> tuple[str, str] | None:
    if given is None:
        return None
    parts = [part.strip() for part in given.split(",")]
    if len(parts) != 2 or not all(parts):
        raise InputError(f"--languages {given}: name two with a comma between, e.g. en,fr")
    return parts[0], parts[1]


def _check_writable(path: Path, read: set[Path]) -> None:
    """Check it now, and not after an hour of translating."""
    if path.is_dir():
        raise InputError(f"{path} is a folder: name a file in it")
    if path.resolve() in read:
        raise InputError(f"{path} is an input file: name another to write")
    folder = path.parent
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder} to write {path.name} into: make it first")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise InputError(f"{path} may not be written: check its permissions")


def _save(path: Path, found: Evaluation) -> None:
    """Write the translations of the first system, one a line; line breaks inside become spaces."""
    lines = (text.replace("\n", " ") for text in found.systems[0].output.texts)
    try:
        write_atomic(path, "".join(f"{line}\n" for line in lines))
    except OSError as error:
        raise PellucidError(f"cannot write {path}: {error.strerror}") from None


def _write(path: Path, found: Evaluation, examples: int) -> None:
    from pellucid.drawing.report_page import write_page

    if path.suffix.lower() == ".json":
        write_page(path, _json(found) + "\n")
        return
    from pellucid.evaluation.report.html_report import report

    write_page(path, report(found, examples))


def _json(found: Evaluation) -> str:
    return json.dumps(found.to_dict(), ensure_ascii=False, indent=1)
