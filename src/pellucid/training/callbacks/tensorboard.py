"""TensorBoard logging: scalars and samples, where its package is installed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.errors import PellucidError
from pellucid.training.callbacks.callback import Callback, StepReport, ValidationReport, perplexity

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

EVENTS = "events"


def _hide_writer_errors(
    default_hook: Callable[[threading.ExceptHookArgs], object], args: threading.ExceptHookArgs
) -> None:
    """Print no traceback of SummaryWriter's thread: its write errors reach the caller too."""
    ours = type(args.thread).__module__ == "tensorboard.summary.writer.event_file_writer"
    if not (ours and issubclass(args.exc_type, OSError)):
        default_hook(args)


class TensorBoard(Callback):
    """Callback that writes one event file into `events/` each time a run starts or resumes.

    say: gets the line for a user without TensorBoard; the run continues without it.
    """

    def __init__(self, run_folder: Path, say: Callable[[str], None] = lambda line: None) -> None:
        self.folder = run_folder / EVENTS
        self._say = say
        self._writer: SummaryWriter | None = None
        self._hook = threading.excepthook

    def on_start(
        self,
        recipe: Any,
        model_parameters: int,
        prepared_report: Mapping[str, Any],
        resumed_from: int | None,
    ) -> None:
        """Open a file; that of a resumed run hides the later steps of earlier files."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            self._say("TensorBoard: not written; pip install tensorboard")
            return
        later = None if resumed_from is None else resumed_from + 1
        self._hook = threading.excepthook
        threading.excepthook = partial(_hide_writer_errors, self._hook)
        with self._writing():
            self._writer = SummaryWriter(str(self.folder), purge_step=later)

    def on_step(self, report: StepReport) -> None:
        """Write the scalars of a step."""
        values = {
            "train/loss": report.loss,
            "train/smoothed_loss": report.smoothed_loss,
            "train/perplexity": perplexity(report.loss),
            "train/learning_rate": report.learning_rate,
            "train/grad_norm": report.grad_norm,
            "train/tokens_per_second": report.tokens_per_second,
            "train/epoch": report.epoch,
        }
        if report.mfu is not None:
            values["train/mfu"] = report.mfu
        self._scalars(report.step, values)

    def on_validation(self, report: ValidationReport) -> None:
        """Write the scalars of a validation, and the samples as text."""
        values = {"valid/loss": report.loss, "valid/perplexity": report.perplexity}
        if report.bleu is not None:
            values["valid/BLEU"] = report.bleu
        if report.chrf is not None:
            values["valid/chrF"] = report.chrf
        self._scalars(report.step, values)
        if report.samples and self._writer is not None:
            # SummaryWriter.add_text would call it valid/samples/text_summary
            from tensorboard.plugins.text.summary_v2 import text_pb  # type: ignore[import-untyped]

            text = "\n\n".join(
                "\n\n".join(
                    # four spaces make it a code block, in which nothing is markup
                    f"{name}\n\n    {value}"
                    for name, value in (
                        ("source", sample.source),
                        ("reference", sample.reference),
                        ("translation", sample.translation),
                    )
                )
                for sample in report.samples
            )
            summary = text_pb("valid/samples", text.encode("utf-8", "replace"))
            with self._writing():
                self._writer.file_writer.add_summary(  # type: ignore[attr-defined]
                    summary, report.step
                )
        self._flush()

    def on_save(self, path: Path) -> None:
        """Flush, so that TensorBoard shows everything up to the checkpoint."""
        self._flush()

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """Close the file."""
        if self._writer is not None:
            try:
                with self._writing():
                    self._writer.close()
            finally:
                self._writer, threading.excepthook = None, self._hook

    def _scalars(self, step: int, values: Mapping[str, float]) -> None:
        if self._writer is not None:
            with self._writing():
                for tag, value in values.items():
                    self._writer.add_scalar(tag, value, step)

    def _flush(self) -> None:
        if self._writer is not None:
            with self._writing():
                self._writer.flush()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or error
            raise PellucidError(f"cannot write to {self.folder}: {reason}") from error
