"""The progress of Spark's work, on stderr if that is a terminal."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import Any

from rich.console import Console
from rich.progress import Progress as RichProgress
from rich.progress import ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from xorack.cli.screen import can_redraw
from xorack.ops.text import printable

__all__ = ["Progress"]


class _SparkTasks(ProgressColumn):
    """The finished and all tasks of Spark's active stages; empty with Spark Connect."""

    max_refresh = 0.5

    def __init__(self) -> None:
        super().__init__()
        self.tracker: Any = None

    def render(self, _: Task) -> Text:
        """Render the numbers; the session may end meanwhile."""
        done = total = 0
        with suppress(Exception):
            for stage in self.tracker.getActiveStageIds() if self.tracker else ():
                if info := self.tracker.getStageInfo(stage):
                    done, total = done + info.numCompletedTasks, total + info.numTasks
        return Text(f"{done:,}/{total:,} tasks" if total else "")


class Progress(ExitStack):
    """A line with the current phase; nothing where it cannot be redrawn."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__()
        self._console = console or Console(stderr=True)
        self._tasks = _SparkTasks()
        self._rich: RichProgress | None = None

    def phase(self, text: str) -> None:
        """Show the phase that begins."""
        if not can_redraw(self._console):
            return
        if self._rich is None:
            columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False))
            self._rich = RichProgress(
                *columns, self._tasks, TimeElapsedColumn(), console=self._console, transient=True
            )
            self.enter_context(self._rich)
            self._rich.add_task("")
        self._rich.update(self._rich.task_ids[0], description=printable(text))

    def watch(self, spark: Any) -> None:
        """Show the tasks of a session; one of Spark Connect has no such numbers."""
        with suppress(Exception):
            self._tasks.tracker = spark.sparkContext.statusTracker()
