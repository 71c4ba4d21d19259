"""Runs the sampler during a launch: starts it before the ranks and ends it after them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from torchscale.errors import MachineError
from torchscale.launch.process import ManagedProcess, inherited_environment
from torchscale.schema.launch.telemetry import Reading
from torchscale.util.interpreter import module_command

READINGS = "telemetry.jsonl"
_CPU_SECONDS = '"sampler_cpu_seconds"'


@contextmanager
def sampling(directory: Path, interval_seconds: float | None, uuids: Sequence[str]) -> Iterator[None]:
    """Read the machine into ``directory`` within this context. Reads nothing if ``interval_seconds`` is ``None``, or
    if the sampler cannot be started: telemetry must not stop a launch."""
    if interval_seconds is None:
        yield
        return
    command = module_command("torchscale.launch.sampler", str(directory / READINGS), str(interval_seconds), *uuids)
    try:
        with (directory / "telemetry.log").open("wb") as log:
            process = ManagedProcess(command, env=inherited_environment(), stdout=log, stderr=log)
    except MachineError:
        yield
        return
    try:
        yield
    finally:
        process.end()
        log_file = directory / "telemetry.log"
        if log_file.exists() and log_file.stat().st_size == 0:
            log_file.unlink()


def read_readings(directory: Path) -> tuple[list[Reading], float | None]:
    """The sampler's readings, and the CPU seconds that it used; incomplete lines are left out."""
    try:
        lines = (directory / READINGS).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return [], None
    readings, cpu_seconds = [], None
    for line in lines:
        if line.startswith("{" + _CPU_SECONDS):
            cpu_seconds = float(line.rpartition(":")[2].strip(" }"))
            continue
        try:
            readings.append(Reading.model_validate_json(line))
        except ValidationError:
            continue
    return readings, cpu_seconds
