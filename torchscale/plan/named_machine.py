"""A machine that is not here, for the plan of ``--dry-run --hardware``."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from torchscale.catalog.machines import ACCELERATORS, NamedMachine, find_machine_named
from torchscale.catalog.presets import HARDWARE_PRESETS
from torchscale.errors import UsageError
from torchscale.schema.node.environment import DeviceInfo, Environment, Versions
from torchscale.schema.node.machine import Machine
from torchscale.util.words import did_you_mean
from torchscale.version import __version__


def machine_named(name: str) -> Machine:
    """The machine as a plan sees it: devices by their data sheets, with the PyTorch that is
    installed here.

    Raises:
        UsageError: there is no such machine.
    """
    named = find_machine_named(name)
    if named is None:
        known = [preset for preset in HARDWARE_PRESETS if find_machine_named(preset) is not None]
        raise UsageError(
            f"--hardware {name}: no such machine{did_you_mean(name, known)}",
            hint=f"known: {', '.join(known)}; or any count of {', '.join(ACCELERATORS)}, such as "
            "4xa100",
        )
    cores: tuple[int, ...] = ()
    if named.accelerator is None:
        cores = tuple(range(named.count))
    return Machine(_environment(named), cores)


def _environment(named: NamedMachine) -> Environment:
    gpu = named.accelerator
    devices: tuple[DeviceInfo, ...] = ()
    if gpu is not None:
        devices = tuple(
            DeviceInfo(
                kind="cuda",
                index=index,
                name=gpu.driver_name,
                memory_bytes=gpu.memory_bytes,
                compute_capability=gpu.capability,
            )
            for index in range(named.count)
        )
    versions = Versions(
        torchscale=__version__,
        python=platform.python_version(),
        torch=_installed_torch(),
        torchao="not known",
    )
    return Environment(
        hostname=named.name,
        system="not known",
        cpu="not known",
        cores=named.count,
        versions=versions,
        devices=devices,
        cuda_available=gpu is not None,
    )


def _installed_torch() -> str:
    try:
        return version("torch")
    except PackageNotFoundError:
        return "not installed"
