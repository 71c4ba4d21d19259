"""Processes of a watched program: the variables that they are started with, and when they end."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from torchscale.worker.watch import clock

_SITE = Path(__file__).parents[3] / "worker" / "watch" / "site"
TIMING_VARIABLE = "TORCH_NCCL_ENABLE_TIMING"
"""Has torch measure the length of NCCL's collectives, by two events for each."""


def command_of(pid: int) -> tuple[str, ...]:
    """argv of a process; empty where it cannot be read."""
    try:
        return tuple(psutil.Process(pid).cmdline())
    except psutil.Error:
        return ()


def has_ended(pid: int, seconds: float) -> bool:
    """Whether a process ends within so many seconds, or has."""
    try:
        process = psutil.Process(pid)
        with contextlib.suppress(psutil.TimeoutExpired):
            process.wait(seconds)
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        time.sleep(seconds)
        return False


def watching_environment(
    directory: Path, variables: Mapping[str, str], first_attempt: int = 0
) -> dict[str, str]:
    """``variables`` with those that have each Python of the program load the collector."""
    path = [str(_SITE), *filter(None, [variables.get("PYTHONPATH")])]
    return {
        **variables,
        "PYTHONPATH": os.pathsep.join(path),
        "TORCHSCALE_WATCH": str(directory),
        "TORCHSCALE_WATCH_FIRST_ATTEMPT": str(first_attempt),
        clock.VARIABLE: clock.told(),
    }


def child_has_ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether it ends within so many seconds, or has."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True
