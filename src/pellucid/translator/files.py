"""Lines and documents in and out, for the command."""

from __future__ import annotations

import codecs
import os
import select
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pellucid.errors import InputError, PellucidError
from pellucid.text.documents import kind_of, open_document
from pellucid.translator.translation_report import TranslationReport
from pellucid.translator.translator import Translator

LONGEST_LINE = 1 << 24
"""Bytes; a longer line is refused, so that memory stays bounded."""


PATIENCE = 0.02
"""Seconds without new input after which what was read is translated first."""


class LineReader:
    """Lines of a stream of bytes, without their ends; `ended` tells whether the last had one.

    A line ends with a line feed and nothing else, so that lines in are lines out. A byte order
    mark at the start is dropped. Bytes that are not UTF-8 become U+FFFD, and `invalid` counts the
    lines that had some. A None among the lines says that no more are there right now (someone
    types them, or a program writes them as they happen); `paused` is true from then to the next.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.count = 0
        self.invalid = 0
        self.ended = True
        self.paused = False

    def __iter__(self) -> Iterator[str | None]:
        for line in self._lines():
            self.paused = line is None
            if line is None:
                yield None
                continue
            if self.count == 0:
                if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    raise InputError("the input is UTF-16: save it as UTF-8")
                line = line.removeprefix(codecs.BOM_UTF8)
            self.count += 1
            if len(line) > LONGEST_LINE:
                raise InputError(
                    f"line {self.count} is longer than {LONGEST_LINE >> 20} MB: is this text?"
                )
            self.ended = line.endswith(b"\n")
            line = line.removesuffix(b"\n")
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError:
                self.invalid += 1
                yield line.decode("utf-8", "replace")

    def _lines(self) -> Iterator[bytes | None]:
        """Lines with their ends, and None before each wait for more."""
        try:
            handle = self._stream.fileno()
        except OSError:  # it is in memory
            handle = -1
        if handle < 0 or os.name == "nt":  # where pipes cannot be asked whether they have more
            yield from iter(lambda: self._stream.readline(LONGEST_LINE + 1), b"")
            return
        begun = bytearray()
        while True:
            if self.count and not self.paused and not select.select([handle], [], [], PATIENCE)[0]:
                yield None
            read = os.read(handle, 1 << 16)
            *whole, rest = read.split(b"\n")
            for line in whole:
                yield bytes(begun + line) + b"\n"
                begun.clear()
            begun += rest
            if not read or len(begun) > LONGEST_LINE:
                break
        if begun:
            yield bytes(begun)


def place_for(path: Path, language: str) -> Path:
    """Where the translation of a file goes: manual.md becomes manual.fr.md."""
    return path.with_name(f"{path.stem}.{language}{path.suffix}")


def translate_document(
    translator: Translator,
    path: Path,
    output: Path | None = None,
    source: str | None = None,
    target: str | None = None,
    beam_size: int = 4,
    report: TranslationReport | None = None,
) -> Path:
    """Translate a document, keeping everything but its text; the file that was written.

    report: counts what a caller should know.
    """
    way = translator.direction(source, target)
    kind_of(path.name)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"there is no file {path}: check the name") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    document = open_document(data, name=path.name, source=way.source, target=way.target)
    made = list(
        translator.translate_lines(document.texts(), *way, beam_size=beam_size, report=report)
    )
    output = output or place_for(path, way.target)
    if output.exists() and output.samefile(path):
        raise InputError(f"{output} is the file to translate: name another with -o")
    try:
        output.write_bytes(document.rebuilt(made))
    except OSError as error:
        raise PellucidError(f"cannot write {output}: {error.strerror}") from None
    return output
