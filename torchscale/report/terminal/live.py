"""The progress of a sweep: a bar with the time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from torchscale.analysis.kinds import AnySummary
from torchscale.config.choices import DeviceKind
from torchscale.report.formats.console_text import STYLES, sentence_lines
from torchscale.report.kinds import report_kind
from torchscale.report.terminal.time_left import TimeLeft
from torchscale.report.text.profile import split_line
from torchscale.report.values import Tone, only_if
from torchscale.schema.cells.kinds import AnyCell
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.progress import Progress as LaunchProgress
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.schema.state import State
from torchscale.util.units import format_rate
from torchscale.util.words import in_brackets, plural

_REFRESH_PER_SECOND = 2
"""The view shares the cores with what is measured; twice a second costs well under a thousandth of
one."""
_LINE_SECONDS = 10.0
"""Longest silence in a log while a launch runs."""
_BAR_COLUMNS = 100
"""Narrower terminals show no bar: the counter and the time left need the place."""


class LaunchLines:
    """One line per launch when it has ended, and one every ten seconds while it runs.

    Args:
        console: Where the lines go.
        device: What the ranks run on, for the words.
        total: Launches of the sweep.
        repeats: Launches per cell.
        detail: Gets lines that only ``--verbose`` shows, such as each command.
    """

    def __init__(
        self,
        console: Console,
        device: DeviceKind,
        total: int,
        repeats: int,
        detail: Callable[[str], None],
    ) -> None:
        self._console, self._device, self._total, self._repeats, self._detail = (
            console,
            device,
            total,
            repeats,
            detail,
        )
        self._done = 0
        self._running = self._phase = ""
        self._time_left = TimeLeft(total, time.monotonic)

    def launch_started(self, cell: AnyCell, launch: int) -> None:
        """Remember what runs, for the lines on the way."""
        self._running, self._phase = (
            launch_label(cell, self._device, launch, self._repeats),
            "starting",
        )
        self._time_left.started(cell.id)

    def launch_progress(self, progress: LaunchProgress) -> None:
        """Remember the phase and the throughput so far."""
        self._phase = progress.detail or progress.phase
        if progress.samples_per_second is not None:
            self._phase += f", {format_rate(progress.samples_per_second)} samples/s"

    def launch_finished(self, cell: AnyCell, record: LaunchRecord, summary: AnySummary) -> None:
        """Print counter, cell and outcome."""
        self._done += 1
        self._time_left.finished(cell.id)
        self._running = ""
        self._detail(_started_by(cell, record))
        counter = f"[{self._done:>{len(str(self._total))}}/{self._total}]"
        label = launch_label(cell, self._device, record.launch, self._repeats)
        outcome = report_kind(cell.kind).outcome(summary, record)
        self._print(f"{label} … {outcome}", failed=not _is_fine(record), counter=f"{counter} ")

    def profile_started(self, cell: TrainingCell) -> None:
        """Remember what runs, for the lines on the way."""
        self._running, self._phase = (
            f"profile of {launch_label(cell, self._device, 0, 1)}",
            "starting",
        )

    def profile_finished(
        self, cell: TrainingCell, analysis: ProfileAnalysis | None, problem: str
    ) -> None:
        """Print the sync stall share, or why there is none."""
        self._running = ""
        if analysis is None:
            outcome = f"no profile: {problem}"
        else:
            outcome = split_line(analysis)
        label = f"profile of {launch_label(cell, self._device, 0, 1)}"
        self._print(f"{label} … {outcome}", failed=analysis is None)

    def print_running(self) -> None:
        """Print what runs now and the time left, if anything runs."""
        if self._running:
            left = self._time_left.text
            more = in_brackets(left)
            self._print(f"{self._done + 1}/{self._total} {self._running}: {self._phase}{more}")

    def _print(self, text: str, *, failed: bool = False, counter: str = "") -> None:
        """Print a text behind its counter: broken between words on a terminal, in a log on one
        line."""
        style = ""
        if failed:
            style = STYLES[Tone.BAD]
        lines = sentence_lines(f"{counter}{text}", self._console, style, indent=len(counter))
        for number, line in enumerate(lines):
            if number == 0:
                line.stylize("dim", 0, len(counter))
            self._console.print(line, soft_wrap=True)


def _started_by(cell: AnyCell, record: LaunchRecord) -> str:
    """The command that ran, and what ran in forks of it."""
    command = shlex.join(record.command)
    if record.forked:
        return f"{command} (in its forks: torchrun's agent, world size {cell.world_size})"
    return command


class LaunchBar(LaunchLines):
    """The lines of :class:`LaunchLines` above a line with the counter, the running launch and the
    time left."""

    def __init__(
        self,
        console: Console,
        device: DeviceKind,
        total: int,
        repeats: int,
        detail: Callable[[str], None],
        *,
        bar: Progress,
    ) -> None:
        super().__init__(console, device, total, repeats, detail)
        self._bar = bar
        self._task = bar.add_task("", total=total, left=lambda: self._time_left.text)

    def launch_started(self, cell: AnyCell, launch: int) -> None:
        """Show the launch."""
        super().launch_started(cell, launch)
        self._bar.update(self._task, description=escape(self._running))

    def launch_progress(self, progress: LaunchProgress) -> None:
        """Show the phase and the throughput so far."""
        super().launch_progress(progress)
        self._bar.update(self._task, description=escape(f"{self._running}: {self._phase}"))

    def launch_finished(self, cell: AnyCell, record: LaunchRecord, summary: AnySummary) -> None:
        """Print the launch's line and advance the bar."""
        super().launch_finished(cell, record, summary)
        self._bar.update(self._task, advance=1, description="")

    def profile_started(self, cell: TrainingCell) -> None:
        """Show which cell is recorded."""
        super().profile_started(cell)
        self._bar.update(self._task, description=escape(self._running))


class _Counter(ProgressColumn):
    """``3/54``: launches that have ended."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.completed:.0f}/{task.total or 0:.0f}")


class _Left(ProgressColumn):
    """The time left, new at every refresh."""

    def render(self, task: Task) -> Text:
        return Text(task.fields["left"]())


@contextmanager
def live_view(
    console: Console, device: DeviceKind, total: int, repeats: int, detail: Callable[[str], None]
) -> Iterator[LaunchLines]:
    """A line with counter and time left where ``console`` is a terminal, else lines. Arguments as
    of :class:`LaunchLines`."""
    if not console.is_terminal:
        lines = LaunchLines(console, device, total, repeats, detail)
        with _printed_regularly(lines):
            yield lines
        return
    fixed = Column(no_wrap=True)
    columns: list[ProgressColumn] = [
        SpinnerColumn(table_column=fixed),
        _Counter(table_column=Column(no_wrap=True)),
        TextColumn(
            "{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")
        ),
        *only_if(console.width >= _BAR_COLUMNS, BarColumn(bar_width=20)),
        _Left(table_column=Column(no_wrap=True)),
    ]
    with Progress(
        *columns,
        console=console,
        transient=True,
        expand=True,
        refresh_per_second=_REFRESH_PER_SECOND,
    ) as bar:
        yield LaunchBar(console, device, total, repeats, detail, bar=bar)


@contextmanager
def _printed_regularly(lines: LaunchLines) -> Iterator[None]:
    ended = threading.Event()

    def speak() -> None:
        while not ended.wait(_LINE_SECONDS):
            lines.print_running()

    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    try:
        yield
    finally:
        ended.set()
        speaker.join()


def launch_label(cell: AnyCell, device: DeviceKind, launch: int, repeats: int) -> str:
    """``ResNet-50, 4 GPUs, batch 128, bf16, launch 2 of 3``."""
    devices = plural(cell.world_size, "GPU" if device == "cuda" else "CPU rank")
    return report_kind(cell.kind).launch_label(cell, devices, launch, repeats)


def _is_fine(record: LaunchRecord) -> bool:
    return record.state in (State.OK, State.SKIPPED)
