"""The steps of ``validate`` over several nodes: each node runs its part and sends one file to the
first node."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from torchscale.errors import MachineError
from torchscale.features.cluster.nodes.fleet import END_SECONDS, FILES_SECONDS, Fleet
from torchscale.features.cluster.nodes.follower import Follower
from torchscale.features.cluster.nodes.messages import CheckStep, Ended
from torchscale.features.cluster.nodes.network import addresses, interface_in
from torchscale.features.validate.run.probe import collective_environment, first_error
from torchscale.launch.control import StopRequest
from torchscale.launch.torchrun import NodePlace
from torchscale.schema.launch.nodes import LaunchNode
from torchscale.schema.node.fleet import PairTask
from torchscale.util.files import atomic_write_model, read_bounded
from torchscale.util.interpreter import module_command
from torchscale.util.processes.subprocesses import ManagedProcess, tail, wait_until

M = TypeVar("M", bound=BaseModel)

_MAX_RESULT_BYTES = 16 << 20
"""Largest size of a node's file: the checks and facts of 16 GPUs take 0.2 MB."""
RESULT = "result.json"
"""The file that a node sends of its part."""
PAIR_BYTES = {"gloo": 4 << 20, "nccl": 64 << 20}
"""Size of a pair's all-reduce: large enough that the link's rate counts and not its latency. 64 MiB
take a few milliseconds at 200 Gbit/s, 4 MiB about as long at 10 Gbit/s."""
PAIR_VARIABLES = MappingProxyType({"TORCH_NCCL_BLOCKING_WAIT": "1", "TORCH_DIST_USE_NCCL2": "0"})
"""A partner that is late is an exception then, and not the end of the process; torch's newer backend
over NCCL does not know the first variable, and the second has torch take the earlier backend."""
_START_SECONDS = 120.0
"""Time limit for a process to import torch from a cold network file system, beside the work that it
is given."""

IsOver = Callable[[], bool]
"""Whether a part is to be ended before it has finished."""
RunPart = Callable[[CheckStep, Path, IsOver], str]
"""Runs this node's part of a step with its files in a directory. Returns why it failed; empty where
it did not."""


@dataclass(frozen=True)
class StepResult:
    """What the nodes sent: node rank → file, and node rank → why there is none or it is not
    complete."""

    files: Mapping[int, Path]
    problems: Mapping[int, str]


def run_step(
    fleet: Fleet,
    nodes: Sequence[LaunchNode],
    steps: Sequence[CheckStep],
    run_part: RunPart | None,
    *,
    directory: Path,
    seconds: float,
    stop: StopRequest,
    together: bool,
) -> StepResult:
    """Run a step on ``nodes``. Failures do not raise.

    Args:
        fleet: Fleet of the nodes.
        nodes: Nodes that take part; ``steps[i]`` is the order of ``nodes[i]``.
        steps: What each does.
        run_part: The part of this machine, where it is the first of them.
        directory: Gets the nodes' files.
        seconds: Bound on the parts of the other nodes, from the start.
        stop: Ends it.
        together: Whether the parts need each other: where one fails, the others are ended.
    """
    files = {node.node_rank: directory / f"node-{node.node_rank}.json" for node in nodes}
    own = directory / "own"
    own.mkdir()
    deadline = time.monotonic() + seconds
    remote = fleet.start_check(nodes, lambda node: {RESULT: files[node.node_rank]}, steps)
    try:
        problem = ""
        if run_part is not None:
            problem = run_part(steps[0], own, lambda: stop.asked or (together and remote.failed))
        if not (together and problem):
            left = max(0.0, deadline - time.monotonic())
            wait_until(
                lambda: remote.has_ended or stop.asked or (together and remote.failed),
                timeout_seconds=left,
            )
        fleet.end(remote, at_once=stop.at_once)
        wait_until(lambda: remote.has_ended or stop.at_once, timeout_seconds=END_SECONDS)
        wait_until(
            lambda: remote.is_collected or not remote.has_ended, timeout_seconds=FILES_SECONDS
        )
    finally:
        fleet.end(remote, at_once=True)
        fleet.forget(remote, "it did not end its part of the check")
    problems = {0: problem} if problem else {}
    for part in remote.parts:
        reason = "no answer"
        if part.is_lost:
            reason = part.member.lost
        elif part.ended is not None:
            reason = part.ended.problem
        if reason:
            problems[part.member.node_rank] = reason
    if (own / RESULT).exists():
        (own / RESULT).replace(files[0])
    return StepResult({rank: path for rank, path in files.items() if path.exists()}, problems)


def take_part(step: CheckStep, follower: Follower, run_part: RunPart, stop: StopRequest) -> None:
    """Run this node's part of a step and send its file to the first node. No process and no file is
    left."""
    with tempfile.TemporaryDirectory(prefix="torchscale-check-") as name:
        directory = Path(name)
        problem = run_part(step, directory, lambda: stop.asked or follower.should_end(step.order))
        ended = Ended(order=step.order, exit_code=int(bool(problem)), problem=problem[:2000])
        result = directory / RESULT
        if not stop.asked:
            follower.report(ended, [result] if result.exists() else [])


def node_place(step: CheckStep, master_address: str, local_address: str) -> NodePlace:
    """Where this node is in a step over several.

    Raises:
        MachineError: it has no interface in the step's network.
    """
    interface = addresses().get(local_address, "")
    if step.network:
        _, interface = interface_in(step.network)
    return NodePlace(
        nodes=step.nodes,
        node_rank=step.node_rank,
        master_address=master_address,
        master_port=step.master_port,
        local_address=local_address,
        interface=interface,
    )


def run_collective(
    step: CheckStep, place: NodePlace, directory: Path, *, timeout_seconds: float, is_over: IsOver
) -> str:
    """This node's ranks of an all-reduce over all nodes; the facts are on the first node. Returns
    why it failed."""
    check = module_command(
        "torchscale.worker.machine.collective_check",
        str(directory / RESULT),
        step.backend,
        str(timeout_seconds),
    )
    options = [
        *place.options,
        f"--nproc-per-node={step.ranks}",
        "--max-restarts=0",
        f"--log-dir={directory / 'logs'}",
    ]
    command = module_command("torch.distributed.run", *options, "--no-python", *check)
    return _run(
        command, place, directory, seconds=timeout_seconds + _START_SECONDS, is_over=is_over
    )


def run_pairs(
    step: CheckStep, place: NodePlace, directory: Path, *, timeout_seconds: float, is_over: IsOver
) -> str:
    """This node's process for pairs. Returns why it failed."""
    task = PairTask(
        place=step.node_rank,
        nodes=step.nodes,
        master_address=place.master_address,
        master_port=step.master_port,
        partners=step.partners,
        backend=step.backend,
        message_bytes=PAIR_BYTES[step.backend],
        repeats=step.repeats,
        timeout_seconds=timeout_seconds,
        gpu=step.gpu,
        address=interface_in(step.network)[0] if step.network else "",
    )
    atomic_write_model(directory / "task.json", task)
    command = module_command(
        "torchscale.worker.machine.pairs", str(directory / "task.json"), str(directory / RESULT)
    )
    bound = pairs_seconds(len(step.partners), timeout_seconds)
    return _run(command, place, directory, PAIR_VARIABLES, seconds=bound, is_over=is_over)


def pairs_seconds(rounds: int, timeout_seconds: float) -> float:
    """Bound on the process for pairs: in each round a pair may use up its bound."""
    return (rounds + 1) * timeout_seconds + _START_SECONDS


def _run(
    command: list[str],
    place: NodePlace,
    directory: Path,
    variables: Mapping[str, str] = MappingProxyType({}),
    *,
    seconds: float,
    is_over: IsOver,
) -> str:
    """Run a program until it ends, ``is_over`` or ``seconds`` have passed, with ``variables`` that
    the environment does not set. Returns why it failed."""
    log = directory / "output.log"
    with log.open("wb") as output:
        try:
            process = ManagedProcess(
                command,
                env={**variables, **collective_environment(), **place.environment},
                stdout=output,
                stderr=output,
            )
        except MachineError as error:
            return error.message
        try:
            ended = wait_until(
                lambda: process.poll() is not None or is_over(), timeout_seconds=seconds
            )
        finally:
            process.end()
    if not ended:
        return f"no end within {seconds:g} s"
    if process.poll() == 0:
        return ""
    return first_error(tail(log))


def read_sent(path: Path, model: type[M]) -> M | None:
    """What a node sent; ``None`` where it is not what was asked for."""
    try:
        return model.model_validate_json(read_bounded(path, _MAX_RESULT_BYTES))
    except (OSError, ValidationError):
        return None


def first_problem(layout: Sequence[LaunchNode], result: StepResult) -> str:
    """The most telling failure: where one node fails, the others only lose it."""
    names = {node.node_rank: node.hostname for node in layout}
    if not result.problems:
        return "no result that this version understands"
    rank, reason = min(result.problems.items())
    return f"{reason} (node {rank}, {names[rank]})"
