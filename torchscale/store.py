"""The run folder: atomic writes, resume, quarantine. Plain files that a person can read, tar and send.

::

    results/<experiment>/
      experiment.json
      cells/<cell-id>/cell.json
      cells/<cell-id>/launch-0/record.json, steps-rank-0.jsonl, …
      summary.csv
      quarantine/           what was damaged or replaced, never deleted
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, RootModel, ValidationError

from torchscale.errors import OutputError, StoreError
from torchscale.schema.base import SCHEMA_VERSION
from torchscale.schema.config import Experiment
from torchscale.schema.experiment import ExperimentFile, PlannedCell
from torchscale.schema.profile import ProfileAnalysis
from torchscale.schema.record import LaunchRecord, StepSample
from torchscale.schema.run import CellRun, Run
from torchscale.schema.task import AnyCell
from torchscale.schema.telemetry import Reading

_LAUNCH_NAME = re.compile(r"^launch-(\d{1,6})$")
_PROFILE_NAME = re.compile(r"^profile-(\d{1,6})$")
PROFILED_ONLY = "profiled, not measured"
"""Why a cell that was profiled alone has no figures."""
_MAX_JSON_BYTES = 64 * 2**20
_MAX_MESSAGE = 300
_MAX_LINES_BYTES = 256 * 2**20
# Keys that may change between a run and its resumption: axes grow, bounds of a launch do not touch its figures.
_GROWING_KEYS = (
    ("models",),
    ("batch_sizes",),
    ("gpu_counts",),
    ("training", "precision"),
    ("training", "optimizer"),
    ("training", "fused"),
    ("training", "gradient_accumulation"),
    ("training", "activation_checkpointing"),
    ("data", "source"),
    ("model", "channels_last"),
    ("model", "compile"),
    ("parallel", "strategy"),
    ("benchmark", "repeats"),
    ("benchmark", "cell_seconds"),
    ("launch", "timeout_seconds"),
    ("launch", "stall_timeout_seconds"),
    ("launch", "isolation"),
    ("profiling",),
    ("measure",),
    ("benchmark", "skip_larger_batches"),
    # A change of these makes other cells, or touches what is said about them and not what they measured.
    ("collectives",),
    ("hardware",),
    ("memory",),
    ("telemetry",),
)

M = TypeVar("M", bound=BaseModel)


class DamagedFileError(Exception):
    """A file of a run folder that cannot be read; the text says which and why."""


def atomic_write_bytes(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: temporary file beside it, fsync, rename, fsync of the directory.

    Raises:
        OutputError: it could not be written (disk full, no permission); an older file is untouched.
    """
    temporary: Path | None = None
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:40]}.", suffix=".tmp", dir=path.parent)
        temporary = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
        _fsync_directory(path.parent)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}", hint="free space or choose another directory"
        ) from error


def atomic_write_text(path: Path, text: str) -> None:
    """:func:`atomic_write_bytes` of UTF-8 text."""
    atomic_write_bytes(path, text.encode("utf-8"))


def atomic_write_model(path: Path, model: BaseModel) -> None:
    """Write a schema object as indented JSON, atomically."""
    atomic_write_text(path, model.model_dump_json(indent=1) + "\n")


@contextmanager
def locked_folder(path: Path) -> Iterator[None]:
    """Make the folder if need be and hold it against a second sweep; the lock goes with the process, however it ends.

    Raises:
        StoreError: another process holds it.
        OutputError: it cannot be created or locked.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / ".lock").open("a")
    except OSError as error:
        raise OutputError(f"cannot create {path}: {error.strerror or error}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise OutputError(f"cannot lock {path}: {error.strerror or error}") from error
            raise StoreError(
                f"another torchscale is writing to {path}", hint="wait for it, or use another --output-dir"
            ) from error
        yield


def load_run(directory: Path) -> Run:
    """Read a run folder without changing it; what is damaged is left out and named in ``problems``.

    Raises:
        StoreError: the directory is not a run folder, or its ``experiment.json`` cannot be read.
    """
    return RunFolder.open(directory).load()


def load_profile(directory: Path) -> ProfileAnalysis | None:
    """The analysis in a directory that is no run folder but holds one recording; ``None`` for any other directory.

    Raises:
        StoreError: it is there and cannot be read.
    """
    path = directory / "analysis.json"
    if (directory / "experiment.json").exists() or not os.path.lexists(path):
        return None
    try:
        return read_model(directory, path, ProfileAnalysis)
    except DamagedFileError as error:
        raise StoreError(str(error), hint="analyse the recording again: torchscale profile analyze") from error


class RunFolder:
    """A run folder on disk. Only :meth:`create` and the methods named as writing write."""

    def __init__(self, path: Path, experiment: ExperimentFile) -> None:
        self.path = path
        self.experiment = experiment

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open an existing folder for reading.

        Raises:
            StoreError: it is not one, or its ``experiment.json`` is damaged or of a newer version.
        """
        if not path.is_dir():
            raise StoreError(f"{path} is not a directory", hint="name the directory that `torchscale benchmark` wrote")
        if not (path / "experiment.json").is_file():
            raise StoreError(f"{path} is not a results directory: it has no experiment.json")
        try:
            return cls(path, read_model(path, path / "experiment.json", ExperimentFile))
        except DamagedFileError as error:
            raise StoreError(str(error), hint="restore the file, or start again in another directory") from error

    @classmethod
    def create(cls, path: Path, experiment: ExperimentFile) -> RunFolder:
        """Start a folder, or join one that this experiment may go on in (writes ``experiment.json``).

        Raises:
            StoreError: the folder belongs to another experiment; the message names the keys that differ.
            OutputError: it cannot be written.
        """
        try:
            (path / "cells").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot create {path}: {error.strerror or error}") from error
        if (path / "experiment.json").exists():
            earlier = cls.open(path)
            _refuse_other_experiment(path, earlier.experiment, experiment)
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
        """Open a folder to put more cells in, those of ``experiment.plan``, or start one (writes ``experiment.json``).

        What the folder is about stays as it is, but for what is newly declared of links and peaks, and the sitting.

        Raises:
            StoreError: an existing folder cannot be read, or was measured on another machine than these cells will be.
            OutputError: it cannot be written.
        """
        if not (path / "experiment.json").exists():
            return cls.create(path, experiment)
        folder = cls.open(path)
        if any(entry.skip_reason is None for entry in experiment.plan):
            differing = _differences(_machine(folder.experiment), _machine(experiment))
            if differing:
                hint = "use another --output-dir"
                raise StoreError(f"{path} is of another machine; it differs in " + "; ".join(differing), hint=hint)
        known = {entry.cell.id for entry in folder.experiment.plan}
        joining = [entry for entry in experiment.plan if entry.cell.id not in known]
        config = _with_declared(folder.experiment.config, experiment.config)
        grown = {"plan": (*folder.experiment.plan, *joining), "config": config}
        joined = folder.experiment.continued_by(experiment).model_copy(update=grown)
        if joined == folder.experiment:
            return folder
        atomic_write_model(path / "experiment.json", joined)
        return cls(path, joined)

    def load(self) -> Run:
        """Everything in the folder, in plan order; changes nothing."""
        found = [self.load_cell(planned) for planned in self.experiment.plan]
        problems = tuple(problem for _, told in found for problem in told)
        return Run(self.path.name, self.experiment, tuple(run for run, _ in found), problems)

    def load_cell(self, planned: PlannedCell) -> tuple[CellRun, list[str]]:
        """One cell's launches and profile, and what could not be read of them; changes nothing."""
        problems: list[str] = []
        launches = []
        entries = _entries(self.path / "cells" / planned.cell.id)
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
        """The completed launch, or ``None``; a damaged one is moved to quarantine first (writes)."""
        directory = self.launch_directory(cell, launch)
        try:
            return self._read_record(directory, cell)
        except DamagedFileError:
            self.set_aside(cell, launch, "damaged")
            return None

    def begin_launch(self, cell: AnyCell, launch: int) -> Path:
        """An empty directory for a launch (writes); what an earlier attempt left there is set aside."""
        directory = self.launch_directory(cell, launch)
        if directory.exists():
            self.set_aside(cell, launch, "partial")
        try:
            directory.mkdir(parents=True)
        except OSError as error:
            raise OutputError(f"cannot create {directory}: {error.strerror or error}") from error
        if not (directory.parent / "cell.json").exists():
            atomic_write_model(directory.parent / "cell.json", cell)
        return directory

    def finish_launch(self, cell: AnyCell, record: LaunchRecord) -> None:
        """Write ``record.json``: from here on the launch is complete."""
        atomic_write_model(self.launch_directory(cell, record.launch) / "record.json", record)

    def begin_profile(self, cell: AnyCell) -> Path:
        """A new, empty directory for a recording of a cell (writes)."""
        parent = self.path / "cells" / cell.id
        number = max((_number(one) for one in self._directories(cell, _PROFILE_NAME)), default=-1) + 1
        directory = parent / f"profile-{number}"
        try:
            directory.mkdir(parents=True)
        except OSError as error:
            raise OutputError(f"cannot create {directory}: {error.strerror or error}") from error
        if not (parent / "cell.json").exists():
            atomic_write_model(parent / "cell.json", cell)
        return directory

    def has_profile(self, cell: AnyCell) -> bool:
        """Whether a recording of the cell was analysed."""
        return any((path / "analysis.json").is_file() for path in self._directories(cell, _PROFILE_NAME))

    def set_aside(self, cell: AnyCell, launch: int, why: str) -> Path:
        """Move a launch to ``quarantine/<cell-id>-launch-K-<why>-<n>`` (writes); nothing is deleted."""
        quarantine = self.path / "quarantine"
        try:
            quarantine.mkdir(exist_ok=True)
            number = 0
            while (target := quarantine / f"{cell.id}-launch-{launch}-{why}-{number}").exists():
                number += 1
            self.launch_directory(cell, launch).rename(target)
            _fsync_directory(quarantine)
        except OSError as error:
            raise OutputError(f"cannot set aside a launch of {cell.id}: {error.strerror or error}") from error
        return target

    def readings(self, cell: AnyCell, launch: int) -> tuple[Reading, ...]:
        """What was read beside a launch; empty where nothing was, lines that cannot be read left out."""
        return tuple(self._lines(self.launch_directory(cell, launch) / "telemetry.jsonl", Reading))

    def steps(self, cell: AnyCell, launch: int, rank: int) -> tuple[StepSample, ...]:
        """Every step of a rank; empty where they were not kept, lines that cannot be read left out."""
        return tuple(self._lines(self.launch_directory(cell, launch) / f"steps-rank-{rank}.jsonl", StepSample))

    def _lines(self, path: Path, model: type[M]) -> Iterator[M]:
        try:
            if not path.resolve().is_relative_to(self.path.resolve()) or not path.is_file():
                return
            if path.stat().st_size > _MAX_LINES_BYTES:
                return
            lines = path.read_bytes().splitlines()
        except (OSError, RuntimeError):
            return
        for line in lines:
            try:
                yield model.model_validate_json(line)
            except ValidationError:
                continue

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
            and (self._directories(entry.cell, _LAUNCH_NAME) or self.has_profile(entry.cell))
        ]

    def _directories(self, cell: AnyCell, name: re.Pattern[str]) -> list[Path]:
        return _numbered(_entries(self.path / "cells" / cell.id), name)

    def _read_profile(self, directories: Sequence[Path]) -> ProfileAnalysis | None:
        """The last recording that was analysed."""
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
            raise DamagedFileError(f"{path.relative_to(self.path)}: {error.strerror or error}") from error
        record = read_model(self.path, path, LaunchRecord)
        if record.cell_id != cell.id or f"launch-{record.launch}" != directory.name:
            where = path.relative_to(self.path)
            raise DamagedFileError(f"{where}: belongs to launch {record.launch} of {record.cell_id[:100]!r}")
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


def read_model(root: Path, path: Path, model: type[M]) -> M:
    """Read and validate one JSON file that lies inside ``root``.

    Raises:
        DamagedFileError: it leads outside, is too large, is not JSON, is of a newer version or breaks the schema.
    """

    def damaged(why: str) -> DamagedFileError:
        return DamagedFileError(f"{path.relative_to(root.parent)}: {why}")

    try:
        if _leads_out(root, path):
            raise damaged("a link that leads out of the results directory")
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            raise damaged("not a regular file")  # reading a pipe would wait for ever
        if facts.st_size > _MAX_JSON_BYTES:
            raise damaged(f"larger than {_MAX_JSON_BYTES >> 20} MiB")
        text = path.read_bytes()
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, before Python 3.13
        raise damaged(getattr(error, "strerror", None) or str(error)) from error
    try:
        found = model.model_validate_json(text)
    except ValidationError as error:
        raise damaged(_explain(text, error)) from error
    version = getattr(found, "schema_version", SCHEMA_VERSION)
    if version > SCHEMA_VERSION:  # the form fits; what it means may not
        raise damaged(_newer(version))
    return found


def _newer(version: int) -> str:
    return f"schema version {version}; this torchscale reads up to {SCHEMA_VERSION}"


def _explain(text: bytes, error: ValidationError) -> str:
    version = re.search(rb'"schema_version"\s*:\s*(\d{1,9})', text[:4096])
    if version is not None and int(version[1]) > SCHEMA_VERSION:
        return _newer(int(version[1]))
    first = error.errors(include_url=False, include_input=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    told = f"{key}: {first['msg']}" if key else str(first["msg"])
    return told if len(told) <= _MAX_MESSAGE else told[: _MAX_MESSAGE - 1] + "…"


def _refuse_other_experiment(path: Path, old: ExperimentFile, new: ExperimentFile) -> None:
    differing = _differences(_shared(old.config), _shared(new.config))
    old_machine, new_machine = _machine(old), _machine(new)
    differing += _differences(old_machine, new_machine)
    if differing:
        raise StoreError(
            f"{path} holds another experiment; it differs in " + "; ".join(differing),
            hint="use another --output-dir or experiment_name, or undo the change; only axes may grow",
        )


def _with_declared(config: Experiment, joining: Experiment) -> Experiment:
    """``config`` with what ``joining`` says of the hardware: it touches how figures are judged, and none of them."""
    said = {name: getattr(joining.hardware, name) for name in joining.hardware.model_fields_set}
    return config.model_copy(update={"hardware": config.hardware.model_copy(update=said)}) if said else config


def _shared(config: Experiment) -> dict[str, object]:
    """The keys of a config that must stay as they are for results to be comparable, flattened."""
    flat: dict[str, object] = {}
    for key, value in config.model_dump(mode="json").items():
        if isinstance(value, dict):
            flat.update({f"{key}.{sub}": item for sub, item in value.items() if (key, sub) not in _GROWING_KEYS})
        else:
            flat[key] = value
    return {key: value for key, value in flat.items() if (key.partition(".")[0],) not in _GROWING_KEYS}


def _machine(file: ExperimentFile) -> dict[str, object]:
    """What of the machine changes figures: devices, thread share, versions."""
    environment = file.environment
    devices = sorted({device.name for device in environment.devices}) or [environment.cpu]
    return {
        "device": ", ".join(devices),
        "threads per rank": file.threads_per_rank,
        "torch": environment.versions.torch,
        "CUDA": environment.versions.cuda,
        "NCCL": environment.versions.nccl,
    }


def _leads_out(root: Path, path: Path) -> bool:
    """Whether a link on the way from ``root`` to ``path`` leads out of ``root``; links are looked for first, since
    there are nearly never any."""
    inside = itertools.takewhile(lambda one: one != root, (path, *path.parents))
    if not any(map(os.path.islink, inside)):
        return False
    return not path.resolve().is_relative_to(root.resolve())


def _differences(old: dict[str, object], new: dict[str, object]) -> list[str]:
    return [f"{key} ({old.get(key)} there, {new.get(key)} here)" for key in new if old.get(key) != new.get(key)]


def _numbered(entries: Sequence[Path], name: re.Pattern[str]) -> list[Path]:
    """Those that are called so, by their number."""
    return sorted((entry for entry in entries if name.match(entry.name) is not None), key=_number)


def _number(directory: Path) -> int:
    return int(directory.name.rpartition("-")[2])


def _entries(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def _fsync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
