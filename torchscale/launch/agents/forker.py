"""The process that forks the agents of launches on CPUs."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from torchscale.config.choices import DeviceKind
from torchscale.util.interpreter import module_command
from torchscale.util.processes.bounded import unnamed_file
from torchscale.util.processes.doorbell import Doorbell
from torchscale.util.processes.subprocesses import ManagedProcess

_MODULE = "torchscale.worker.launcher.elastic_launcher"
_MOST_PRINTED = 8192
"""Bytes of what the process has printed that go into the log of a launch which has failed with it."""


def forks_ranks(device: DeviceKind) -> bool:
    """Whether ranks of launches on this device can be forks: on CPUs on Linux, where there is
    shared memory for what torchrun's agent and its ranks exchange."""
    if device != "cpu" or sys.platform != "linux":
        return False
    try:
        multiprocessing.get_context("fork").Event()
    except (OSError, ImportError):  # no /dev/shm
        return False
    return True


class AgentForker(ManagedProcess):
    """The process that imports torch and then forks the agents of launches. It looks for them when
    :attr:`bell` has rung, and rings when one has ended."""

    def __init__(self, channel: Path, environment: Mapping[str, str]) -> None:
        """Start it. Its launches will be in ``channel``, which need not be there yet.

        Raises:
            MachineError: it cannot be started.
        """
        self._channel, self._environment = own_path(channel), environment
        self.command = module_command(_MODULE, str(self._channel))
        variables = {**environment, "PYTHONUNBUFFERED": "1"}  # as torchrun starts its ranks
        with ExitStack() as opened:
            self._log = opened.enter_context(unnamed_file())
            self.bell, theirs = Doorbell.pair()
            opened.callback(self.bell.close)
            with theirs:
                super().__init__(
                    self.command,
                    env=variables,
                    stdin=theirs.fileno(),
                    stdout=self._log,
                    stderr=self._log,
                )
            self._files = opened.pop_all()

    def serves(self, channel: Path, environment: Mapping[str, str]) -> bool:
        """Whether it runs, and forks what is launched here with this environment."""
        fits = self._channel == own_path(channel) and self._environment == environment
        return fits and self.poll() is None

    def printed(self) -> bytes:
        """The end of what it has printed."""
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), _MOST_PRINTED, max(0, size - _MOST_PRINTED))

    def close(self) -> None:
        """End it and all below it at once, unless that is done."""
        if not self._log.closed:
            with self._files:
                self.end(grace_seconds=0.0)


def own_path(directory: Path) -> Path:
    """The absolute path of a directory that is to be made: not where a link in its place leads."""
    return directory.parent.resolve() / directory.name
