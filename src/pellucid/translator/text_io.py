"""Input and output of the command: lines of a stream, documents."""

from __future__ import annotations

import codecs
import os
import select
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pellucid.errors import InputError, PellucidError
from pellucid.storage.files import write_atomic
from pellucid.text.documents import kind_of, open_document
from pellucid.translator.translation_report import TranslationReport
from pellucid.translator.translator import Translator

LONGEST_LINE = 1 << 24
"""Bytes of a line; a longer one is refused, so that memory stays bounded."""

IDLE = 0.02
"""Seconds without new input after which the lines read so far are translated first."""


class LineReader:
    """Yields the lines of a byte stream without their line feeds; `ended`: the last line had one.

    A line ends with a line feed and nothing else, so that lines in are lines out. A byte order
    mark at the start is dropped. Bytes that are not UTF-8 become U+FFFD, and `invalid` counts the
    lines that had some. A None among the lines means that no more are available right now (someone
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
        """Yield lines with their line feeds, and None before each wait for more."""
        try:
            handle = self._stream.fileno()
        except OSError:  # a stream in memory
            handle = -1
        if handle < 0 or os.name == "nt":  # where pipes cannot be asked whether they have more
            yield from iter(lambda: self._stream.readline(LONGEST_LINE + 1), b"")
            return
        partial = bytearray()
        while True:
            if self.count and not self.paused and not select.select([handle], [], [], IDLE)[0]:
                yield None
            read = os.read(handle, 1 << 16)
            *whole, rest = read.split(b"\n")
            for line in whole:
                yield bytes(partial + line) + b"\n"
                partial.clear()
            partial += rest
            if not read or len(partial) > LONGEST_LINE:
                break
        if partial:
            yield bytes(partial)


def translated_path(path: Path, language: str) -> Path:
    """Return the path for the translation of a file: manual.md becomes manual.fr.md."""
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
    """Translate a document, keeping everything but its text; return the file that was written.

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
    translations = list(
        translator.translate_lines(document.texts(), *way, beam_size=beam_size, report=report)
    )
    output = output or translated_path(path, way.target)
    if output.exists() and output.samefile(path):
        raise InputError(f"{output} is the file to translate: name another with -o")
    try:
        write_atomic(output, document.rebuilt(translations))
    except OSError as error:
        raise PellucidError(f"cannot write {output}: {error.strerror}") from None
    return output
