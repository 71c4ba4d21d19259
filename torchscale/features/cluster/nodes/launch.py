"""A launch over several nodes: a torchrun on each, watched by the first node, whose directory gets
all files."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path

from torchscale.features.cluster.nodes.fleet import END_SECONDS, FILES_SECONDS, Fleet
from torchscale.features.cluster.nodes.network import addresses
from torchscale.features.cluster.nodes.remote_launch import PROGRESS, RemoteLaunch
from torchscale.launch.collect import collect_launch, node_file
from torchscale.launch.control import LaunchLimits, StopRequest
from torchscale.launch.judge import EndingKind, LaunchEnding
from torchscale.launch.oom import OomKills
from torchscale.launch.telemetry import READINGS, sampling
from torchscale.launch.torchrun import (
    NodePlace,
    Watch,
    flatten_logs,
    torchrun_command,
    worker_environment,
)
from torchscale.schema.launch.hang import FACTS_FILE, dump_file
from torchscale.schema.launch.nodes import LaunchNode
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.task import LaunchTask
from torchscale.util.files import atomic_write_model
from torchscale.util.processes.subprocesses import wait_until

INSPECT_SECONDS = 40.0
"""Time limit for the other nodes to ask their ranks where they are: the bounds on their answers, on
py-spy and on NCCL's service add up to 31 s. Usually it takes one or two."""


def run_over_nodes(
    task: LaunchTask,
    directory: Path,
    fleet: Fleet,
    nodes: tuple[LaunchNode, ...],
    *,
    limits: LaunchLimits,
    extra_env: Mapping[str, str],
    stop: StopRequest,
    on_progress: Callable[[Progress], None],
) -> LaunchRecord:
    """Run ``task`` over ``nodes`` of a fleet, with all files in ``directory``. Returns the
    record. Failures of ranks and nodes do not raise: they are the record's state.

    Raises:
        OutputError: ``directory`` cannot be written.
    """
    atomic_write_model(directory / "task.json", task)
    address, port = nodes[0].address, fleet.free_port(nodes)
    place = NodePlace(
        nodes=len(nodes),
        node_rank=0,
        master_address=address,
        master_port=port,
        local_address=address,
        interface=addresses().get(address, ""),
    )
    command = torchrun_command(nodes[0].ranks, directory, str(directory / "task.json"), place=place)
    started_at = datetime.fromtimestamp(task.started_at, timezone.utc).isoformat(timespec="seconds")
    clock = time.monotonic()
    kills = OomKills()
    runs_here = fleet.here is not None
    remote = fleet.start(
        nodes,
        lambda node: _file_names(node, directory, first=node is nodes[0]),
        cell_id=task.cell.id,
        launch=task.launch,
        master_port=port,
        counts_flops=task.counts_flops,
    )
    try:
        watch = Watch(
            directory,
            limits,
            stop,
            on_progress,
            world_size=nodes[0].ranks,
            inspect_others=lambda: _inspect_others(fleet, remote),
        )
        if runs_here:
            environment = worker_environment(task, extra_env, place)
            with sampling(directory, task.telemetry_seconds, task.gpu_uuids):
                ending = watch.run(command, environment, lambda: remote.failed)
        else:
            kind, detail = watch.wait(remote, lambda: remote.failed)
            ending = LaunchEnding(kind, None, detail)
        _await_others(fleet, remote, ending, stop)
    finally:
        fleet.end(remote, at_once=True)
        fleet.forget(remote, f"it did not end its part of {task.cell.id}")
    flatten_logs(directory)
    seconds = time.monotonic() - clock
    return collect_launch(
        task,
        directory,
        _common_ending(ending, remote, runs_here=runs_here),
        command=tuple(command),
        started_at=started_at,
        seconds=seconds,
        oom_kills=remote.oom_kills + (kills.since_start() if runs_here else 0),
        nodes=nodes,
    )


def _inspect_others(fleet: Fleet, remote: RemoteLaunch) -> Callable[[], object]:
    """Ask the other nodes' ranks where they are while all still wait for each other: ranks raise
    when one is ended."""
    fleet.inspect(remote)
    return lambda: wait_until(lambda: remote.is_inspected, timeout_seconds=INSPECT_SECONDS)


def _await_others(
    fleet: Fleet, remote: RemoteLaunch, ending: LaunchEnding, stop: StopRequest
) -> None:
    """Wait for the other nodes' torchruns, end them where this one's says that there is nothing to
    wait for, and wait for their files."""
    fine = ending.kind is EndingKind.FINISHED and not ending.exit_code and not remote.failed
    if fine:
        wait_until(lambda: remote.has_ended or stop.at_once, timeout_seconds=END_SECONDS)
    fleet.end(remote, at_once=stop.at_once)
    wait_until(lambda: remote.has_ended, timeout_seconds=END_SECONDS)
    wait_until(lambda: remote.is_collected or not remote.has_ended, timeout_seconds=FILES_SECONDS)


def _common_ending(ending: LaunchEnding, remote: RemoteLaunch, *, runs_here: bool) -> LaunchEnding:
    """How the launch ended on all nodes together: a node that is lost, or could not start, explains
    what happened on the others."""
    kind, detail = ending.kind, ending.detail
    if kind is not EndingKind.INTERRUPTED and (remote.lost or remote.not_started):
        kind = EndingKind.NODE_LOST if remote.lost else EndingKind.NOT_STARTED
        detail = remote.lost or remote.not_started
    exit_code = ending.exit_code if runs_here else remote.exit_code
    return LaunchEnding(kind, exit_code, detail, (*ending.survivors, *remote.survivors))


def _file_names(node: LaunchNode, directory: Path, *, first: bool) -> dict[str, Path]:
    """File on that node → file here, for all that it may send. ``first``: of the launch's nodes."""
    ranks = range(node.first_rank, node.first_rank + node.ranks)
    of_ranks = (
        "rank-{}.json",
        "steps-rank-{}.jsonl",
        "error-rank-{}.json",
        "rank-{}.stderr.log",
        "rank-{}.stdout.log",
    )
    names = [
        name
        for rank in ranks
        for name in (*(pattern.format(rank) for pattern in of_ranks), dump_file(rank))
    ]
    of_node = {
        name: directory / (name if first else node_file(node, name))
        for name in ("torchrun.log", READINGS, FACTS_FILE)
    }
    if first:
        of_node[PROGRESS] = directory / PROGRESS
    return {**{name: directory / name for name in names}, **of_node}
