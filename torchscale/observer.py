"""Who watches a command: messages, long waits and launches, wherever they are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from torchscale.analysis.kinds import AnySummary
from torchscale.config.choices import DeviceKind
from torchscale.schema.cells.kinds import AnyCell
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.profiles.analysis import ProfileAnalysis


class Listener(Protocol):
    """Receives the events of a sweep."""

    def launch_started(self, cell: AnyCell, launch: int) -> None:
        """A launch starts; ``launch`` counts from 0."""

    def launch_progress(self, progress: Progress) -> None:
        """The running launch reports its phase and, while it measures, its throughput."""

    def launch_finished(self, cell: AnyCell, record: LaunchRecord, summary: AnySummary) -> None:
        """A launch has ended; ``summary`` covers the launches of its cell so far."""

    def profile_started(self, cell: TrainingCell) -> None:
        """The recording of a measured cell starts."""

    def profile_finished(
        self, cell: TrainingCell, analysis: ProfileAnalysis | None, problem: str
    ) -> None:
        """The recording has ended; without an analysis, ``problem`` says why."""


class Observer(Protocol):
    """Receives what a command reports while it runs. The command line shows it; programs may ignore
    it."""

    def status(self, text: str) -> AbstractContextManager[Callable[[str], None]]:
        """Something that may take seconds runs inside the context; calls of what it gives say what
        it is doing now."""
        ...

    def note(self, text: str) -> None:
        """One line that every user should see."""

    def detail(self, text: str) -> None:
        """One line for users who ask for details."""

    def launches(
        self, device: DeviceKind, total: int, repeats: int
    ) -> AbstractContextManager[Listener]:
        """``total`` launches run inside the context; each cell has ``repeats`` of them."""
        ...


class SilentListener:
    """Ignores every event."""

    def launch_started(self, cell: AnyCell, launch: int) -> None:
        """Ignored."""

    def launch_progress(self, progress: Progress) -> None:
        """Ignored."""

    def launch_finished(self, cell: AnyCell, record: LaunchRecord, summary: AnySummary) -> None:
        """Ignored."""

    def profile_started(self, cell: TrainingCell) -> None:
        """Ignored."""

    def profile_finished(
        self, cell: TrainingCell, analysis: ProfileAnalysis | None, problem: str
    ) -> None:
        """Ignored."""


class SilentObserver:
    """Shows nothing. Base for observers that show some of it."""

    @contextmanager
    def status(self, text: str) -> Iterator[Callable[[str], None]]:
        """Nothing is shown."""
        del text
        yield lambda _: None

    def note(self, text: str) -> None:
        """Nothing is shown."""

    def detail(self, text: str) -> None:
        """Nothing is shown."""

    @contextmanager
    def launches(self, device: DeviceKind, total: int, repeats: int) -> Iterator[Listener]:
        """Nothing is shown."""
        del device, total, repeats
        yield SilentListener()


SILENT = SilentObserver()
