"""The sampler beside a launch: started before the ranks, ended after them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from torchscale.errors import MachineError
from torchscale.launch.process import ManagedProcess, inherited_environment
from torchscale.schema.telemetry import Reading

READINGS = "telemetry.jsonl"
_CPU_SECONDS = '"sampler_cpu_seconds"'


@contextmanager
def sampling(directory: Path, interval_seconds: float | None, uuids: Sequence[str]) -> Iterator[None]:
    """Read the machine into ``directory`` while this lasts; not at all where ``interval_seconds`` is ``None``, or where
    the sampler cannot be started: the launch matters more."""
    if interval_seconds is None:
        yield
        return
    command = [
        sys.executable, "-m", "torchscale.launch.sampler", str(directory / READINGS), str(interval_seconds), *uuids
    ]  # fmt: skip
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
    """What the sampler wrote, and the processor time it took; lines that are cut off are left out."""
    try:
        lines = (directory / READINGS).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return [], None
    readings, used = [], None
    for line in lines:
        if line.startswith("{" + _CPU_SECONDS):
            used = float(line.rpartition(":")[2].strip(" }"))
            continue
        try:
            readings.append(Reading.model_validate_json(line))
        except ValidationError:
            continue
    return readings, used
