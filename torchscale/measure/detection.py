"""Starts the detection of the machine. A module of its own, so that a command can import those that
plan and measure while it runs."""

from __future__ import annotations

from torchscale.launch.machine import MachineDetection


def start_detection() -> MachineDetection:
    """A running detection, for :func:`torchscale.measure.context.find_machine`.

    Raises:
        UsageError: torch is not installed.
        MachineError: no process can be started.
    """
    return MachineDetection()
