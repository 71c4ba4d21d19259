"""The progress of a sweep: a bar with the time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn

from torchscale.analysis.kinds import AnySummary
from torchscale.config.choices import DeviceKind
from torchscale.report.kinds import report_kind
from torchscale.report.text.profile import stall_line
from torchscale.schema.cells.kinds import AnyCell
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.progress import Progress as LaunchProgress
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.schema.state import State
from torchscale.util.units import format_rate, format_seconds

_REFRESH_PER_SECOND = 2
"""The view shares the cores with what is measured; twice a second costs well under a thousandth of one."""


class LaunchLines:
    """One line per launch, when it has ended.

    Args:
        console: Where the lines go.
        device: What the ranks run on, for the words.
        total: Launches of the sweep.
        repeats: Launches per cell.
        detail: Gets lines that only ``--verbose`` shows, such as each command.
    """

    def __init__(
        self, console: Console, device: DeviceKind, total: int, repeats: int, detail: Callable[[str], None]
    ) -> None:
        self._console, self._device, self._total, self._repeats, self._detail = console, device, total, repeats, detail
        self._done = 0

    def launch_started(self, cell: AnyCell, launch: int) -> None:
        """Nothing is printed before a launch has ended."""

    def launch_progress(self, progress: LaunchProgress) -> None:
        """Nothing is printed before a launch has ended."""

    def launch_finished(self, cell: AnyCell, record: LaunchRecord, summary: AnySummary) -> None:
        """Print counter, cell and outcome."""
        self._done += 1
        self._detail(shlex.join(record.command))
        counter = f"[{self._done:>{len(str(self._total))}}/{self._total}]"
        running = running_label(cell, self._device, record.launch, self._repeats)
        outcome = report_kind(cell.kind).outcome(summary, record)
        self._console.print(
            f"[dim]{escape(counter)}[/dim] {escape(running)} … {escape(outcome)}",
            style="" if record.state is State.OK else "red",
            soft_wrap=True,
        )

    def profile_started(self, cell: TrainingCell) -> None:
        """Nothing is printed before a recording has ended."""

    def profile_finished(self, cell: TrainingCell, analysis: ProfileAnalysis | None, problem: str) -> None:
        """Print the sync stall share, or why there is none."""
        outcome = f"no profile: {problem}" if analysis is None else stall_line(analysis)
        name = running_label(cell, self._device, 0, 1).replace("Running", "Profiled", 1)
        style = "red" if analysis is None else ""
        self._console.print(f"{escape(name)} … {escape(outcome)}", style=style, soft_wrap=True)


class LaunchBar(LaunchLines):
    """The lines of :class:`LaunchLines` above a bar with the running launch and the time left."""

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
        self._task: TaskID = bar.add_task("", total=total, left="")
        self._running = ""
        self._started = time.monotonic()

    def launch_started(self, cell: AnyCell, launch: int) -> None:
        """Show the launch and, once others have ended, how long the rest may take."""
        self._running = running_label(cell, self._device, launch, self._repeats)
        left = ""
        if self._done:
            mean = (time.monotonic() - self._started) / self._done
            left = f"about {format_seconds(mean * (self._total - self._done))} left"
        self._bar.update(self._task, description=escape(self._running), left=left)

    def launch_progress(self, progress: LaunchProgress) -> None:
        """Show the phase and the throughput so far."""
        phase: str = progress.detail or progress.phase
        if progress.samples_per_second is not None:
            phase += f", {format_rate(progress.samples_per_second)} samples/s"
        self._bar.update(self._task, description=escape(f"{self._running} … {phase}"))

    def launch_finished(self, cell: AnyCell, record: LaunchRecord, summary: AnySummary) -> None:
        """Print the launch's line and advance the bar."""
        super().launch_finished(cell, record, summary)
        self._bar.update(self._task, advance=1)

    def profile_started(self, cell: TrainingCell) -> None:
        """Show which cell is recorded."""
        self._running = running_label(cell, self._device, 0, 1).replace("Running", "Profiling", 1)
        self._bar.update(self._task, description=escape(self._running), left="")


@contextmanager
def live_view(
    console: Console, device: DeviceKind, total: int, repeats: int, detail: Callable[[str], None]
) -> Iterator[LaunchLines]:
    """A bar where ``console`` is a terminal, else lines. Arguments as of :class:`LaunchLines`."""
    if not console.is_terminal:
        yield LaunchLines(console, device, total, repeats, detail)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=console, transient=True, refresh_per_second=_REFRESH_PER_SECOND) as bar:
        yield LaunchBar(console, device, total, repeats, detail, bar=bar)


def running_label(cell: AnyCell, device: DeviceKind, launch: int, repeats: int) -> str:
    """``Running ResNet-50 on 4 GPUs (batch 128, bf16, launch 2 of 3)``."""
    noun = "GPU" if device == "cuda" else "CPU rank"
    devices = f"{cell.world_size} {noun}{'s' * (cell.world_size != 1)}"
    return report_kind(cell.kind).running_label(cell, devices, launch, repeats)
