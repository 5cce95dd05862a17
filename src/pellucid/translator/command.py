"""`pellucid translate`: where texts come from, where translations go, what is said about it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from pellucid.decoding.engine_selection import EngineName
from pellucid.errors import InputError, PellucidError
from pellucid.translator.files import LineReader, translate_document
from pellucid.translator.loading import load
from pellucid.translator.translation_report import TranslationReport
from pellucid.translator.translator import Translator


def run_translate(
    texts: Sequence[str],
    files: Sequence[Path],
    *,
    source: str | None,
    target: str | None,
    model: str | None,
    beam_size: int,
    n_best: int,
    engine: str,
    as_json: bool,
    output: Path | None,
) -> None:
    """Translate texts, documents, or the lines of standard input."""
    if texts and files:
        raise InputError("give texts or --file, not both")
    if files and (as_json or n_best > 1):
        raise InputError("--json and --n-best are for texts and lines, not for documents")
    if output is not None and len(files) > 1:
        raise InputError(f"-o names one file, and there are {len(files)}: leave it out")
    if engine not in ("auto", "ct2", "torch"):
        raise InputError(f"unknown engine {engine!r}: choose auto, ct2 or torch")
    translator = load(model, cast(EngineName, engine))
    way = translator.direction(source, target)
    report = TranslationReport()
    if files:
        for path in files:
            made = translate_document(
                translator, path, output, *way, beam_size=beam_size, report=report
            )
            print(f"{path} -> {made}", file=sys.stderr)
        _tell(report, 0)
        return
    reader = None if texts else LineReader(sys.stdin.buffer)
    lines: Iterable[str | None] = texts if reader is None else reader
    options: dict[str, Any] = {"source": way.source, "target": way.target, "beam": beam_size}
    if as_json or n_best > 1:
        made_lines = _detailed(translator, lines, n_best, as_json, options, report)
    else:
        made_lines = translator.translate_lines(lines, report=report, **options)
    many = reader is not None and not sys.stdin.isatty()
    try:
        with _output(output) as out, _bar(many, made_lines) as shown:
            _write(shown, out, reader, 1 if as_json else n_best)
    except BrokenPipeError:
        # Who read our output has gone (`pellucid ... | head`): enough was translated. Python would
        # complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    _tell(report, reader.invalid if reader else 0)


def _write(lines: Iterator[str], out: BinaryIO, reader: LineReader | None, each: int) -> None:
    """Lines as they come, so many for each read; the last ends as the last of the input did."""
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
    """A line of JSON for each text, or n lines: its best outputs, and empty if fewer differ."""
    if as_json:
        options = {**options, "attention": True, "token_log_probabilities": True}
    window: list[str] = []

    def flushed() -> Iterator[str]:
        for made in translator.translate(window, n_best=n_best, **options):
            report.count(made)
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
    """The lines, counted on the terminal once there are many of them."""
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


def _tell(report: TranslationReport, invalid: int) -> None:
    """What a person should know, on standard error."""
    told = [
        ("over-long sentences, translated in parts", report.split),
        ("sentences translated around an address, a number or the like", report.rescued),
        ("translations cut at the longest allowed length", report.cut),
        ("lines with bytes that are not UTF-8 (now U+FFFD)", invalid),
    ]
    for what, count in told:
        if count:
            print(f"pellucid: {what}: {count:,}", file=sys.stderr)
