"""The profiler that records, and how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchscale.config.choices import DeviceKind, Tool
from torchscale.errors import MachineError
from torchscale.features.trace.program_python import has_cuda_device
from torchscale.features.trace.recording.nsys import NO_RECORDING, Nsys
from torchscale.features.trace.recording.nsys_trial import find_nsys


@dataclass(frozen=True)
class ProfilerChoice:
    """The profiler to use. ``note`` says why nsys was rejected, where it was tried."""

    tool: Tool
    nsys: Nsys | None
    note: str = ""


_MOST_STEPS = {Tool.KINETO: 200, Tool.NSYS: 1000}
"""torch.profiler keeps up to megabytes for every step, in the memory of the rank; nsys keeps
kilobytes, elsewhere. So many steps of 10 ms are the 10 s below which a slow device cannot be told
from a passing disturbance."""


def most_steps(requested: int | None, tool: Tool) -> int:
    """The most steps that are recorded, where ``requested`` does not say it."""
    if requested is None:
        return _MOST_STEPS[tool]
    return requested


def choose_tool(requested: str, device: DeviceKind) -> ProfilerChoice:
    """The profiler for a workload. ``auto`` takes nsys where it is complete and the device is CUDA,
    else torch.profiler.

    Raises:
        MachineError: nsys is asked for and cannot be used.
    """
    if requested == "kineto" or (requested == "auto" and device != "cuda"):
        return ProfilerChoice(Tool.KINETO, None)
    if device not in ("cuda", "cpu"):
        raise MachineError(f"nsys does not record {device} devices", hint=NO_RECORDING)
    return _nsys_if_complete(requested, for_cpus=device == "cpu")


def choose_tool_for(command: Sequence[str], requested: str) -> ProfilerChoice:
    """The profiler for a user's program: ``auto`` takes nsys where it is complete and the program's
    Python has a CUDA device, else torch.profiler.

    Raises:
        MachineError: nsys is asked for and cannot be used.
    """
    if requested == "kineto":
        return ProfilerChoice(Tool.KINETO, None)
    if requested == "auto" and not has_cuda_device(command):
        return ProfilerChoice(
            Tool.KINETO, None, "recording with torch.profiler: PyTorch finds no CUDA device here"
        )
    return _nsys_if_complete(requested, for_cpus=False)


def _nsys_if_complete(requested: str, *, for_cpus: bool) -> ProfilerChoice:
    try:
        return ProfilerChoice(Tool.NSYS, find_nsys(for_cpus=for_cpus))
    except MachineError as error:
        if requested == "nsys":
            raise
        return ProfilerChoice(Tool.KINETO, None, f"recording with torch.profiler: {error.message}")
