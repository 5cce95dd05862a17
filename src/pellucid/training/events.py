"""TensorBoard event files, written by hand: scalars and texts, and no dependency.

A file is a row of records (TFRecord): the length, its checksum, the message, its checksum. The
checksum is CRC-32C, "masked". The message is a protocol buffer `Event`; the few fields in use:

    Event    1 wall_time double · 2 step int64 · 3 file_version string · 5 summary · 7 session_log
    Summary  1 value, repeated: 1 tag · 2 simple_value float · 8 tensor · 9 metadata
    Tensor   1 dtype (7: string) · 2 shape (2 dim (1 size)) · 8 string_val, repeated
    Metadata 1 plugin_data (1 plugin_name)
    SessionLog  1 status (1: start): later events win over earlier ones from this step on
"""

from __future__ import annotations

import math
import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from pellucid.errors import PellucidError
from pellucid.training.watching import StepReport, ValidationReport, perplexity

EVENTS = "events"


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """CRC-32 with Castagnoli's polynomial."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    """The checksum as TFRecord files have it: turned, and moved by a constant."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(message: bytes) -> bytes:
    """A message as a TFRecord."""
    length = struct.pack("<Q", len(message))
    return b"".join(
        (
            length,
            struct.pack("<I", masked_crc32c(length)),
            message,
            struct.pack("<I", masked_crc32c(message)),
        )
    )


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def _int(field: int, number: int) -> bytes:
    return _varint(field << 3) + _varint(number)


def _double(field: int, number: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", number)


def _float(field: int, number: float) -> bytes:
    try:
        return _varint(field << 3 | 5) + struct.pack("<f", number)
    except OverflowError:  # more than float32 can hold
        return _varint(field << 3 | 5) + struct.pack("<f", math.copysign(math.inf, number))


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def scalar(tag: str, value: float) -> bytes:
    """A summary value: one number."""
    return _bytes(1, tag.encode()) + _float(2, value)


def text(tag: str, value: str) -> bytes:
    """A summary value: a text (Markdown) for TensorBoard's text page."""
    shape = _bytes(2, _int(1, 1))
    tensor = _int(1, 7) + _bytes(2, shape) + _bytes(8, value.encode("utf-8", "replace"))
    metadata = _bytes(1, _bytes(1, b"text"))
    return _bytes(1, tag.encode()) + _bytes(8, tensor) + _bytes(9, metadata)


def event(step: int, values: list[bytes], wall_time: float) -> bytes:
    """An `Event` with a summary of these values."""
    summary = b"".join(_bytes(1, value) for value in values)
    return _double(1, wall_time) + _int(2, step) + _bytes(5, summary)


class Events:
    """A watcher that writes one event file into `events/` each time a run starts or goes on."""

    def __init__(self, run_folder: Path) -> None:
        self.folder = run_folder / EVENTS
        self._file: BinaryIO | None = None

    def started(
        self,
        recipe: Any,
        model_parameters: int,
        prepared_report: Mapping[str, Any],
        resumed_from: int | None,
    ) -> None:
        """Open a file; a resumed run's hides what an earlier one wrote of later steps."""
        now = time.time()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            name = f"events.out.tfevents.{now:.6f}.{os.getpid()}.pellucid"
            self._file = (self.folder / name).open("xb")
        except OSError as error:
            raise PellucidError(f"cannot write to {self.folder}: {error.strerror}") from error
        self._write(_double(1, now) + _bytes(3, b"brain.Event:2"))
        if resumed_from is not None:
            self._write(_double(1, now) + _int(2, resumed_from + 1) + _bytes(7, _int(1, 1)))

    def stepped(self, report: StepReport) -> None:
        """The curves of training."""
        values = {
            "train/loss": report.loss,
            "train/smoothed_loss": report.smoothed_loss,
            "train/perplexity": perplexity(report.loss),
            "train/rate": report.rate,
            "train/gradient_norm": report.gradient_norm,
            "train/tokens_per_second": report.tokens_per_second,
            "train/epoch": report.epoch,
        }
        if report.flops_share is not None:
            values["train/share_of_peak"] = report.flops_share
        self._scalars(report.step, values)

    def validated(self, report: ValidationReport) -> None:
        """The curves of validation, and the samples as text."""
        values = {"valid/loss": report.loss, "valid/perplexity": report.perplexity}
        if report.bleu is not None:
            values["valid/BLEU"] = report.bleu
        if report.chrf is not None:
            values["valid/chrF"] = report.chrf
        self._scalars(report.step, values)
        if report.samples:
            told = "\n\n".join(
                "\n\n".join(
                    # four spaces make it code, in which nothing is markup
                    f"{name}\n\n    {value}"
                    for name, value in (
                        ("source", sample.source),
                        ("reference", sample.reference),
                        ("translation", sample.translation),
                    )
                )
                for sample in report.samples
            )
            self._write(event(report.step, [text("valid/samples", told)], time.time()))
        self._flush()

    def saved(self, path: Path) -> None:
        """Let TensorBoard see what there is."""
        self._flush()

    def said(self, line: str) -> None:
        """Words are not drawn."""

    def finished(self, summary: Mapping[str, Any]) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _scalars(self, step: int, values: Mapping[str, float]) -> None:
        self._write(event(step, [scalar(tag, v) for tag, v in values.items()], time.time()))

    def _write(self, message: bytes) -> None:
        if self._file is not None:
            try:
                self._file.write(record(message))
            except OSError as error:
                raise PellucidError(f"cannot write to {self.folder}: {error.strerror}") from error

    def _flush(self) -> None:
        if self._file is not None:
            self._file.flush()
