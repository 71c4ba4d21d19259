"""The program that an engine starts on each node. It says which machine this is, then takes part in
a sweep or a check until the process that leads says that all is done, or is gone.

``python -m torchscale.features.cluster.engines.agent sweep``
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from pydantic import ValidationError

from torchscale.door import Slot
from torchscale.errors import ExitCode, MachineError, TorchscaleError
from torchscale.features.cluster.engines.agent_follower import MACHINE, MARK, AgentFollower
from torchscale.features.cluster.nodes.agent_messages import AgentSetup, AskMachine, MachineFound
from torchscale.features.cluster.nodes.messages import Farewell
from torchscale.features.cluster.nodes.roles import FollowerRole, finish_code, obey
from torchscale.launch.control import StopRequest
from torchscale.launch.machine import MachineDetection
from torchscale.measure.context import stop_on_signals
from torchscale.util.processes.subprocesses import POLL_SECONDS, adopt_orphans

_CHUNK = 1 << 16
_JOIN_SECONDS = 30.0
_END_SECONDS = 10.0
"""Time limit for the last bytes, where nobody reads them any more."""

PrepareRole = Callable[[bytes, AgentFollower, MachineDetection | None, StopRequest], FollowerRole]
"""Prepares a node's part of a sweep or a check from what it was sent."""
_ROLES: Slot[PrepareRole] = Slot("node roles")


def main() -> int:
    """Take part. Returns the exit code."""
    role, *how = sys.argv[1:]
    if how == ["detached"]:
        _leave_worker()
    line = _Line()
    adopt_orphans()
    with stop_on_signals() as stop, ExitStack() as stack:
        follower = AgentFollower(line.socket)
        detection = None
        try:
            if role == "sweep":
                detection = stack.enter_context(MachineDetection())
            return int(_take_part(follower, detection, stop))
        except TorchscaleError as error:
            sys.stderr.write(f"torchscale: {error.message}\n")
            return int(error.exit_code)
        finally:
            follower.close("it was interrupted" if stop.asked else "")
            line.close()


def _leave_worker() -> None:
    """Give up the signal mask and the niceness that a worker of Ray has given this process, and its
    place among those that end first where memory runs out. The agent says which niceness it has."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    with contextlib.suppress(PermissionError):  # root alone lowers it
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    with contextlib.suppress(OSError):  # the same
        Path("/proc/self/oom_score_adj").write_text("0")


def _take_part(
    follower: AgentFollower, detection: MachineDetection | None, stop: StopRequest
) -> ExitCode | int:
    while not stop.asked:
        try:
            question = follower.questions.get(timeout=POLL_SECONDS)
        except queue.Empty:
            continue
        if isinstance(question, Farewell):
            return finish_code(question)
        if isinstance(question, AskMachine):
            follower.answer_machine(_machine(detection))
            continue
        setup, content = question
        part = _prepared(setup, content, follower, detection, stop)
        follower.join(part.description, _JOIN_SECONDS, lambda: stop.asked)
        last = obey(follower, part.begin(), stop)
        if last is not None:
            return finish_code(last)
    return ExitCode.INTERRUPTED


def _prepared(
    setup: AgentSetup,
    content: bytes,
    follower: AgentFollower,
    detection: MachineDetection | None,
    stop: StopRequest,
) -> FollowerRole:
    """This node's part; the process that leads is told where there is none."""
    try:
        try:
            return _ROLES[setup.role](content, follower, detection, stop)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise MachineError(
                f"what it was sent does not fit here: {where}: {first['msg']}"
            ) from error
    except TorchscaleError as error:
        with contextlib.suppress(TorchscaleError):  # what is wrong here is said below
            follower.join(None, _JOIN_SECONDS, lambda: True, error.message)
        raise


def _machine(detection: MachineDetection | None) -> MachineFound:
    if detection is None:
        return MachineFound(problem="this agent checks a node and plans nothing")
    try:
        return MachineFound(content=MACHINE.dump_json(detection.result()).decode())
    except MachineError as error:
        return MachineFound(problem=error.message[:2000])


class _Line:
    """This program's standard input and output as a socket. What else writes to standard output
    from now on reaches standard error."""

    def __init__(self) -> None:
        output = os.dup(1)
        os.dup2(2, 1)
        self.socket, self._other = socket.socketpair()
        os.write(output, MARK)
        threading.Thread(target=self._read, daemon=True).start()
        self._writer = threading.Thread(target=self._write, args=(output,), daemon=True)
        self._writer.start()

    def close(self) -> None:
        """Wait until everything is written."""
        self._writer.join(_END_SECONDS)

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(0, _CHUNK):
                self._other.sendall(data)
        with contextlib.suppress(OSError):  # also where an actor died with something unread
            self._other.shutdown(socket.SHUT_WR)

    def _write(self, output: int) -> None:
        with contextlib.suppress(OSError):
            while data := self._other.recv(_CHUNK):
                while data:
                    data = data[os.write(output, data) :]
        os.close(output)


if __name__ == "__main__":
    sys.exit(main())
