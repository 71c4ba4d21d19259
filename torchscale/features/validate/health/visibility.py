"""Which GPUs CUDA_VISIBLE_DEVICES leaves, from the driver's list of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchscale.schema.node.probe import DriverFacts, GpuFacts

_GPU, _MIG = "GPU-", "MIG-"
BUS_ORDER = "PCI_BUS_ID"
"""The value of CUDA_DEVICE_ORDER with which CUDA counts as the driver does. Without it the fastest
GPU comes first."""


@dataclass(frozen=True)
class Visibility:
    """What CUDA makes of CUDA_VISIBLE_DEVICES.

    Attributes:
        entries: Entries that CUDA uses, as written.
        gpus: The GPU of each entry, ``None`` where CUDA's order of unlike GPUs decides.
        ignored: The first entry that CUDA refuses, and all behind it.
        reason: Why it refuses that one.
    """

    entries: tuple[str, ...]
    gpus: tuple[GpuFacts | None, ...]
    ignored: tuple[str, ...] = ()
    reason: str = ""


def visible(variable: str, driver: DriverFacts) -> Visibility:
    """What CUDA makes of ``variable``: numbers, UUIDs of GPUs or their beginnings, or of a MIG
    slice. CUDA uses the entries before the first one that names nothing, and none at all where one
    is listed twice (CUDA C++ Programming Guide, "CUDA Environment Variables")."""
    entries = [entry.strip() for entry in variable.split(",")]
    used: list[str] = []
    gpus: list[GpuFacts | None] = []
    for position, entry in enumerate(entries):
        gpu, reason = _resolve(entry, driver)
        if not reason and (
            entry in used or (gpu is not None and entry.startswith(_GPU) and gpu in gpus)
        ):
            return Visibility((), (), tuple(entries), f"{entry} is listed twice")
        if reason:
            return Visibility(tuple(used), tuple(gpus), tuple(entries[position:]), reason)
        used.append(entry)
        gpus.append(gpu)
    return Visibility(tuple(used), tuple(gpus))


def _resolve(entry: str, driver: DriverFacts) -> tuple[GpuFacts | None, str]:
    """The GPU that an entry names, ``None`` where that is not known; or why it names none."""
    if entry.startswith(_GPU):
        named = [gpu for gpu in driver.gpus if (gpu.uuid or "").startswith(entry)]
        if len(named) == 1:
            return named[0], ""
        return None, f"{entry} is the UUID of {'several GPUs' if named else 'no GPU of this node'}"
    if entry.startswith(_MIG):
        for gpu in driver.gpus:
            if entry in (gpu.slices or ()) or _is_old_name(entry, gpu):
                return gpu, ""
        return None, f"{entry} is the UUID of no MIG slice of this node"
    if not re.fullmatch(r"\d+", entry):
        return None, f"{entry or 'an empty entry'} is no number and no UUID"
    count, number = len(driver.gpus), int(entry)
    if number >= count:
        return None, f"{entry} is out of range: the driver lists {count} GPU{'s' * (count != 1)}"
    alike = len({gpu.name for gpu in driver.gpus}) == 1
    if alike or driver.device_order == BUS_ORDER:
        return driver.gpus[number], ""
    return None, ""


def _is_old_name(entry: str, gpu: GpuFacts) -> bool:
    """``MIG-GPU-<UUID>/<GPU instance>/<compute instance>``, as drivers before 470 named slices."""
    return gpu.uuid is not None and entry.startswith(f"MIG-{gpu.uuid}/")
