"""Slurm: an agent on each node of the allocation, as a job step of its own. Slurm carries what is
sent and received, ends the step's processes, and says why it ended; there is no token and no port
of ours."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchscale.errors import MachineError
from torchscale.features.cluster.engines.engine import AGENT, EngineNode, Role
from torchscale.features.cluster.nodes.network import UnresolvedError, resolve
from torchscale.util.interpreter import module_command
from torchscale.util.processes.bounded import run_bounded
from torchscale.util.processes.subprocesses import tail, wait_until
from torchscale.util.scratch import scratch_directory

_ASK_SECONDS = 30.0
"""Time limit for a question to Slurm's controller, whose own is 10 s."""
_END_SECONDS = 10.0
"""Time limit for a step to end after its agent was told to: its torchrun gets TERM, and KILL 5 s
later."""
_SAID_SECONDS = 5.0
"""Time limit for srun to say why a step has ended, after its connection was closed."""
_NODE = re.compile(r"\bNodeName=(\S+).*?\bNodeAddr=(\S+)")
_OF_TASKS = re.compile(
    r"SLURM_(NTASKS|NPROCS|CPUS_PER_|GPUS_PER_|TRES_PER_|MEM_PER_|CPU_BIND|DISTRIBUTION|EXACT|HINT"
    r"|THREADS_PER_CORE|CORE_SPEC|EXCLUSIVE|STEP)|SRUN_CPUS_PER_TASK"
)
"""Variables of a batch script which srun reads as options, and which are about its tasks: a step
here is one task with all that the job has on the node."""
_NOISE = ("cpu binding", "Force Terminated", "STEP ", "launch/slurm: _step_signal")
"""Lines of srun that do not say why a step has ended."""


def allocated_nodes(env: Mapping[str, str]) -> int | None:
    """Nodes of the allocation that this process is in; ``None`` outside of one."""
    text = env.get("SLURM_JOB_NUM_NODES", "")
    if not env.get("SLURM_JOB_ID") or not re.fullmatch("[0-9]{1,6}", text):
        return None
    return int(text)


@dataclass
class _Step:
    process: subprocess.Popen[bytes]
    errors: Path


class SlurmSteps:
    """Starts agents as steps of the job at hand."""

    name = "slurm"

    def __init__(self, role: Role, nodes: int, env: Mapping[str, str] = os.environ) -> None:
        """
        Args:
            role: What the agents take part in.
            nodes: How many nodes, of those that the job has.
            env: Has Slurm's variables of the job.

        Raises:
            MachineError: Slurm does not say which nodes they are.
        """
        nodelist = env.get("SLURM_JOB_NODELIST", "")
        names = _ask("scontrol", "show", "hostnames", nodelist).split()
        addresses = dict(_NODE.findall(_ask("scontrol", "--oneliner", "show", "nodes", nodelist)))
        self.nodes: Sequence[EngineNode] = [
            EngineNode(name, _address(addresses.get(name, name))) for name in names[:nodes]
        ]
        self._command = module_command(AGENT, role)
        self._env = {name: value for name, value in env.items() if not _OF_TASKS.match(name)}
        self._steps: dict[int, _Step] = {}
        self._stack = contextlib.ExitStack()
        self._directory = self._stack.enter_context(scratch_directory("slurm"))

    def open(self, rank: int) -> socket.socket:
        """Start the step of a node.

        Raises:
            MachineError: there is no srun.
        """
        ours, theirs = socket.socketpair()
        errors = self._directory / f"{rank}.log"
        with theirs, errors.open("wb") as log:
            try:
                process = subprocess.Popen(
                    [*_srun(self.nodes[rank].name), *self._command],
                    env=self._env,
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is for this process: it ends the steps in order
                )
            except OSError as error:
                ours.close()
                raise MachineError(f"srun cannot be started: {error.strerror}") from error
        self._end(rank)
        self._steps[rank] = _Step(process, errors)
        return ours

    def why_ended(self, rank: int) -> str:
        """The last thing that srun said of the node's step."""
        step = self._steps.get(rank)
        if step is None:
            return ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            step.process.wait(_SAID_SECONDS)
        lines = [
            line.removeprefix("srun: ").removeprefix("error: ").strip()
            for line in tail(step.errors).splitlines()
            if line.strip() and not any(noise in line for noise in _NOISE)
        ]
        code = step.process.poll()
        if code is None and not lines:
            return ""
        said = lines[-1] if lines else "its step of Slurm ended"
        return f"{said} (srun ended with {code})" if code else said

    def close(self) -> None:
        """End all steps, at the same time."""
        self._end(*self._steps)
        self._stack.close()

    def _end(self, *ranks: int) -> None:
        """End steps of nodes: an agent ends by itself where its standard input has."""
        left = [self._steps.pop(rank).process for rank in ranks if rank in self._steps]
        for number in (0, signal.SIGTERM, signal.SIGKILL):
            for process in left:
                process.send_signal(number)
            left = _still_running(left)


def _srun(node: str) -> list[str]:
    """srun for one task on a node, beside the job's other steps and with all that the job has
    there. Without ``--unbuffered`` Slurm holds back what does not end with a line break."""
    return [
        "srun",
        "--overlap",
        "--nodes=1",
        "--ntasks=1",
        f"--nodelist={node}",
        "--unbuffered",
        "--mem=0",
        "--cpu-bind=none",
        "--export=ALL",
        f"--chdir={Path.cwd()}",
        "--job-name=torchscale",
    ]


def _still_running(processes: list[subprocess.Popen[bytes]]) -> list[subprocess.Popen[bytes]]:
    """Those that do not end in time."""
    wait_until(
        lambda: all(process.poll() is not None for process in processes),
        timeout_seconds=_END_SECONDS,
    )
    return [process for process in processes if process.poll() is None]


def _ask(*command: str) -> str:
    """What a command of Slurm prints.

    Raises:
        MachineError: it fails, or does not end in time.
    """
    finished = run_bounded(list(command), timeout_seconds=_ASK_SECONDS)
    if finished.returncode == 0:
        return finished.stdout
    said = finished.stderr.strip() or f"no answer within {_ASK_SECONDS:g} s"
    raise MachineError(
        f"`{' '.join(command)}` failed: {said}",
        hint="--engine channel needs nothing of Slurm, but --node-rank, --master and a token",
    )


def _address(host: str) -> str:
    """The address of a node by Slurm's name for it; the name itself where it does not resolve."""
    try:
        return resolve(host)
    except UnresolvedError:
        return host
