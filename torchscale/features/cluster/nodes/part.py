"""A node's part of a launch: a torchrun until it ends or is to end, and the files that it left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from torchscale.config.experiment import Experiment
from torchscale.config.secrets import hidden_environment
from torchscale.errors import MachineError
from torchscale.features.cluster.nodes.fleet import END_SECONDS
from torchscale.features.cluster.nodes.follower import Follower
from torchscale.features.cluster.nodes.messages import Ended, Start
from torchscale.features.cluster.nodes.network import addresses
from torchscale.features.cluster.nodes.remote_launch import PROGRESS
from torchscale.launch.control import LaunchLimits, StopRequest, launch_task
from torchscale.launch.hangs import inspect_hang
from torchscale.launch.judge import EndingKind, LaunchEnding
from torchscale.launch.oom import OomKills
from torchscale.launch.telemetry import READINGS, sampling
from torchscale.launch.torchrun import (
    NodePlace,
    ProgressReader,
    flatten_logs,
    log_limit,
    torchrun_command,
    worker_environment,
)
from torchscale.plan.expand import Plan
from torchscale.schema.cells.kinds import AnyCell, as_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.hang import FACTS_FILE, dump_file
from torchscale.util.files import atomic_write_model
from torchscale.util.logs import open_log
from torchscale.util.processes.subprocesses import ManagedProcess, wait_until
from torchscale.util.scratch import scratch_directory

_LOG_BYTES = 1 << 20
"""Maximum size of a log that a node sends, its end: a traceback and what came before it."""


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
        master_address=order.master_address or follower.leader_address,
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
        progress = ProgressReader(directory / PROGRESS)
        is_inspected = False

        def is_over() -> bool:
            nonlocal is_inspected
            logs.apply()
            for line in progress.read():
                follower.report_progress(order, line)
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
