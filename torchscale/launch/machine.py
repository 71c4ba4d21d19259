"""Detects the machine: usable cores, and the environment as a worker process sees it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from torchscale.errors import MachineError
from torchscale.schema.node.environment import Environment
from torchscale.schema.node.machine import Machine
from torchscale.util.control_groups import read_text
from torchscale.util.extras import require
from torchscale.util.interpreter import module_command
from torchscale.util.nvml import Driver
from torchscale.util.processes.bounded import BoundedProcess, Finished
from torchscale.util.redaction import redact_arguments

_PROBE_SECONDS = 120.0
"""Importing torch takes a minute from a cold network file system; CUDA's initialization on eight
GPUs some seconds."""
_GPU_DRIVERS = ("/dev/nvidiactl", "/dev/dxg")
"""Device files of NVIDIA's driver: on Linux, and in Windows' subsystem for it."""
_SYSTEM_CPUS = Path("/sys/devices/system/cpu")
_SYSTEM_NODES = Path("/sys/devices/system/node")
_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


class Detection(Protocol):
    """A machine that is being examined."""

    def result(self) -> Machine:
        """The machine.

        Raises:
            MachineError: it cannot be examined.
        """


class MachineDetection:
    """A detection of the machine that has been started: the environment in a worker process, which
    imports torch. As a context manager it ends at the latest with the context."""

    def __init__(self) -> None:
        """Start it.

        Raises:
            UsageError: torch is not installed.
            MachineError: no process can be started.
        """
        require("torch", "training")
        self._process = BoundedProcess(module_command("torchscale.worker.probe.environment"))
        self._found: Machine | None = None

    def __enter__(self) -> MachineDetection:
        return self

    def __exit__(self, *_: object) -> None:
        """End it, if nobody has asked for the result."""
        self.close()

    def close(self) -> None:
        """End it."""
        self._process.__exit__()

    def result(self) -> Machine:
        """The machine.

        Raises:
            MachineError: torch cannot be imported, or the process does not finish in time.
        """
        if self._found is None:
            self._found = _machine(self._process.finish(timeout_seconds=_PROBE_SECONDS))
        return self._found


def detect_machine() -> Machine:
    """Detect the environment and the usable cores. Errors as :class:`MachineDetection`."""
    return MachineDetection().result()


def _machine(finished: Finished) -> Machine:
    hint = "run `torchscale validate` to see what is wrong"
    if finished.timed_out:
        raise MachineError(
            f"importing PyTorch and listing devices did not finish within {_PROBE_SECONDS:.0f} s",
            hint=hint,
        )
    if finished.returncode != 0:
        last = (finished.stderr.strip().splitlines() or ["no message"])[-1]
        raise MachineError(f"PyTorch cannot be used here: {last}", hint=hint)
    try:
        environment = Environment.model_validate_json(finished.stdout.strip().splitlines()[-1])
    except (ValidationError, IndexError) as error:
        raise MachineError(
            f"the environment probe printed {finished.stdout[-200:]!r}, not its JSON line",
            hint=hint,
        ) from error
    cores = usable_cores()
    return Machine(
        environment.model_copy(update={"cores": len(cores), "command": command_line()}),
        cores,
        node_cores(),
    )


def has_gpu_driver() -> bool:
    """Whether NVIDIA's driver is loaded, so that torch may find a GPU. Takes no time."""
    return any(Path(path).exists() for path in _GPU_DRIVERS)


def usable_cores(
    system_cpus: Path = _SYSTEM_CPUS, quota_file: Path = _CGROUP_QUOTA
) -> tuple[int, ...]:
    """One logical CPU per physical core that this process may use, cut to the container's CPU
    quota.

    Two ranks on the two hardware threads of one core would share it, and scaling would look worse
    than it is.
    """
    allowed = sorted(_allowed_cpus() or range(os.cpu_count() or 1))
    cores: dict[str, int] = {}
    for cpu in allowed:
        siblings = read_text(
            system_cpus / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        ) or str(cpu)
        cores.setdefault(siblings, cpu)
    limit = _quota(quota_file)
    chosen = tuple(cores.values())
    if limit is not None:
        return chosen[: max(1, limit)]
    return chosen


def _allowed_cpus() -> set[int]:
    """Logical CPUs that this process may use; empty where the system does not tell."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set()


def node_cores(system_nodes: Path = _SYSTEM_NODES) -> dict[int, tuple[int, ...]]:
    """Logical CPUs of each NUMA node that this process may use; empty where the system does not
    report them."""
    allowed = _allowed_cpus()
    nodes: dict[int, tuple[int, ...]] = {}
    for path in sorted(system_nodes.glob("node[0-9]*")):
        usable = tuple(
            cpu for cpu in _parse_cpu_list(read_text(path / "cpulist")) if cpu in allowed
        )
        if usable:
            nodes[int(path.name.removeprefix("node"))] = usable
    return nodes


def _parse_cpu_list(text: str) -> list[int]:
    """``0-3,8`` → 0, 1, 2, 3, 8."""
    cpus: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit():
            cpus += range(int(first), int(last if last.isdigit() else first) + 1)
    return cpus


def detect_gpus() -> list[tuple[int, int]]:
    """Compute capability of every GPU that answers; empty without a driver. Does not start
    torch."""
    import pynvml  # noqa: PLC0415 - only `init` needs it

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        driver = Driver(pynvml)
        handles = [
            driver.ask("nvmlDeviceGetHandleByIndex", index)
            for index in range(driver.whole("nvmlDeviceGetCount") or 0)
        ]
        # A GPU that fell off the bus, or one of another container, does not hide the others.
        asked = [
            driver.ask("nvmlDeviceGetCudaComputeCapability", handle)
            for handle in handles
            if handle is not None
        ]
        return [(int(answer[0]), int(answer[1])) for answer in asked if answer is not None]
    finally:
        pynvml.nvmlShutdown()


def command_line() -> tuple[str, ...]:
    """The command line of this process, secrets in overrides redacted."""
    return ("torchscale", *redact_arguments(sys.argv[1:]))


def _quota(path: Path) -> int | None:
    """Whole CPUs of a cgroup v2 quota; ``None`` without one."""
    parts = read_text(path).split()
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        return None
    return int(parts[0]) // int(parts[1])
