"""Launches of commands, each measured from outside and ended once it is measured; what it leaves in
a run folder is what a watched job leaves of a start."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import count
from pathlib import Path

from torchscale.features.watch.job.logged_program import ProgramEnd, run_logged
from torchscale.features.watch.job.program_steps import ProgramSteps
from torchscale.features.watch.job.script_records import MeasuredProgram
from torchscale.features.watch.job.watched_program import WatchedProgram
from torchscale.launch.control import StopRequest
from torchscale.measure.context import find_machine, measuring
from torchscale.observer import Observer
from torchscale.schema.cells.training import Measurement, TrainingCell
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.node.environment import Environment
from torchscale.schema.state import State
from torchscale.store.run_folder import RunFolder
from torchscale.util.files import make_directory, remove_tree
from torchscale.util.logs import keep_log

LOG = "launch.log"
"""What the last launch printed, in the run folder."""
_SCRATCH = "launching"
_STATES = {
    "ok": State.INVALID,  # it ended in order, and nothing was measured
    "failed": State.CRASHED,
    "timeout": State.TIMEOUT,
    "interrupted": State.INTERRUPTED,
}
"""How a program without figures ended → its state."""


@contextmanager
def command_launches(
    directory: Path, *, launch_seconds: float, timeout_seconds: float, observer: Observer
) -> Iterator[CommandLaunches]:
    """Hold ``directory``, below which all run folders are, and turn Ctrl-C and TERM into a stop.

    Args:
        directory: Is made.
        launch_seconds: For how long steps are measured in a launch, after its warm-up.
        timeout_seconds: Longest launch.
        observer: Shows what is done.

    Raises:
        MachineError: torch cannot be imported here.
        StoreError: another torchscale measures into ``directory``.
        OutputError: it cannot be made.
    """
    environment = find_machine(observer).environment
    with measuring(directory) as stop:
        yield CommandLaunches(environment, stop, launch_seconds, timeout_seconds)


@dataclass(frozen=True)
class CommandLaunches:
    """Launches commands one after the other.

    Attributes:
        environment: The machine.
        stop: Whether the user wants to stop.
        launch_seconds, timeout_seconds: Of a launch.
    """

    environment: Environment
    stop: StopRequest
    launch_seconds: float
    timeout_seconds: float

    @property
    def is_stopped(self) -> bool:
        """Whether the user wants to stop."""
        return self.stop.asked

    def launch(self, command: Sequence[str], folder: Path) -> LaunchRecord:
        """Launch a command once. A launch with figures is added to the run folder, as a session of
        its own; of another one the record says why it has none, and nothing is kept but its log.

        Raises:
            MachineError: it cannot be started.
            StoreError: the folder is of another command, machine or version of torch.
            OutputError: it cannot be written.
        """
        make_directory(folder)
        scratch, log = folder / _SCRATCH, folder / LOG
        for earlier in (scratch, log):  # of a launch that was killed; a link is no log of ours
            remove_tree(earlier)
        began = datetime.now(timezone.utc).isoformat(timespec="seconds")
        steps = ProgramSteps(command, scratch, self.launch_seconds)
        try:
            end = run_logged(
                command,
                log,
                steps.environment(os.environ),
                timeout_seconds=self.timeout_seconds,
                stop=self.stop,
                is_measured=steps.is_measured,
            )
            keep_log(log, log)
            started = _Started(WatchedProgram(command), steps.rule, began, end)
            measured = steps.measured() if end.state == "ok" else None
            if measured is None:
                return started.failed(steps.world_size, end.reason or steps.shortfall)
            return started.keep(measured, folder, self.environment)
        finally:
            steps.close()


@dataclass(frozen=True)
class _Started:
    """A launch that has ended.

    Attributes:
        program: Of which command.
        rule: Of warm-up and measurement.
        began: UTC, ISO 8601.
        end: How it ended.
    """

    program: WatchedProgram
    rule: Measurement
    began: str
    end: ProgramEnd

    def failed(self, world_size: int, reason: str) -> LaunchRecord:
        """Its record without figures; ``world_size`` is 0 where it is not known."""
        record = self._record(self._cell(max(1, world_size)), 0, TrainingResult())
        return record.model_copy(update={"state": _STATES[self.end.state], "reason": reason})

    def keep(
        self, measured: MeasuredProgram, folder: Path, environment: Environment
    ) -> LaunchRecord:
        """Add it to the run folder as the next launch of its cell."""
        cell = self._cell(len(measured.streams))
        threads = measured.streams[0].facts.threads or 1
        file = self.program.experiment_file([cell], environment, self.began, threads)
        run = RunFolder.create(folder, file)
        number = next(n for n in count() if not run.launch_directory(cell, n).exists())
        result = measured.write(run.begin_launch(cell, number))
        record = self._record(cell, number, result)
        run.finish_launch(cell, record)
        return record

    def _cell(self, world_size: int) -> TrainingCell:
        return self.program.cell(world_size, self.rule)

    def _record(self, cell: TrainingCell, number: int, result: TrainingResult) -> LaunchRecord:
        return LaunchRecord(
            cell_id=cell.id,
            launch=number,
            state=State.OK,
            started_at=self.began,
            seconds=self.end.seconds,
            command=self.program.command,
            payload=result,
        )
