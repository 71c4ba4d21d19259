"""The actor that Ray keeps on each node: it starts the agent there and carries its standard input
and output.

Ray ends an actor's children by KILL, and gives them a niceness, an OOM score, thread counts and a
signal mask of its own. So the agent is no child (it forks once more), it has the environment that
the node's Ray was started with, and it ends by itself, its torchrun first, once its standard input
has ended.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchscale.util.detached import start_detached
from torchscale.util.interpreter import module_command
from torchscale.util.processes.subprocesses import tail
from torchscale.util.scratch import scratch_directory

_CHUNK = 1 << 20
"""Bytes of an answer: Ray carries 150 MB/s of this size between nodes."""
_OF_RAY = ("RAY_", "SPT_NOENV", "PYTHONBREAKPOINT", "OMP_NUM_THREADS")


class AgentActor:
    """Runs one agent at a time. Methods run in threads of the actor."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._directory = self._stack.enter_context(scratch_directory("ray"))
        self._line: socket.socket | None = None

    def node(self) -> tuple[str, str]:
        """Hostname and address of this node."""
        import ray  # noqa: PLC0415 - it runs this

        return socket.gethostname(), str(ray.util.get_node_ip_address())

    def start(self, arguments: Sequence[str], directory: str, variables: Mapping[str, str]) -> None:
        """Start the agent, in the place of an earlier one, in ``directory`` where it exists here,
        with ``variables`` beside this node's.

        Raises:
            OSError: it cannot be started.
            subprocess.TimeoutExpired: it was not in time.
        """
        self.stop()
        ours, theirs = socket.socketpair()
        with theirs, (self._directory / "errors.log").open("wb") as errors:
            try:
                start_detached(
                    module_command(*arguments),
                    line=theirs.fileno(),
                    errors=errors,
                    env={**node_environment(), **variables},
                    cwd=Path(directory) if Path(directory).is_dir() else self._directory,
                )
            except BaseException:
                ours.close()
                raise
        self._line = ours

    def read(self, seconds: float) -> bytes | None:
        """What the agent has written, at the latest after ``seconds``; ``None`` once it has
        ended."""
        line = self._line
        if line is None:
            return None
        with selectors.DefaultSelector() as selector:
            selector.register(line, selectors.EVENT_READ)
            if not selector.select(seconds):
                return b""
        try:
            return line.recv(_CHUNK) or None
        except OSError:
            return None

    def write(self, data: bytes) -> None:
        """Give the agent something to read; nothing where it has ended."""
        if self._line is not None:
            with contextlib.suppress(OSError):
                self._line.sendall(data)

    def errors(self) -> str:
        """The end of what the agent has written to standard error."""
        return tail(self._directory / "errors.log")

    def stop(self) -> None:
        """End the agent's standard input, after which it ends."""
        line, self._line = self._line, None
        if line is not None:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()


def node_environment() -> dict[str, str]:
    """The environment that Ray was started with on this node, without what is Ray's own. What Ray
    sets for a task alone (``OMP_NUM_THREADS``, ``CUDA_VISIBLE_DEVICES``) is set later, and so not in
    it."""
    found = dict(os.environ)
    with contextlib.suppress(OSError):  # not Linux
        items = Path("/proc/self/environ").read_bytes().split(b"\0")
        pairs = (os.fsdecode(item).partition("=") for item in items if item)
        found = {name: value for name, _, value in pairs}
    return {name: value for name, value in found.items() if not name.startswith(_OF_RAY)}
