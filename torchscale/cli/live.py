"""What is seen while a sweep runs: a live line with time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn

from torchscale.analysis.results import AnySummary, CellSummary
from torchscale.catalog.models import model_title
from torchscale.cli.output import detail, is_quiet, message_console
from torchscale.profiling import Profile
from torchscale.report.ceiling_words import ceiling_outcome
from torchscale.report.profile_words import stall_line
from torchscale.schema.cell import Cell, DeviceKind
from torchscale.schema.progress import Progress as LaunchProgress
from torchscale.schema.record import LaunchRecord, State
from torchscale.schema.strategy import strategy_label
from torchscale.schema.task import AnyCell
from torchscale.sweep import Listener
from torchscale.units import format_percent, format_rate, format_seconds

_REFRESH_PER_SECOND = 2
"""The view shares the cores with what is measured; twice a second costs well under a thousandth of one."""


@contextmanager
def make_listener(device: DeviceKind, total: int, repeats: int) -> Iterator[Listener]:
    """The listener that fits where the messages go."""
    console = message_console()
    if is_quiet():
        yield _Silent()
    elif console.is_terminal:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
        )
        with Progress(*columns, console=console, transient=True, refresh_per_second=_REFRESH_PER_SECOND) as bar:
            yield _Live(device, total, repeats, console, bar)
    else:
        yield _Plain(device, total, repeats, console)


class _Silent:
    """Says nothing."""

    def launch_started(self, cell: AnyCell, launch: int) -> None:
        """Nothing."""

    def launch_progress(self, progress: LaunchProgress) -> None:
        """Nothing."""

    def launch_finished(self, cell: AnyCell, record: LaunchRecord, summary: AnySummary) -> None:
        """Nothing."""

    def profile_started(self, cell: Cell) -> None:
        """Nothing."""

    def profile_finished(self, cell: Cell, profile: Profile) -> None:
        """Nothing."""


class _Plain(_Silent):
    """A line per launch, when it has ended."""

    def __init__(self, device: DeviceKind, total: int, repeats: int, console: Console) -> None:
        self._device, self._total, self._repeats, self._console = device, total, repeats, console
        self._done = 0

    def launch_finished(self, cell: AnyCell, record: LaunchRecord, summary: AnySummary) -> None:
        """The line."""
        self._done += 1
        detail(shlex.join(record.command))
        counter = f"[{self._done:>{len(str(self._total))}}/{self._total}]"
        running = running_words(cell, self._device, record.launch, self._repeats)
        style = "" if record.state is State.OK else "red"
        self._console.print(
            f"[dim]{escape(counter)}[/dim] {escape(running)} … {escape(outcome_words(record, summary))}",
            style=style,
            soft_wrap=True,
        )

    def profile_finished(self, cell: Cell, profile: Profile) -> None:
        """The one figure, or why there is none."""
        words = f"no profile: {profile.problem}" if profile.analysis is None else stall_line(profile.analysis)
        name = running_words(cell, self._device, 0, 1).replace("Running", "Profiled", 1)
        style = "red" if profile.analysis is None else ""
        self._console.print(f"{escape(name)} … {escape(words)}", style=style, soft_wrap=True)


class _Live(_Plain):
    """The plain lines above a bar that tells what runs now."""

    def __init__(self, device: DeviceKind, total: int, repeats: int, console: Console, bar: Progress) -> None:
        super().__init__(device, total, repeats, console)
        self._bar = bar
        self._task: TaskID = bar.add_task("", total=total, left="")
        self._running = ""
        self._started = time.monotonic()

    def launch_started(self, cell: AnyCell, launch: int) -> None:
        """Say what runs now and, once launches have ended, how long the rest may take."""
        self._running = running_words(cell, self._device, launch, self._repeats)
        left = ""
        if self._done:
            mean = (time.monotonic() - self._started) / self._done
            left = f"about {format_seconds(mean * (self._total - self._done))} left"
        self._bar.update(self._task, description=escape(self._running), left=left)

    def launch_progress(self, progress: LaunchProgress) -> None:
        """Phase and throughput so far."""
        so_far: str = progress.detail or progress.phase
        if progress.samples_per_second is not None:
            so_far += f", {format_rate(progress.samples_per_second)} samples/s"
        self._bar.update(self._task, description=escape(f"{self._running} … {so_far}"))

    def launch_finished(self, cell: AnyCell, record: LaunchRecord, summary: AnySummary) -> None:
        """The line of the launch that ended, and one more on the bar."""
        super().launch_finished(cell, record, summary)
        self._bar.update(self._task, advance=1)

    def profile_started(self, cell: Cell) -> None:
        """Say what is recorded now."""
        self._running = running_words(cell, self._device, 0, 1).replace("Running", "Profiling", 1)
        self._bar.update(self._task, description=escape(self._running), left="")


def running_words(cell: AnyCell, device: DeviceKind, launch: int, repeats: int) -> str:
    """``Running ResNet-50 on 4 GPUs (batch 128, bf16, launch 2 of 3)``."""
    noun = "GPU" if device == "cuda" else "CPU rank"
    devices = f"{cell.world_size} {noun}{'s' * (cell.world_size != 1)}"
    if not isinstance(cell, Cell):
        return f"Running {cell.title} on {devices}"
    facts = [f"batch {cell.batch_size}" if cell.scaling == "weak" else f"global batch {cell.batch_size}"]
    facts += [cell.precision] if cell.precision != "fp32" else []
    label = strategy_label(cell.strategy)
    facts += [*([label] if label != "ddp" else []), *cell.settings]
    facts += [f"launch {launch + 1} of {repeats}"] if repeats > 1 else []
    return f"Running {model_title(cell.model)} on {devices} ({', '.join(facts)})"


def outcome_words(record: LaunchRecord, summary: AnySummary) -> str:
    """``1,450 samples/s, 220 ms/step ±0.6 %`` with the names of its flags, or the state and its reason."""
    if not isinstance(summary, CellSummary):
        return ceiling_outcome(summary)
    if record.state is not State.OK or summary.figures is None:
        return f"{record.state.value}: {record.reason}"
    figures = summary.figures
    words = f"{format_rate(figures.launch_samples_per_second[-1])} samples/s"
    if record.steps is not None:
        words += f", {format_seconds(record.steps.seconds.mean)}/step"
    if figures.half_width is not None:
        words += f" ±{format_percent(figures.half_width)}"
    if summary.flags:
        words += f"  warning: {', '.join(flag.value for flag in summary.flags)}"
    return words
