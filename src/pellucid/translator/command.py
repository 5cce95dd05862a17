"""`pellucid translate` and `pellucid models`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO, cast, get_args

from pellucid.console.options import Argument, Engine, From, Model, Option, To, say
from pellucid.decoding.engine_selection import EngineName
from pellucid.errors import InputError, PellucidError
from pellucid.translator.directions import Direction
from pellucid.translator.loading import installed, load, user_folder
from pellucid.translator.text_io import LineReader, translate_document
from pellucid.translator.translation_report import TranslationReport
from pellucid.translator.translator import Translator


def translate(
    texts: Annotated[
        list[str] | None, Argument(metavar="[TEXT]...", help="Texts to translate.")
    ] = None,
    files: Annotated[
        list[Path] | None,
        Option("--file", help="A document: .txt, .md, .html, .srt, .po, .tmx. Repeatable."),
    ] = None,
    source: From = None,
    target: To = None,
    model: Model = None,
    beam_size: Annotated[
        int, Option(min=1, max=1024, help="Beam size; 1 is greedy, the fastest.")
    ] = 4,
    n_best: Annotated[int, Option(min=1, max=1024, help="Number of outputs for each text.")] = 1,
    engine: Engine = "auto",
    as_json: Annotated[
        bool,
        Option("--json", help="A line of JSON for each text: scores, tokens, alignment."),
    ] = False,
    output: Annotated[
        str | None,
        Option("-o", "--output", help="Output file; with --input, output folder."),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        Option(
            "--input",
            metavar="PATTERN",
            help="In bulk: files to translate (.txt, .jsonl, .parquet). Repeatable.",
        ),
    ] = None,
    column: Annotated[str, Option(help="With --input: name of the column to translate.")] = "text",
    into: Annotated[
        str | None,
        Option(
            help="With --input: name of the column for the translation; if unset, it replaces the "
            "text."
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        Option(
            metavar="local|ADDRESS", help="With --input: run on Ray, on this machine or a cluster."
        ),
    ] = None,
    workers: Annotated[
        str | None,
        Option(metavar="N|MIN:MAX", help="With --cluster: number of workers; if unset, all cores."),
    ] = None,
) -> None:
    """Translate texts, the lines of standard input, or documents; or files in bulk.

    Lines in are lines out. A document keeps everything but its text and is written to
    NAME.LANGUAGE.ENDING, or to -o.

    In bulk, the folder -o gets a file for each input file, in which all but the text is kept. A
    run that was stopped is resumed by the same command:

    pellucid translate --input 'in/*.jsonl.gz' -o out --column text --cluster local
    """
    texts, files = texts or [], files or []
    _check(texts, files, as_json, n_best, output, inputs)
    if engine not in get_args(EngineName):
        raise InputError(f"unknown engine {engine!r}: choose auto, ct2 or torch")
    chosen = cast(EngineName, engine)
    if inputs:
        from pellucid.bulk.translate_files import translate_files

        translate_files(
            inputs,
            output,
            model=model,
            languages=(source, target),
            beam_size=beam_size,
            engine=chosen,
            columns=(column, into),
            cluster=cluster,
            workers=workers,
            as_json=as_json,
        )
        return
    if cluster or workers or into:
        raise InputError("--cluster, --workers and --into are for files in bulk: name --input")
    translator = load(model, chosen)
    direction = translator.direction(source, target)
    written = Path(output) if output else None
    if files:
        _translate_documents(translator, files, written, direction, beam_size)
    else:
        _translate_lines(translator, texts, written, direction, beam_size, n_best, as_json)


def models() -> None:
    """List the models that are installed."""
    found = installed()
    for one in found:
        what = f"cannot be used: {one.trouble}" if one.trouble else ", ".join(one.directions)
        say(f"{one.name}\t{what}\t{one.folder}")
    if not found:
        say(
            f"no model is installed: put the folder of one into {user_folder()}, or name it with "
            "--model",
            error=True,
        )


def _check(
    texts: Sequence[str],
    files: Sequence[Path],
    as_json: bool,
    n_best: int,
    output: str | None,
    inputs: Sequence[str] | None,
) -> None:
    """Reject options that exclude each other."""
    if inputs and (texts or files or n_best > 1):
        raise InputError(
            "--input takes no texts, no --file and no --n-best (is its pattern in quotes?)"
        )
    if texts and files:
        raise InputError("give texts or --file, not both")
    if files and (as_json or n_best > 1):
        raise InputError("--json and --n-best are for texts and lines, not for documents")
    if output is not None and len(files) > 1:
        raise InputError(f"-o names one file, and there are {len(files)}: leave it out")


def _translate_documents(
    translator: Translator,
    files: Sequence[Path],
    output: Path | None,
    direction: Direction,
    beam_size: int,
) -> None:
    report = TranslationReport()
    for path in files:
        made = translate_document(
            translator, path, output, *direction, beam_size=beam_size, report=report
        )
        say(f"{path} -> {made}", error=True)
    _print_report(report, 0)


def _translate_lines(
    translator: Translator,
    texts: Sequence[str],
    output: Path | None,
    direction: Direction,
    beam_size: int,
    n_best: int,
    as_json: bool,
) -> None:
    """Translate texts, or the lines of standard input if there are none."""
    report = TranslationReport()
    reader = None if texts else LineReader(sys.stdin.buffer)
    lines: Iterable[str | None] = texts if reader is None else reader
    options: dict[str, Any] = {
        "source": direction.source,
        "target": direction.target,
        "beam_size": beam_size,
    }
    if as_json or n_best > 1:
        made_lines = _detailed(translator, lines, n_best, as_json, options, report)
    else:
        made_lines = translator.translate_lines(lines, report=report, **options)
    many = reader is not None and not sys.stdin.isatty()
    try:
        with _output(output) as out, _bar(many, made_lines) as shown:
            _write(shown, out, reader, 1 if as_json else n_best)
    except BrokenPipeError:
        # The reader of our output has gone (`pellucid ... | head`): enough was translated. Python
        # would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    _print_report(report, reader.invalid if reader else 0)


def _write(lines: Iterator[str], out: BinaryIO, reader: LineReader | None, each: int) -> None:
    """Write lines as they come, `each` per line read; the last ends as the last of the input."""
    for number, line in enumerate(lines, 1):
        out.write(line.encode("utf-8", "replace"))
        if reader is None or reader.ended or number < reader.count * each:
            out.write(b"\n")
        if number % 32 == 0 or (reader is not None and reader.paused):
            out.flush()
    out.flush()


def _detailed(
    translator: Translator,
    lines: Iterable[str | None],
    n_best: int,
    as_json: bool,
    options: dict[str, Any],
    report: TranslationReport,
) -> Iterator[str]:
    """Yield a line of JSON for each text, or its n best outputs, padded with empty lines."""
    if as_json:
        options = {**options, "attention": True, "token_log_probabilities": True}
    window: list[str] = []

    def flushed() -> Iterator[str]:
        for made in translator.translate(window, n_best=n_best, **options):
            report.add_translation(made)
            if as_json:
                yield json.dumps(made.as_dict(), ensure_ascii=False)
            else:
                yield from made.n_best
                yield from [""] * (n_best - len(made.n_best))
        window.clear()

    for line in lines:
        if line is not None:
            window.append(line)
        if line is None or len(window) == 64:
            yield from flushed()
    yield from flushed()


@contextmanager
def _output(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        yield sys.stdout.buffer
        return
    try:
        with path.open("wb") as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        raise PellucidError(f"cannot write {path}: {error.strerror}") from None


@contextmanager
def _bar(wanted: bool, lines: Iterator[str]) -> Iterator[Iterator[str]]:
    """Yield the lines, with a progress bar if standard input is a file or a pipe."""
    if not wanted or not sys.stderr.isatty() or sys.stdout.isatty():
        yield lines
        return
    from rich.console import Console

    from pellucid.console.progress import Progress

    with Progress(Console(stderr=True)) as progress:
        step = progress.step("translating", "lines")

        def counted() -> Iterator[str]:
            for line in lines:
                step.advance(1)
                yield line

        yield counted()


def _print_report(report: TranslationReport, invalid: int) -> None:
    """Print what the user should know, to standard error."""
    notes = [
        ("over-long sentences, translated in parts", report.split),
        ("sentences translated around an address, a number or the like", report.rescued),
        ("translations cut at the maximum length", report.cut),
        ("lines with bytes that are not UTF-8 (now U+FFFD)", invalid),
    ]
    for what, count in notes:
        if count:
            say(f"pellucid: {what}: {count:,}", error=True)
