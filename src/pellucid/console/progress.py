"""Progress of long work: bars on a terminal, plain lines anywhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import Task


class ProgressStep:
    """One stage of the work, with a counter."""

    def __init__(self, bars: Bars | None, task: Any) -> None:
        self._bars = bars
        self._task = task

    def advance(self, count: int) -> None:
        """Add to the number of items done."""
        if self._bars is not None:
            self._bars.advance(self._task, count)


class Progress:
    """Show the stages of some work on a console; without a console, nothing.

    Lines and tables go to any console; bars, with rate and time left, only to a terminal.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console
        self._bars: Bars | None = None
        self._current: Any = None

    def __enter__(self) -> Self:
        if self._console is not None and self._console.is_terminal:
            self._bars = _bars(self._console)
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._finish()
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def step(self, what: str, unit: str = "", total: int | None = None) -> ProgressStep:
        """Begin the next stage; the one before it is done."""
        self._finish()
        if self._bars is not None:
            self._current = self._bars.add_task(what, total=total, unit=unit)
        return ProgressStep(self._bars, self._current)

    def say(self, sentence: str) -> None:
        """Print one line."""
        if self._console is not None:
            self._console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    def show(self, table: Any) -> None:
        """Print a table."""
        if self._console is not None:
            self._console.print(table)

    def _finish(self) -> None:
        if self._bars is not None and self._current is not None:
            task = next(t for t in self._bars.tasks if t.id == self._current)
            done = task.completed or 1
            self._bars.update(self._current, total=done, completed=done)
            self._current = None


def _bars(console: Console) -> Bars:
    from rich import progress as rich_progress
    from rich.text import Text

    class Rate(rich_progress.ProgressColumn):
        """Column with the number of items done, and items per second."""

        def render(self, task: Task) -> Text:
            unit = task.fields.get("unit")
            if not unit:
                return Text("")
            speed = task.finished_speed or task.speed
            rate = f", {speed:,.0f}/s" if speed else ""
            return Text(f"{task.completed:,.0f} {unit}{rate}", style="progress.data.speed")

    return rich_progress.Progress(
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(bar_width=24),
        Rate(),
        rich_progress.TimeElapsedColumn(),
        rich_progress.TimeRemainingColumn(),
        console=console,
    )
