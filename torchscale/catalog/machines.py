"""Machines by name, for plans made elsewhere: ``8xh100``, ``4xa100``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torchscale.catalog.presets import HARDWARE_PRESETS

_NAME = re.compile(r"(\d{1,3})x([a-z0-9]+)(?:-[a-z0-9]+)?")
_MOST_DEVICES = 128
"""More than any single node has."""


@dataclass(frozen=True)
class Accelerator:
    """A GPU, as far as a plan needs it.

    Attributes:
        driver_name: Name as the driver reports it.
        capability: CUDA compute capability (NVIDIA's list of CUDA GPUs).
        memory_bytes: Memory of its data sheet; ``None`` where it is sold with several sizes.
    """

    driver_name: str
    capability: str
    memory_bytes: int | None


ACCELERATORS: Mapping[str, Accelerator] = MappingProxyType(
    {
        "b200": Accelerator("NVIDIA B200", "10.0", None),
        "h200": Accelerator("NVIDIA H200", "9.0", 141 * 10**9),
        "h100": Accelerator("NVIDIA H100 80GB HBM3", "9.0", 80 * 10**9),
        "a100": Accelerator("NVIDIA A100-SXM4-80GB", "8.0", 80 * 10**9),
        "v100": Accelerator("Tesla V100-SXM2", "7.0", None),
        "l40s": Accelerator("NVIDIA L40S", "8.9", 48 * 10**9),
        "l4": Accelerator("NVIDIA L4", "8.9", 24 * 10**9),
        "a10g": Accelerator("NVIDIA A10G", "8.6", 24 * 10**9),
        "a10": Accelerator("NVIDIA A10", "8.6", 24 * 10**9),
        "t4": Accelerator("Tesla T4", "7.5", 16 * 10**9),
    }
)
"""Accelerators by the word in a machine's name."""


@dataclass(frozen=True)
class NamedMachine:
    """A machine: ``count`` accelerators, or CPU cores where ``accelerator`` is ``None``."""

    name: str
    count: int
    accelerator: Accelerator | None


def find_machine_named(name: str) -> NamedMachine | None:
    """The machine called so: a hardware preset for NVIDIA GPUs or CPUs, or any count of a known
    GPU."""
    word = name.strip().lower()
    if word == "cpu":
        return NamedMachine("cpu", max(HARDWARE_PRESETS["cpu"].gpu_counts), None)
    match = _NAME.fullmatch(word)
    if match is None or match[2] not in ACCELERATORS or not 1 <= int(match[1]) <= _MOST_DEVICES:
        return None
    return NamedMachine(word, int(match[1]), ACCELERATORS[match[2]])
