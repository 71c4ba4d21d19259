"""Who watches the launches of a sweep, wherever they are shown."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, runtime_checkable

from torchscale.analysis.kinds import AnySummary
from torchscale.config.choices import DeviceKind
from torchscale.observer import Observer
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


@runtime_checkable
class SweepObserver(Observer, Protocol):
    """An observer that also shows launches."""

    def launches(
        self, device: DeviceKind, total: int, repeats: int
    ) -> AbstractContextManager[Listener]:
        """``total`` launches run inside the context; each cell has ``repeats`` of them."""
        ...


def listening(
    observer: Observer, device: DeviceKind, total: int, repeats: int
) -> AbstractContextManager[Listener]:
    """The listener of an observer; a silent one where it shows no launches."""
    if isinstance(observer, SweepObserver):
        return observer.launches(device, total, repeats)
    return nullcontext(SilentListener())
