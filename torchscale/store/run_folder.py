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

import os
import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import RootModel

from torchscale.errors import FileSystemError, OutputError, StoreError
from torchscale.schema.cells.kinds import AnyCell
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.steps import StepSample
from torchscale.schema.launch.telemetry import Reading
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.schema.run.content import CellRun, Run
from torchscale.schema.run.experiment_file import ExperimentFile, PlannedCell
from torchscale.schema.watch.report import WatchReport
from torchscale.store.json_files import (
    DamagedFileError,
    UnreadableFileError,
    read_lines,
    read_model,
)
from torchscale.store.resume import (
    refuse_other_experiment,
    refuse_other_machine,
    with_declared_hardware,
)
from torchscale.util.files import atomic_write_model, fsync_directory, leads_out, make_directory
from torchscale.util.logs import clean_logs

_LAUNCH_NAME = re.compile(r"^launch-(\d{1,6})$")
_PROFILE_NAME = re.compile(r"^profile-(\d{1,6})$")
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
            if (path / "watch.json").is_file():
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
        problems: list[str] = []
        launches = []
        try:
            entries = _entries(self.path / "cells" / planned.cell.id)
        except OSError as error:
            reason = f"cells/{planned.cell.id}: {error.strerror or error}"
            return CellRun(planned, ()), [reason]
        for directory in _numbered(entries, _LAUNCH_NAME):
            try:
                record = self._read_record(directory, planned.cell)
            except DamagedFileError as error:
                problems.append(str(error))
                continue
            if record is not None:
                launches.append(record)
        try:
            profile = self._read_profile(_numbered(entries, _PROFILE_NAME))
        except DamagedFileError as error:
            problems.append(str(error))
            profile = None
        return CellRun(planned, tuple(launches), profile), problems

    def record(self, cell: AnyCell, launch: int) -> LaunchRecord | None:
        """The completed launch, or ``None``; one that is damaged or of another version is moved to
        quarantine first (writes), and :attr:`set_aside_notes` says so.

        Raises:
            StoreError: its directory is a link that leads out of the folder.
            FileSystemError: its file system fails.
            OutputError: it cannot be moved.
        """
        directory = self.launch_directory(cell, launch)
        self._refuse_link(directory)
        try:
            return self._read_record(directory, cell)
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
        self._refuse_gone()
        directory = self.launch_directory(cell, launch)
        self._refuse_link(directory)
        if directory.exists():
            self.set_aside(cell, launch, "partial")
        try:
            directory.mkdir(parents=True)
        except OSError as error:
            raise OutputError(f"cannot create {directory}: {error.strerror or error}") from error
        for unfinished in directory.parent.glob(
            ".cell.json.*.tmp"
        ):  # of a command that was killed while it wrote
            unfinished.unlink(missing_ok=True)
        if not (directory.parent / "cell.json").exists():
            atomic_write_model(directory.parent / "cell.json", cell)
        return directory

    def finish_launch(self, cell: AnyCell, record: LaunchRecord) -> None:
        """Write ``record.json``: from here on the launch is complete.

        Raises:
            OutputError: it cannot be written, or the folder has gone.
        """
        self._refuse_gone()
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
        self._refuse_gone()
        parent = self.path / "cells" / cell.id
        self._refuse_link(parent)
        number = (
            max(
                (_number(earlier) for earlier in self._directories(cell, _PROFILE_NAME)), default=-1
            )
            + 1
        )
        directory = parent / f"profile-{number}"
        try:
            directory.mkdir(parents=True)
        except OSError as error:
            raise OutputError(f"cannot create {directory}: {error.strerror or error}") from error
        if not (parent / "cell.json").exists():
            atomic_write_model(parent / "cell.json", cell)
        return directory

    def has_profile(self, cell: AnyCell) -> bool:
        """Whether a recording of the cell was analyzed."""
        return any(
            (path / "analysis.json").is_file() for path in self._directories(cell, _PROFILE_NAME)
        )

    def set_aside(self, cell: AnyCell, launch: int, why: str) -> Path:
        """Move a launch to ``quarantine/<cell-id>-launch-K-<why>-<n>`` (writes); nothing is
        deleted."""
        quarantine = self.path / "quarantine"
        self._refuse_link(quarantine)
        try:
            quarantine.mkdir(exist_ok=True)
            number = 0
            while (target := quarantine / f"{cell.id}-launch-{launch}-{why}-{number}").exists():
                number += 1
            self.launch_directory(cell, launch).rename(target)
            fsync_directory(quarantine)
            if (
                why == "partial"
            ):  # the command that ran it was killed before it could clean its logs
                clean_logs(target)
        except OSError as error:
            raise OutputError(
                f"cannot set aside a launch of {cell.id}: {error.strerror or error}"
            ) from error
        return target

    def readings(self, cell: AnyCell, launch: int) -> tuple[Reading, ...]:
        """Telemetry of a launch; empty where none was read, lines that cannot be read left out."""
        return read_lines(
            self.path, self.launch_directory(cell, launch) / "telemetry.jsonl", Reading
        )

    def watched(self, cell: AnyCell, launch: int) -> WatchReport | None:
        """What ``watch`` saw of a launch of a user's program; ``None`` where there is none, or it
        cannot be read."""
        path = self.launch_directory(cell, launch) / "watch" / "watch.json"
        if not path.is_file():
            return None
        try:
            return read_model(self.path, path, WatchReport)
        except DamagedFileError:
            return None

    def steps(self, cell: AnyCell, launch: int, rank: int) -> tuple[StepSample, ...]:
        """Every step of a rank; empty where they were not kept, lines that cannot be read left
        out."""
        return read_lines(
            self.path, self.launch_directory(cell, launch) / f"steps-rank-{rank}.jsonl", StepSample
        )

    def launch_directory(self, cell: AnyCell, launch: int) -> Path:
        """Where a launch's files are or would be."""
        return self.path / "cells" / cell.id / f"launch-{launch}"

    def _refuse_gone(self) -> None:
        """Refuse to measure into a folder without its ``experiment.json``: no report would find the
        result.

        Raises:
            OutputError: the folder was moved or removed by somebody.
        """
        if not os.path.lexists(self.path / "experiment.json"):
            raise OutputError(
                f"{self.path} was moved or removed while it was measured",
                hint="what is complete is where it is now; continue there with --output-dir",
            )

    def _refuse_link(self, directory: Path) -> None:
        """Nothing is read, and so nothing may be written, where a link leads out of the folder:
        others could have put it there, and what is measured into it would be missing from every
        report.

        Raises:
            StoreError: a link on the way to ``directory`` leads out.
        """
        try:
            leads = leads_out(self.path, directory)
        except OSError:
            leads = True
        if leads:
            raise StoreError(
                f"{directory} is reached by a link that leads out of {self.path}",
                hint="move the whole results directory instead, and name its new place with "
                "--output-dir; the results directory itself may be a link",
            )

    def _measured_beyond(self, experiment: ExperimentFile) -> list[PlannedCell]:
        """Cells measured here that the new plan lacks: they stay in the report."""
        planned = {entry.cell.id for entry in experiment.plan}
        return [
            entry
            for entry in self.experiment.plan
            if entry.cell.id not in planned
            and (self._directories(entry.cell, _LAUNCH_NAME) or self.has_profile(entry.cell))
        ]

    def _directories(self, cell: AnyCell, name: re.Pattern[str]) -> list[Path]:
        return _numbered(_entries(self.path / "cells" / cell.id), name)

    def _read_profile(self, directories: Sequence[Path]) -> ProfileAnalysis | None:
        """The last recording that was analyzed."""
        for directory in reversed(directories):
            if os.path.lexists(directory / "analysis.json"):
                return read_model(self.path, directory / "analysis.json", ProfileAnalysis)
        return None

    def _read_record(self, directory: Path, cell: AnyCell) -> LaunchRecord | None:
        path = directory / "record.json"
        try:
            path.lstat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnreadableFileError(
                f"{path.relative_to(self.path)}: {error.strerror or error}"
            ) from error
        record = read_model(self.path, path, LaunchRecord)
        if record.cell_id != cell.id or f"launch-{record.launch}" != directory.name:
            where = path.relative_to(self.path)
            raise DamagedFileError(
                f"{where}: belongs to launch {record.launch} of {record.cell_id[:100]!r}"
            )
        if record.payload.kind != cell.kind:
            where = path.relative_to(self.path)
            raise DamagedFileError(
                f"{where}: its payload is of kind {record.payload.kind}, but its cell is of kind "
                f"{cell.kind}"
            )
        return record


def read_cell(directory: Path) -> AnyCell:
    """The cell whose directory this is.

    Raises:
        DamagedFileError: its ``cell.json`` is missing or cannot be read.
    """
    path = directory / "cell.json"
    if not path.exists():
        raise DamagedFileError(f"{path}: not there")
    return read_model(directory, path, _CellFile).root


class _CellFile(RootModel[AnyCell]):
    """``cell.json``."""


def _numbered(entries: Sequence[Path], name: re.Pattern[str]) -> list[Path]:
    """Entries whose names match ``name``, by their number."""
    return sorted((entry for entry in entries if name.match(entry.name) is not None), key=_number)


def _number(directory: Path) -> int:
    return int(directory.name.rpartition("-")[2])


def _entries(directory: Path) -> list[Path]:
    """What is in a directory; nothing where it is none.

    Raises:
        OSError: its file system fails.
    """
    try:
        return list(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
