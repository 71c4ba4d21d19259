"""A stand-in for the driver's library, compiled once a process from ``library.c``, for the real
nvidia-ml-py."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

_SOURCE = Path(__file__).with_name("library.c")
_COMPILE_SECONDS = 60
THERMAL = 0x40
"""nvmlClocksThrottleReasonHwThermalSlowdown."""

PCI = tuple(f"0000:{bus}:00.0" for bus in ("18", "2a", "3a", "5d", "9a", "ab", "ba", "db"))
"""Addresses of the GPUs of an HGX board."""


def uuid(index: int) -> str:
    """The UUID of GPU ``index`` of :func:`h100`."""
    return f"GPU-0{index}5e1c7a-1111-2222-3333-44444444444{index}"


def h100(index: int, **changes: object) -> str:
    """The line of a healthy H100."""
    values: dict[str, object] = {
        "uuid": uuid(index),
        "name": "NVIDIA~H100~80GB~HBM3",
        "pci": PCI[index],
        "memory": 80 * 2**30,
        "used": 2**29,
        "ecc": 1,
        "temperature": 31 + index,
        "throttle": 1,
        "power": 70,
        "clock": 1980,
        "busy": 0,
        "width": 16,
        "width_max": 16,
        "links": 18,
        "compute": 90,
        "persistence": 1,
    }
    return "gpu " + " ".join(f"{key}={value}" for key, value in {**values, **changes}.items())


def mig_slice(uuid: str, memory: int = 10 * 2**30) -> str:
    """The line of a MIG slice of the GPU before it."""
    return f"slice uuid={uuid} name=NVIDIA~H100~80GB~HBM3~MIG~1g.10gb memory={memory} used=0"


def scene(path: Path, lines: Iterable[str]) -> dict[str, str]:
    """Write the machine that these lines describe; returns the variables under which a process
    finds it."""
    path.write_text("\n".join(["driver 570.86.15 12080", *lines]) + "\n")
    return {"NVML_SCENE": str(path), "LD_LIBRARY_PATH": str(library_directory())}


@functools.cache
def library_directory() -> Path:
    """The directory of the compiled library, which ends with this process."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None, "no C compiler: run scripts/system-packages.sh tests"
    holder = tempfile.TemporaryDirectory(prefix="torchscale-nvml-")
    _HOLDERS.append(holder)
    directory = Path(holder.name)
    target = directory / "libnvidia-ml.so.1"
    command = [
        compiler,
        "-shared",
        "-fPIC",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-o",
        str(target),
        str(_SOURCE),
    ]
    subprocess.run(command, check=True, timeout=_COMPILE_SECONDS, env={**os.environ, "LC_ALL": "C"})
    return directory


_HOLDERS: list[tempfile.TemporaryDirectory[str]] = []
"""Keeps the directories until the interpreter ends, which removes them."""
