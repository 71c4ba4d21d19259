"""What every measuring command shares: the machine, the plan, the run folder's lock, the stop
signals."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from torchscale.config.experiment import Experiment
from torchscale.errors import ExitCode, MachineError
from torchscale.launch.control import LaunchLimits, StopRequest
from torchscale.launch.machine import Detection, detect_machine
from torchscale.measure.checks import checked
from torchscale.observer import Observer
from torchscale.plan.expand import Plan, make_plan
from torchscale.schema.node.machine import Machine
from torchscale.schema.run.experiment_file import ExperimentFile
from torchscale.schema.state import State
from torchscale.store.locations import RESULTS
from torchscale.store.lock import locked_folder
from torchscale.util.processes.stop_signals import stop_signals
from torchscale.util.processes.subprocesses import adopt_orphans
from torchscale.util.redaction import redact, redact_model
from torchscale.util.words import plural
from torchscale.version import __version__

if TYPE_CHECKING:
    from types import FrameType


@dataclass(frozen=True)
class PlannedRun:
    """An experiment, the machine at hand, and the plan that follows from both.

    Attributes:
        experiment: What was asked.
        machine: Machine of the plan.
        plan: Cells to run or to skip.
        named: The name of a machine that is not here, for plans that are only shown; else empty.
    """

    experiment: Experiment
    machine: Machine
    plan: Plan
    named: str = ""

    def require_cells(self, hint: str | None = None) -> None:
        """Check that there is something to run.

        Raises:
            MachineError: this machine can run none of the cells.
        """
        cells = self.plan.cells
        if not self.plan.to_run:
            raise MachineError(
                f"this machine can run none of {plural(len(cells), 'cell')}; the first: "
                f"{cells[0].skip_reason}",
                hint=hint,
            )

    @property
    def device_label(self) -> str:
        """``2 × NVIDIA H200``, or the CPU's cores and threads."""
        if self.plan.device == "cuda":
            names = sorted({device.name for device in self.machine.environment.devices})
            planned = f" (planned for {self.named}, not this machine)" if self.named else ""
            return f"{len(self.plan.device_indices)} × {', '.join(names)}{planned}"
        cores = plural(len(self.plan.device_indices), "core")
        threads = plural(self.plan.threads_per_rank, "thread")
        return f"CPU ({cores}, {threads} per rank, gloo)"

    @property
    def device_memory_bytes(self) -> int | None:
        """Memory of the smallest device in use, or of the host for CPU ranks; ``None`` where it is
        unknown."""
        environment = self.machine.environment
        if self.plan.device == "cpu":
            return environment.memory_bytes
        sizes = [
            device.memory_bytes
            for device in environment.devices
            if device.index in self.plan.device_indices
        ]
        return min((size for size in sizes if size is not None), default=None)

    @property
    def limits(self) -> LaunchLimits:
        """Bounds of one launch without a budget, as a recording has them."""
        settings = self.experiment.launch
        return LaunchLimits(settings.timeout_seconds, settings.stall_timeout_seconds)

    def experiment_file(self) -> ExperimentFile:
        """The content of ``experiment.json``, without secrets."""
        launch = self.experiment.launch
        env = {name: redact(name, value) for name, value in launch.env.items()}
        file = ExperimentFile(
            tool_version=__version__,
            config=self.experiment.model_copy(
                update={"launch": launch.model_copy(update={"env": env})}
            ),
            plan_hash=self.plan.hash,
            plan=self.plan.cells,
            environment=self.machine.environment,
            created_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            threads_per_rank=self.plan.threads_per_rank,
        )
        return redact_model(file)


def find_machine(observer: Observer, detection: Detection | None = None) -> Machine:
    """The machine at hand; from a ``detection`` that was started before, if there is one.

    Raises:
        UsageError: torch is not installed.
        MachineError: torch cannot be imported, or the probe does not answer.
    """
    with observer.status("Detecting devices and software"):
        if detection is None:
            return detect_machine()
        return detection.result()


def plan_run(
    experiment: Experiment,
    observer: Observer,
    *,
    detection: Detection | None = None,
) -> PlannedRun:
    """Plan an experiment for the machine at hand; its models and data are checked. ``detection``:
    of this machine, started before.

    Raises:
        MachineError: as :func:`find_machine`, or the config asks for devices that are not there.
    """
    machine = find_machine(observer, detection)
    return PlannedRun(
        experiment, machine, checked(make_plan(experiment, machine), experiment, observer)
    )


def timestamped(name: str) -> Path:
    """A folder of its own for every run of a command: ``results/collectives-20260102-030405``."""
    return RESULTS / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"


@contextmanager
def measuring(directory: Path) -> Iterator[StopRequest]:
    """Hold the run folder's lock, and turn Ctrl-C and TERM into a stop request, while launches run.

    Raises:
        StoreError: another torchscale writes to ``directory``.
        OutputError: it cannot be created.
    """
    adopt_orphans()
    with locked_folder(directory), stop_on_signals() as stop:
        yield stop


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """The first Ctrl-C, TERM or HUP (the terminal or the connection is closed; not under ``nohup``)
    asks for an orderly stop; a second one ends the running launch without grace.

    Signal handlers belong to the main thread. In any other thread nothing is installed, and the
    stop request is never set by a signal.
    """
    stop = StopRequest()

    def request_stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        stop.count += 1

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    previous = {number: signal.signal(number, request_stop) for number in stop_signals()}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def sweep_exit_code(states: Iterator[State], *, interrupted: bool) -> ExitCode:
    """Exit code of a command that measured cells: skipped cells are no failure."""
    if interrupted:
        return ExitCode.INTERRUPTED
    passed = all(state in (State.OK, State.SKIPPED) for state in states)
    if passed:
        return ExitCode.OK
    return ExitCode.FAILED
