"""Runs the sampler during a launch: starts it before the ranks and ends it after them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
from pydantic import ValidationError

from torchscale.errors import MachineError, OutputError
from torchscale.schema.launch.telemetry import Reading
from torchscale.util.files import read_bounded
from torchscale.util.interpreter import module_command
from torchscale.util.logs import open_log
from torchscale.util.processes.subprocesses import ManagedProcess, inherited_environment

READINGS = "telemetry.jsonl"
_LOG = "telemetry.log"
_CPU_SECONDS = '"sampler_cpu_seconds"'
_MAX_BYTES = 1 << 30
"""Maximum number of bytes of readings: ten times those of a day at one a second, of eight GPUs."""


@contextmanager
def sampling(
    directory: Path, interval_seconds: float | None, uuids: Sequence[str]
) -> Iterator[None]:
    """Read the machine into ``directory`` within this context; see :class:`TelemetrySampler`."""
    sampler = TelemetrySampler(directory, interval_seconds, uuids)
    try:
        yield
    finally:
        sampler.close()


class TelemetrySampler:
    """A process that reads the machine into a directory until it is closed. It reads nothing if
    ``interval_seconds`` is ``None``, or if it cannot be started: telemetry must not stop a launch.

    Attributes:
        uuids: UUIDs of the GPUs that it reads.
    """

    def __init__(
        self, directory: Path, interval_seconds: float | None, uuids: Sequence[str]
    ) -> None:
        self.uuids = frozenset(uuids)
        self._directory = directory
        self._process: ManagedProcess | None = None
        self._copied = 0
        self._used_before = 0.0
        if interval_seconds is None:
            return
        command = module_command(
            "torchscale.launch.sampler", str(directory / READINGS), str(interval_seconds), *uuids
        )
        with contextlib.suppress(MachineError, OutputError), open_log(directory / _LOG) as log:
            self._process = ManagedProcess(
                command, env=inherited_environment(), stdout=log, stderr=log
            )

    def copy_new(self, since: float, directory: Path) -> None:
        """Write the readings since the last call, but none before ``since`` (seconds since the
        epoch), as those of ``directory``, and the sampler's CPU time since then: for a launch that
        shares the sampler with others."""
        try:
            with (self._directory / READINGS).open("rb") as file:
                file.seek(self._copied)
                content = file.read()
        except OSError:
            return
        whole = content[: content.rfind(b"\n") + 1]  # a line may be half written
        self._copied += len(whole)
        kept = [line for line in whole.splitlines(keepends=True) if _time_of(line) >= since]
        used, self._used_before = self._cpu_seconds() - self._used_before, self._cpu_seconds()
        if kept:
            kept.append(f"{{{_CPU_SECONDS}: {used}}}\n".encode())
            try:
                (directory / READINGS).write_bytes(b"".join(kept))
            except OSError:  # a full disk: the launch has no telemetry
                (directory / READINGS).unlink(missing_ok=True)

    def _cpu_seconds(self) -> float:
        if self._process is None:
            return 0.0
        try:
            times = psutil.Process(self._process.pid).cpu_times()
        except psutil.Error:
            return self._used_before
        return times.user + times.system

    def close(self) -> None:
        """End the process."""
        if self._process is None:
            return
        self._process.end()
        log = self._directory / _LOG
        if log.exists() and log.stat().st_size == 0:
            log.unlink()


class SharedSampler:
    """One :class:`TelemetrySampler` for launches that follow each other; it is started by the first that
    wants readings."""

    def __init__(self, directory: Path) -> None:
        """``directory``: where it writes while it runs."""
        self._directory = directory
        self._sampler: TelemetrySampler | None = None

    def read(self, interval_seconds: float | None, uuids: Sequence[str]) -> None:
        """Read these GPUs and the machine from now on, unless ``interval_seconds`` is ``None``."""
        if interval_seconds is None or (
            self._sampler is not None and self._sampler.uuids.issuperset(uuids)
        ):
            return
        if self._sampler is not None:
            self.close()
            (self._directory / READINGS).unlink(missing_ok=True)
        self._sampler = TelemetrySampler(self._directory, interval_seconds, uuids)

    def copy_new(self, since: float, directory: Path) -> None:
        """Write new readings as :meth:`TelemetrySampler.copy_new` does."""
        if self._sampler is not None:
            self._sampler.copy_new(since, directory)

    def close(self) -> None:
        """End it."""
        if self._sampler is not None:
            self._sampler.close()
        self._sampler = None


def read_readings(path: Path) -> tuple[list[Reading], float | None]:
    """The sampler's readings in a file, and the CPU seconds that it used; incomplete lines are left
    out."""
    try:
        lines = read_bounded(path, _MAX_BYTES).decode().splitlines()
    except (OSError, UnicodeDecodeError):
        return [], None
    readings, cpu_seconds = [], None
    for line in lines:
        if line.startswith("{" + _CPU_SECONDS):
            cpu_seconds = _seconds(line.rpartition(":")[2].strip(" }"))
            continue
        try:
            readings.append(Reading.model_validate_json(line))
        except ValidationError:
            continue
    return readings, cpu_seconds


def _seconds(text: str) -> float | None:
    """``None`` for what is no time: the file can come from another node."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    if 0 <= seconds < math.inf:
        return seconds
    return None


def _time_of(line: bytes) -> float:
    try:
        return Reading.model_validate_json(line).time
    except ValidationError:
        return -math.inf
