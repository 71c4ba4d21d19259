"""Scripts on real gloo ranks that one process forks. Under torchrun every rank, and torchrun, would
import torch: seconds of CPU time each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torchscale.schema.launch.task import LaunchTask

SERVER = Path(__file__).with_name("fork_server.py")
JOB_SECONDS = 280


@dataclass(frozen=True)
class Job:
    """A script on several ranks.

    Attributes:
        script: Its path.
        arguments: Of its command line.
        ranks: How many run it.
        directory: Where they run, and where ``output.log`` is written.
        tasks: Of the launches in it, whose libraries are imported before ranks are forked.
    """

    script: str
    arguments: tuple[str, ...]
    ranks: int
    directory: str
    tasks: tuple[dict[str, Any], ...]


class Forks:
    """The process that forks ranks; it starts with the first job."""

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        self._variables = dict(variables or {})
        self._process: subprocess.Popen[str] | None = None

    def run(
        self, script: Path, *arguments: str, ranks: int, tasks: Sequence[LaunchTask] = ()
    ) -> None:
        """Run ``script`` on so many ranks, in its own directory.

        Raises:
            AssertionError: a rank fails, or does not end in time; with the end of their output.
        """
        directory = script.parent
        job = Job(
            str(script),
            arguments,
            ranks,
            str(directory),
            tuple(task.model_dump(mode="json") for task in tasks),
        )
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(JOB_SECONDS, self.end)
        timer.start()
        try:
            process.stdin.write(json.dumps(asdict(job)) + "\n")
            process.stdin.flush()
            code = process.stdout.readline()
        finally:
            timer.cancel()
        assert code == "0\n", f"exit code {code}{_end_of(directory / 'output.log')}"

    def end(self) -> None:
        """End the process and all ranks."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            settings = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
            self._process = subprocess.Popen(
                [sys.executable, str(SERVER)],
                env={**os.environ, **settings, **self._variables},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        return self._process


def _end_of(log: Path) -> str:
    return f"\n{log.read_text()[-4000:]}" if log.exists() else ", and no output"
