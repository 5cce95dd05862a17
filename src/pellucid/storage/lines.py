"""Reading files of any compression, line by line, so that parallel files stay aligned."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pellucid.errors import InputError, MissingExtraError, PellucidError

if TYPE_CHECKING:
    import zstandard

    # io.RawIOBase.readinto takes any writable buffer
    from _typeshed import WriteableBuffer

BUFFER = 1 << 18

LINE_LIMIT = 1 << 20
"""A longer line (in bytes) is not a sentence; it is skipped, so that memory stays bounded."""

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


class _ZstdFile(io.RawIOBase):
    """The decompressed content of a zstd file. Unlike zstandard's own reader, it detects a
    truncated file, and continues across frames."""

    # Read little at a time, since a few bytes can decompress to a great many.
    PACKED = 4096

    def __init__(self, file: IO[bytes]) -> None:
        try:
            import zstandard
        except ImportError:
            raise MissingExtraError("reading .zst files", "train") from None

        self._file = file
        self._error = zstandard.ZstdError
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._packed = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        while not self._ready:
            self._packed = self._packed or self._file.read(self.PACKED)
            if not self._packed:
                if self._frame is not None:
                    raise EOFError("it is truncated")
                return 0
            self._unpack()
        view = memoryview(buffer).cast("B")
        count = min(len(view), len(self._ready))
        view[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _unpack(self) -> None:
        frame = self._frame or self._decompressor.decompressobj()
        try:
            self._ready = memoryview(frame.decompress(self._packed))
        except self._error as error:
            raise OSError(error) from None
        self._packed = frame.unused_data if frame.eof else b""
        self._frame = None if frame.eof else frame


@contextmanager
def open_bytes(path: Path) -> Iterator[io.BufferedReader]:
    """Open a file for reading bytes, decompressed if its content is gzip or zstd.

    A file that is missing or cannot be opened is an `InputError`; one found damaged while it is
    read is a `PellucidError`.
    """
    try:
        with path.open("rb") as file:
            start = file.peek(4)[:4]
            if start.startswith(_GZIP):
                yield io.BufferedReader(gzip.GzipFile(fileobj=file), BUFFER)
            elif start == _ZSTD:
                yield io.BufferedReader(_ZstdFile(file), BUFFER)
            elif path.suffix in (".gz", ".zst"):
                raise PellucidError(
                    f"{path} is not {'gzip' if path.suffix == '.gz' else 'zstd'}, as its name says"
                    f"{'' if start else ', but empty'}: get the file again, or rename it"
                )
            else:
                yield file
    except FileNotFoundError:
        raise InputError(f"there is no file {path}: check the name") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder: name a file in it") from None
    except PermissionError:
        raise InputError(f"{path} cannot be read: check its permissions") from None
    except (EOFError, zlib.error, OSError) as error:
        raise PellucidError(f"{path} is damaged ({error}): get the file again") from None


def read_lines(path: Path) -> Iterator[str | None]:
    """Yield the lines of a UTF-8 file without their line ends, in constant memory.

    Only a line feed ends a line (a carriage return before it is dropped, as is a byte order mark
    at the start of the file); the last line may lack it. Bytes that are not UTF-8 become U+FFFD.
    A line longer than `LINE_LIMIT` bytes is yielded as None.
    """
    with open_bytes(path) as file:
        first = True
        while line := file.readline(LINE_LIMIT):
            if first:
                first = False
                if line.startswith(_UTF16):
                    raise InputError(f"{path} is UTF-16: save it as UTF-8")
                line = line.removeprefix(_BOM)
            if len(line) >= LINE_LIMIT and not line.endswith(b"\n"):
                while rest := file.readline(LINE_LIMIT):
                    if rest.endswith(b"\n"):
                        break
                yield None
                continue
            yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")
