"""A launch over several nodes: a torchrun on each, watched by the first node, whose directory gets
all files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path

from torchscale.config.experiment import Experiment
from torchscale.config.secrets import hidden_environment
from torchscale.errors import MachineError
from torchscale.features.cluster.nodes.follower import Follower
from torchscale.features.cluster.nodes.leader import END_SECONDS, FILES_SECONDS, Leader
from torchscale.features.cluster.nodes.messages import Ended, Start
from torchscale.features.cluster.nodes.network import addresses, free_port
from torchscale.features.cluster.nodes.remote_launch import RemoteLaunch
from torchscale.launch.collect import collect_launch, node_file
from torchscale.launch.control import LaunchLimits, StopRequest, launch_task
from torchscale.launch.hangs import inspect_hang
from torchscale.launch.judge import EndingKind, LaunchEnding
from torchscale.launch.oom import OomKills
from torchscale.launch.telemetry import READINGS, sampling
from torchscale.launch.torchrun import (
    NodePlace,
    Watch,
    flatten_logs,
    log_limit,
    torchrun_command,
    worker_environment,
)
from torchscale.plan.expand import Plan
from torchscale.schema.cells.kinds import AnyCell, as_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.hang import FACTS_FILE, dump_file
from torchscale.schema.launch.nodes import LaunchNode
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.task import LaunchTask
from torchscale.util.files import atomic_write_model
from torchscale.util.logs import open_log
from torchscale.util.processes.subprocesses import ManagedProcess, wait_until
from torchscale.util.scratch import scratch_directory

INSPECT_SECONDS = 40.0
"""Time limit for the other nodes to ask their ranks where they are: the bounds on their answers, on
py-spy and on NCCL's service add up to 31 s. Usually it takes one or two."""
_LOG_BYTES = 1 << 20
"""Maximum size of a log that a node sends, its end: a traceback and what came before it."""


def run_over_nodes(
    task: LaunchTask,
    directory: Path,
    leader: Leader,
    nodes: tuple[LaunchNode, ...],
    *,
    limits: LaunchLimits,
    extra_env: Mapping[str, str],
    stop: StopRequest,
    on_progress: Callable[[Progress], None],
) -> LaunchRecord:
    """Run ``task`` over ``nodes``, this one first, with all files in ``directory``. Returns the
    record. Failures of ranks and nodes do not raise: they are the record's state.

    Raises:
        OutputError: ``directory`` cannot be written.
    """
    atomic_write_model(directory / "task.json", task)
    place = NodePlace(
        nodes=len(nodes),
        node_rank=0,
        master_address=leader.address,
        master_port=free_port(leader.address),
        local_address=leader.address,
        interface=addresses().get(leader.address, ""),
    )
    command = torchrun_command(nodes[0].ranks, directory, str(directory / "task.json"), place=place)
    started_at = datetime.fromtimestamp(task.started_at, timezone.utc).isoformat(timespec="seconds")
    clock = time.monotonic()
    kills = OomKills()
    remote = leader.start(
        nodes,
        lambda node: _file_names(node, directory),
        cell_id=task.cell.id,
        launch=task.launch,
        master_port=place.master_port,
        counts_flops=task.counts_flops,
    )
    try:
        with sampling(directory, task.telemetry_seconds, task.gpu_uuids):
            watch = Watch(
                directory,
                limits,
                stop,
                on_progress,
                world_size=nodes[0].ranks,
                inspect_others=lambda: _inspect_others(leader, remote),
            )
            ending = watch.run(
                command, worker_environment(task, extra_env, place), lambda: remote.failed
            )
        _await_others(leader, remote, ending, stop)
    finally:
        leader.end(remote, at_once=True)
        leader.forget(remote, f"it did not end its part of {task.cell.id}")
    flatten_logs(directory)
    seconds = time.monotonic() - clock
    return collect_launch(
        task,
        directory,
        _common_ending(ending, remote),
        command=tuple(command),
        started_at=started_at,
        seconds=seconds,
        oom_kills=kills.since_start() + remote.oom_kills,
        nodes=nodes,
    )


def _inspect_others(leader: Leader, remote: RemoteLaunch) -> Callable[[], object]:
    """Ask the other nodes' ranks where they are while all still wait for each other: ranks raise
    when one is ended."""
    leader.inspect(remote)
    return lambda: wait_until(lambda: remote.is_inspected, timeout_seconds=INSPECT_SECONDS)


def _await_others(
    leader: Leader, remote: RemoteLaunch, ending: LaunchEnding, stop: StopRequest
) -> None:
    """Wait for the other nodes' torchruns, end them where this one's says that there is nothing to
    wait for, and wait for their files."""
    fine = ending.kind is EndingKind.FINISHED and ending.exit_code == 0 and not remote.failed
    if fine:
        wait_until(lambda: remote.has_ended or stop.at_once, timeout_seconds=END_SECONDS)
    leader.end(remote, at_once=stop.at_once)
    wait_until(lambda: remote.has_ended, timeout_seconds=END_SECONDS)
    wait_until(lambda: remote.is_collected or not remote.has_ended, timeout_seconds=FILES_SECONDS)


def _common_ending(ending: LaunchEnding, remote: RemoteLaunch) -> LaunchEnding:
    """How the launch ended on all nodes together: a node that is lost, or could not start, explains
    what happened on the others."""
    kind, detail = ending.kind, ending.detail
    if kind is not EndingKind.INTERRUPTED and (remote.lost or remote.not_started):
        kind = EndingKind.NODE_LOST if remote.lost else EndingKind.NOT_STARTED
        detail = remote.lost or remote.not_started
    return LaunchEnding(kind, ending.exit_code, detail, (*ending.survivors, *remote.survivors))


def _file_names(node: LaunchNode, directory: Path) -> dict[str, Path]:
    """File on that node → file here, for all that it may send."""
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
        name: directory / node_file(node, name) for name in ("torchrun.log", READINGS, FACTS_FILE)
    }
    return {**{name: directory / name for name in names}, **of_node}


def run_part(
    order: Start,
    cell: AnyCell,
    *,
    plan: Plan,
    follower: Follower,
    experiment: Experiment,
    stop: StopRequest,
) -> None:
    """Run this node's part of a launch of ``cell`` and send its files to the first node. No process
    and no file is left, whatever happens."""
    settings, measures = experiment.launch, experiment.benchmark
    limits = LaunchLimits(
        settings.timeout_seconds, settings.stall_timeout_seconds, measures.cell_seconds
    )
    reads_machine = experiment.telemetry.enabled and as_kind(cell, TrainingCell) is not None
    task = launch_task(
        plan,
        cell,
        limits,
        launch=order.launch,
        log_step_times=measures.log_step_times,
        telemetry_seconds=experiment.telemetry.interval_seconds if reads_machine else None,
        counts_flops=order.counts_flops,
    )
    local_address = follower.local_address
    place = NodePlace(
        nodes=order.nodes,
        node_rank=order.node_rank,
        master_address=follower.leader_address,
        master_port=order.master_port,
        local_address=local_address,
        interface=addresses().get(local_address, ""),
    )
    with scratch_directory("node") as directory:
        atomic_write_model(directory / "task.json", task)
        local_size = plan.local_size(cell.world_size)
        command = torchrun_command(local_size, directory, str(directory / "task.json"), place=place)
        kills = OomKills()
        with sampling(directory, task.telemetry_seconds, task.gpu_uuids):
            ending = _run_until_told(
                command,
                worker_environment(task, hidden_environment(experiment), place),
                directory,
                order=order.order,
                ranks=range(order.node_rank * local_size, (order.node_rank + 1) * local_size),
                follower=follower,
                limits=limits,
                stop=stop,
            )
        flatten_logs(directory, order.node_rank * local_size)
        ended = Ended(
            order=order.order,
            exit_code=ending.exit_code,
            problem=ending.detail[:2000],
            survivors=tuple(survivor[:255] for survivor in ending.survivors[:100]),
            oom_kills=kills.since_start(),
        )
        if not stop.asked:
            follower.report(ended, _files_to_send(directory))


def _run_until_told(
    command: list[str],
    environment: Mapping[str, str],
    directory: Path,
    *,
    order: int,
    ranks: Iterable[int],
    follower: Follower,
    limits: LaunchLimits,
    stop: StopRequest,
) -> LaunchEnding:
    """Run torchrun until it ends, the first node says so or is gone, this node is stopped, or the
    launch's hard limit has long passed. Where the first node wants it, ask its ``ranks`` where they
    are."""
    with open_log(directory / "torchrun.log") as log:
        try:
            process = ManagedProcess(command, env=environment, stdout=log, stderr=log)
        except MachineError as error:
            return LaunchEnding(EndingKind.NOT_STARTED, None, error.message)
        logs = log_limit(directory)
        is_inspected = False

        def is_over() -> bool:
            nonlocal is_inspected
            logs.apply()
            if process.poll() is not None or follower.should_end(order) or stop.asked:
                return True
            if follower.should_inspect(order) and not is_inspected:
                is_inspected = True
                inspect_hang(directory, process.pid, ranks)
                follower.report_inspected(order)
            return False

        try:
            wait_until(is_over, timeout_seconds=limits.hard_seconds + END_SECONDS)
        finally:
            told = follower.end_order(order)
            at_once = stop.at_once or (told is not None and told.at_once)
            survivors = process.end(grace_seconds=0.0) if at_once else process.end()
    return LaunchEnding(EndingKind.FINISHED, process.poll(), "", survivors)


def _files_to_send(directory: Path) -> list[Path]:
    """What the launch left and the first node takes: logs cut to their end, empty ones left out."""
    for log in directory.glob("*.log"):
        size = log.stat().st_size
        if size > _LOG_BYTES:
            with log.open("rb") as file:
                file.seek(size - _LOG_BYTES)
                rest = file.read()
            log.write_bytes(rest)
    patterns = (
        "rank-*.json",
        "steps-rank-*.jsonl",
        "error-rank-*.json",
        "rank-*.log",
        dump_file("*"),
        FACTS_FILE,
        "torchrun.log",
        READINGS,
    )
    found = (path for pattern in patterns for path in sorted(directory.glob(pattern)))
    return [path for path in found if path.stat().st_size > 0]
