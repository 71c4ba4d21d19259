"""Runs the node probe and the collective check in subprocesses with a time limit."""

from __future__ import annotations

import platform
import shlex
import signal
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from torchscale.catalog.backends import NCCL
from torchscale.errors import MachineError
from torchscale.launch.agents.forker import forks_ranks
from torchscale.launch.loopback import LOCAL_RENDEZVOUS, require_loopback
from torchscale.schema.node.probe import PROBE_GROUPS, CollectiveFacts, NodeFacts, SoftwareFacts
from torchscale.util.interpreter import module_command
from torchscale.util.processes.bounded import Finished, run_bounded
from torchscale.util.processes.subprocesses import inherited_environment
from torchscale.util.scratch import scratch_directory

_PROBE_SECONDS = 180.0
"""Importing torch from a cold network file system takes a minute, and the other groups of facts up
to 20 s each."""


def probe_node(directory: Path, *, collective_seconds: float | None = None) -> NodeFacts:
    """The node's facts. Where the probe crashes or hangs, the facts found until then.

    Args:
        directory: Where the disk is probed.
        collective_seconds: Time limit of an all-reduce over gloo, which the probe runs in forks of
            itself where torch cannot use CUDA; ``None`` for none. Elsewhere
            :func:`check_collective` runs it.

    Raises:
        MachineError: the probe printed no facts at all.
    """
    if collective_seconds is None or not _can_fork():
        command = module_command("torchscale.worker.probe", str(directory))
        finished = run_bounded(command, timeout_seconds=_PROBE_SECONDS)
        return _found(command, finished)
    with scratch_directory("validate") as scratch:
        command = module_command(
            "torchscale.worker.probe", str(directory), str(scratch), str(collective_seconds)
        )
        limit = _PROBE_SECONDS + collective_seconds
        finished = run_bounded(command, timeout_seconds=limit, env=collective_environment())
    facts = _found(command, finished)
    if facts.collective is not None or not _asks_for_forks(facts):
        return facts
    reason = first_error(finished.stderr)
    if finished.timed_out or (finished.returncode or 0) < 0:
        reason = f"the probe {_ending(finished)} while running the collective"
    failed = CollectiveFacts(backend="gloo", world_size=2, error=reason)
    return facts.model_copy(update={"collective": failed})


def _can_fork() -> bool:
    """Whether the probe can fork ranks that reach each other."""
    try:
        require_loopback()
    except MachineError:
        return False
    return forks_ranks("cpu")


def _asks_for_forks(facts: NodeFacts) -> bool:
    """Whether the probe runs the collective after these facts."""
    software = facts.software
    return software is not None and software.torch is not None and not software.cuda_available


def _found(command: Sequence[str], finished: Finished) -> NodeFacts:
    """The facts that the probe printed, and why others are missing. Errors as :func:`probe_node`."""
    facts = _last_facts(finished.stdout)
    if facts is None:
        raise MachineError(
            f"the probe {_ending(finished)} and printed no facts; run it by hand: "
            f"`{shlex.join(command)}`"
        )
    missing = [
        name for name in PROBE_GROUPS if getattr(facts, name) is None and name not in facts.unknown
    ]
    reasons = {
        name: f"the probe {_ending(finished)} while collecting {missing[0]}" for name in missing
    }
    facts = facts.model_copy(update={"unknown": {**facts.unknown, **reasons}})
    if missing != ["software"]:
        return facts
    # Only importing torch was left: a torch that crashes the probe is broken, which is a fact to
    # report.
    software = SoftwareFacts(python=platform.python_version(), torch_error=reasons["software"])
    return facts.model_copy(update={"software": software})


def check_collective(facts: NodeFacts, *, timeout_seconds: float) -> CollectiveFacts:
    """Run an all-reduce, unless the probe has: over NCCL with a rank on every GPU that torch may use,
    else over gloo with two ranks on CPU. A failure is in ``error``."""
    if facts.collective is not None:
        return facts.collective
    software = facts.software
    backend, world_size = collective_ranks(facts)
    if software is None or software.torch is None:
        why = software.torch_error if software is not None else facts.unknown.get("software")
        return CollectiveFacts(
            backend=backend, world_size=world_size, error=f"PyTorch cannot be used: {why}"
        )
    try:
        require_loopback()
    except MachineError as error:
        return CollectiveFacts(backend=backend, world_size=world_size, error=error.message)
    with scratch_directory("validate") as directory:
        out = directory / "collective.json"
        check = module_command(
            "torchscale.worker.machine.collective_check", str(out), backend, str(timeout_seconds)
        )
        local = [*LOCAL_RENDEZVOUS, f"--nproc-per-node={world_size}", "--max-restarts=0"]
        local.append(f"--log-dir={directory}")  # else torchrun leaves a directory in /tmp
        command = module_command("torch.distributed.run", *local, "--no-python", *check)
        finished = run_bounded(
            command, timeout_seconds=timeout_seconds, env=collective_environment()
        )
        try:
            return CollectiveFacts.model_validate_json(out.read_bytes())
        except (OSError, ValidationError):
            reason = f"no result within {timeout_seconds:g} s"
            if not finished.timed_out:
                reason = first_error(finished.stderr)
            return CollectiveFacts(backend=backend, world_size=world_size, error=reason)


def collective_ranks(facts: NodeFacts) -> tuple[str, int]:
    """Backend and number of ranks: NCCL with one on every GPU that torch may use, else gloo with
    two."""
    software = facts.software
    if software is None or not software.cuda_available or software.nccl is None:
        return "gloo", 2
    # torch's count, not the driver's: CUDA_VISIBLE_DEVICES may leave one of eight.
    devices = software.cuda_devices or 0
    if devices > 0:
        return NCCL, devices
    return "gloo", 2


def _last_facts(stdout: str) -> NodeFacts | None:
    """The facts of the last complete line; a killed probe may leave an incomplete one."""
    for line in reversed(stdout.splitlines()):
        try:
            return NodeFacts.model_validate_json(line)
        except ValidationError:
            continue
    return None


def _ending(finished: Finished) -> str:
    if finished.timed_out:
        return f"did not finish within {finished.seconds:.0f} s"
    code = finished.returncode
    if code is not None and -code in set(signal.Signals):
        how = f"was killed by {signal.Signals(-code).name}"
    else:
        how = f"exited with {code}"
    lines = finished.stderr.strip().splitlines()
    if lines:
        return f"{how} ({lines[-1].strip()[:200]})"
    return how


def collective_environment() -> dict[str, str]:
    """The ranks' environment: one thread each, and gloo on the loopback interface."""
    environment = {**inherited_environment(), "OMP_NUM_THREADS": "1"}
    if Path("/sys/class/net/lo").exists():
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return environment


def first_error(stderr: str) -> str:
    """The line of the first exception in the ranks' output."""
    lines = stderr.strip().splitlines()
    raised = [
        line
        for line in lines
        if "Error" in line.partition(":")[0] and not line.startswith((" ", "["))
    ]
    return (raised or lines or ["no output"])[0].strip()[:300]
