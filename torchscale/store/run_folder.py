"""The run folder: its layout, and what is read from and written to it. Plain files that a person
can read.

::

    results/<experiment>/
      experiment.json
      cells/<cell-id>/cell.json
      cells/<cell-id>/launch-0/record.json, steps-rank-0.jsonl, …
      summary.csv
      quarantine/           what was damaged or replaced, never deleted
"""

from __future__ import annotations

from pathlib import Path

from torchscale.errors import FileSystemError, StoreError
from torchscale.schema.cells.kinds import AnyCell
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.steps import StepSample
from torchscale.schema.launch.telemetry import Reading
from torchscale.schema.run.content import CellRun, Run
from torchscale.schema.run.experiment_file import ExperimentFile, PlannedCell
from torchscale.store.cell_files import (
    launch_directories,
    make_cell_directory,
    number_of,
    read_cell_run,
    read_launch,
    recording_directories,
    set_aside,
)
from torchscale.store.json_files import (
    DamagedFileError,
    UnreadableFileError,
    read_lines,
    read_model,
)
from torchscale.store.locations import WATCH_REPORT
from torchscale.store.resume import (
    refuse_gone,
    refuse_link,
    refuse_other_experiment,
    refuse_other_machine,
    with_declared_hardware,
)
from torchscale.util.files import atomic_write_model, make_directory

PROFILED_ONLY = "profiled, not measured"
"""Why a cell that was profiled alone has no figures."""


def load_run(directory: Path) -> Run:
    """Read a run folder without changing it; what is damaged is left out and named in ``problems``.

    Raises:
        StoreError: the directory is not a run folder, or its ``experiment.json`` cannot be read.
    """
    return RunFolder.open(directory).load()


class RunFolder:
    """A run folder on disk. Only :meth:`create` and the methods named as writing write.

    Attributes:
        path: Directory of the run.
        experiment: What ``experiment.json`` holds.
        set_aside_notes: What :meth:`record` could not read and moved to quarantine, a line each.
    """

    def __init__(self, path: Path, experiment: ExperimentFile) -> None:
        self.path = path
        self.experiment = experiment
        self.set_aside_notes: list[str] = []

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open an existing folder for reading.

        Raises:
            StoreError: it is not one, or its ``experiment.json`` is damaged or of another version.
            FileSystemError: it cannot be looked at.
        """
        try:
            return cls._open(path)
        except DamagedFileError as error:
            raise error.refused() from error
        except OSError as error:
            raise FileSystemError.of(error) from error

    @classmethod
    def _open(cls, path: Path) -> RunFolder:
        if not path.is_dir():
            raise StoreError(
                f"{path} is not a directory",
                hint="name the directory that `torchscale benchmark` wrote",
            )
        if not (path / "experiment.json").is_file():
            hint = None
            if (path / WATCH_REPORT).is_file():
                hint = f"it holds a watched job: torchscale watch {path}"
            raise StoreError(
                f"{path} is not a results directory: it has no experiment.json", hint=hint
            )
        return cls(path, read_model(path, path / "experiment.json", ExperimentFile))

    @classmethod
    def create(cls, path: Path, experiment: ExperimentFile) -> RunFolder:
        """Start a folder, or join one that this experiment may go on in (writes
        ``experiment.json``).

        Raises:
            StoreError: the folder belongs to another experiment; the message names the keys that
                differ.
            OutputError: it cannot be written.
        """
        make_directory(path / "cells")
        if (path / "experiment.json").exists():
            earlier = cls.open(path)
            refuse_other_experiment(path, earlier.experiment, experiment)
            grown = {
                "config": experiment.config,
                "plan_hash": experiment.plan_hash,
                "plan": (*experiment.plan, *earlier._measured_beyond(experiment)),
            }
            experiment = earlier.experiment.continued_by(experiment).model_copy(update=grown)
        folder = cls(path, experiment)
        atomic_write_model(path / "experiment.json", experiment)
        return folder

    @classmethod
    def join(cls, path: Path, experiment: ExperimentFile) -> RunFolder:
        """Open a folder to put more cells in, those of ``experiment.plan``, or start one (writes
        ``experiment.json``).

        The config of the folder stays as it is, except for newly declared links and peaks; the
        session is added.

        Raises:
            StoreError: an existing folder cannot be read, or was measured on another machine than
                these cells will be.
            OutputError: it cannot be written.
        """
        if not (path / "experiment.json").exists():
            return cls.create(path, experiment)
        folder = cls.open(path)
        if any(entry.skip_reason is None for entry in experiment.plan):
            refuse_other_machine(path, folder.experiment, experiment)
        planned = {entry.cell.id for entry in folder.experiment.plan}
        joining = [entry for entry in experiment.plan if entry.cell.id not in planned]
        config = with_declared_hardware(folder.experiment.config, experiment.config)
        grown = {"plan": (*folder.experiment.plan, *joining), "config": config}
        joined = folder.experiment.continued_by(experiment).model_copy(update=grown)
        if joined == folder.experiment:
            return folder
        atomic_write_model(path / "experiment.json", joined)
        return cls(path, joined)

    def load(self) -> Run:
        """Everything in the folder, in plan order; changes nothing."""
        cells = [self.load_cell(planned) for planned in self.experiment.plan]
        problems = tuple(problem for _, cell_problems in cells for problem in cell_problems)
        return Run(
            self.path.name, self.experiment, tuple(cell_run for cell_run, _ in cells), problems
        )

    def load_cell(self, planned: PlannedCell) -> tuple[CellRun, list[str]]:
        """One cell's launches and profile, and what could not be read of them; changes nothing."""
        return read_cell_run(self.path, planned)

    def record(self, cell: AnyCell, launch: int) -> LaunchRecord | None:
        """The completed launch, or ``None``; one that is damaged or of another version is moved to
        quarantine first (writes), and :attr:`set_aside_notes` says so.

        Raises:
            StoreError: its directory is a link that leads out of the folder.
            FileSystemError: its file system fails.
            OutputError: it cannot be moved.
        """
        directory = self.launch_directory(cell, launch)
        refuse_link(self.path, directory)
        try:
            return read_launch(self.path, directory, cell)
        except UnreadableFileError as error:  # which may be whole
            raise error.refused() from error
        except DamagedFileError as error:
            target = self.set_aside(cell, launch, "damaged")
            self.set_aside_notes.append(
                f"{error}; moved to {target.relative_to(self.path)}, and measured again"
            )
            return None

    def begin_launch(self, cell: AnyCell, launch: int) -> Path:
        """An empty directory for a launch (writes); what an earlier attempt left there is set
        aside.

        Raises:
            StoreError: its directory is a link that leads out of the folder.
            OutputError: it cannot be made, or the folder has gone.
        """
        refuse_gone(self.path)
        directory = self.launch_directory(cell, launch)
        refuse_link(self.path, directory)
        if directory.exists():
            self.set_aside(cell, launch, "partial")
        # Of a command that was killed while it wrote.
        for unfinished in directory.parent.glob(".cell.json.*.tmp"):
            unfinished.unlink(missing_ok=True)
        make_cell_directory(directory, cell)
        return directory

    def finish_launch(self, cell: AnyCell, record: LaunchRecord) -> None:
        """Write ``record.json``: from here on the launch is complete.

        Raises:
            OutputError: it cannot be written, or the folder has gone.
        """
        refuse_gone(self.path)
        directory = self.launch_directory(cell, record.launch)
        if (
            not directory.exists()
        ):  # the model removed it: its other files are lost, and the sweep goes on
            directory.mkdir(parents=True)
        atomic_write_model(directory / "record.json", record)

    def begin_profile(self, cell: AnyCell) -> Path:
        """A new, empty directory for a recording of a cell (writes).

        Raises:
            StoreError: its directory is a link that leads out of the folder.
            OutputError: it cannot be made, or the folder has gone.
        """
        refuse_gone(self.path)
        parent = self.path / "cells" / cell.id
        refuse_link(self.path, parent)
        earlier = map(number_of, recording_directories(parent))
        directory = parent / f"profile-{max(earlier, default=-1) + 1}"
        make_cell_directory(directory, cell)
        return directory

    def has_profile(self, cell: AnyCell) -> bool:
        """Whether a recording of the cell was analyzed."""
        folder = self.path / "cells" / cell.id
        return any((path / "analysis.json").is_file() for path in recording_directories(folder))

    def set_aside(self, cell: AnyCell, launch: int, why: str) -> Path:
        """Move a launch to ``quarantine/<cell-id>-launch-K-<why>-<n>`` (writes); nothing is
        deleted."""
        refuse_link(self.path, self.path / "quarantine")
        return set_aside(self.path, self.launch_directory(cell, launch), why)

    def readings(self, cell: AnyCell, launch: int) -> tuple[Reading, ...]:
        """Telemetry of a launch; empty where none was read, lines that cannot be read left out."""
        return read_lines(
            self.path, self.launch_directory(cell, launch) / "telemetry.jsonl", Reading
        )

    def steps(self, cell: AnyCell, launch: int, rank: int) -> tuple[StepSample, ...]:
        """Every step of a rank; empty where they were not kept, lines that cannot be read left
        out."""
        return read_lines(
            self.path, self.launch_directory(cell, launch) / f"steps-rank-{rank}.jsonl", StepSample
        )

    def launch_directory(self, cell: AnyCell, launch: int) -> Path:
        """Where a launch's files are or would be."""
        return self.path / "cells" / cell.id / f"launch-{launch}"

    def _measured_beyond(self, experiment: ExperimentFile) -> list[PlannedCell]:
        """Cells measured here that the new plan lacks: they stay in the report."""
        planned = {entry.cell.id for entry in experiment.plan}
        return [
            entry
            for entry in self.experiment.plan
            if entry.cell.id not in planned
            and (
                launch_directories(self.path / "cells" / entry.cell.id)
                or self.has_profile(entry.cell)
            )
        ]
