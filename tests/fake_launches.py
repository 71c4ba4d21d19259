"""The application layer on a machine that is made up, with launches that leave a record at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.factories import failed_record, launch_record, machine
from torchscale.config.choices import DeviceKind
from torchscale.launch.control import LaunchLimits, StopRequest
from torchscale.measure.listener import Listener, SilentListener
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.task import LaunchTask
from torchscale.schema.state import State


class FakeLaunches:
    """Stands for torchrun: every launch leaves a record at once, ``ok`` unless its cell is named in
    ``states``."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, int]] = []
        self.states: dict[str, State] = {}
        self.stop_after: int | None = None

    def __call__(
        self,
        task: LaunchTask,
        directory: Path,
        *,
        limits: LaunchLimits,
        extra_env: Mapping[str, str],
        stop: StopRequest,
        on_progress: Callable[[Progress], None],
    ) -> LaunchRecord:
        del directory, limits, extra_env
        assert isinstance(task.cell, TrainingCell)
        self.ran.append((task.cell.id, task.launch))
        on_progress(Progress(phase="measuring", samples_per_second=80.0))
        if self.stop_after is not None and len(self.ran) >= self.stop_after:
            stop.count += 1
        state = self.states.get(task.cell.id, State.OK)
        if state is State.OK:
            return launch_record(task.cell, task.launch)
        return failed_record(task.cell, state, "as the test asks", task.launch)


class Recorder:
    """An observer that keeps what it is shown."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.details: list[str] = []
        self.waits: list[str] = []

    @contextmanager
    def status(self, text: str) -> Iterator[Callable[[str], None]]:
        self.waits.append(text)
        yield lambda _: None

    def note(self, text: str) -> None:
        self.notes.append(text)

    def detail(self, text: str) -> None:
        self.details.append(text)

    def launches(
        self, device: DeviceKind, total: int, repeats: int
    ) -> AbstractContextManager[Listener]:
        self.waits.append(f"{total} launches on {device}, {repeats} per cell")
        return _silent()


@contextmanager
def _silent() -> Iterator[Listener]:
    yield SilentListener()


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> FakeLaunches:
    """Launches of a machine with two cores and no GPU."""
    fake = FakeLaunches()
    monkeypatch.setattr("torchscale.measure.launcher.run_launch", fake)
    monkeypatch.setattr(
        "torchscale.measure.launcher.shares_processes", lambda experiment, device: False
    )
    monkeypatch.setattr("torchscale.measure.context.detect_machine", machine)
    return fake


@pytest.fixture
def recorder() -> Recorder:
    """An observer that keeps what it is shown."""
    return Recorder()
