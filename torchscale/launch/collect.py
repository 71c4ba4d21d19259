"""Makes one record from the files that the ranks left, with the state that
:mod:`torchscale.launch.judge` gives it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from torchscale.analysis.training.telemetry import digest_telemetry
from torchscale.launch.hangs import failure_autopsy, hang_autopsy
from torchscale.launch.judge import EndingKind, LaunchEnding, LaunchEvidence, classify
from torchscale.launch.kinds import launch_kind
from torchscale.launch.logs import (
    TORCHRUN_LOG_BYTES,
    exit_codes,
    last_error,
    log_tails,
    size_mismatch,
    with_signal,
)
from torchscale.launch.rank_records import (
    ERROR,
    RankContents,
    earliest_first,
    first_unusable_steps,
    missing_text,
    read_errors,
    read_ranks,
    unusable_text,
)
from torchscale.launch.telemetry import READINGS, read_readings
from torchscale.launch.transport import launch_transport
from torchscale.schema.cells.kinds import KINDS, AnyPayload, AnyRank, as_kind
from torchscale.schema.launch.exchanges import exchanges_file
from torchscale.schema.launch.failure import RankFailure
from torchscale.schema.launch.hang import Autopsy
from torchscale.schema.launch.nodes import LaunchNode
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.task import LaunchTask
from torchscale.schema.launch.telemetry import Telemetry
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.state import State
from torchscale.util.processes.subprocesses import tail
from torchscale.util.text import ranks_label
from torchscale.util.units import format_bytes

_RECORD = "rank-*.json"
_LITTLE_BYTES = 2**20
"""Less space than this for the results explains what a launch could not write."""


def collect_launch(
    task: LaunchTask,
    directory: Path,
    ending: LaunchEnding,
    *,
    command: tuple[str, ...],
    started_at: str,
    seconds: float,
    oom_kills: int,
    nodes: tuple[LaunchNode, ...] = (),
    process_logs: Sequence[Path] = (),
) -> LaunchRecord:
    """The record of a launch that has ended, over these ``nodes`` where there were several. Removes
    the step files if the task does not keep them. ``process_logs`` are whole logs of its processes,
    where they ran other launches before."""
    cell, kind = task.cell, launch_kind(task.cell.kind)
    kind.clean_up(cell, directory)
    log = tail(directory / "torchrun.log", TORCHRUN_LOG_BYTES)
    ending = with_signal(ending, log)
    log += "".join(
        tail(directory / node_file(node, "torchrun.log"), TORCHRUN_LOG_BYTES) for node in nodes[1:]
    )
    records: RankContents[AnyRank] = read_ranks(
        directory, _RECORD, KINDS[cell.kind].rank.model_validate_json, cell.world_size
    )
    errors = read_errors(directory, cell.world_size)
    payload = kind.collect_payload(directory, records.found)
    damage = [
        unusable_text(_RECORD, records.unusable, nodes),
        unusable_text(ERROR, errors.unusable, nodes),
    ]
    evidence = LaunchEvidence(
        ending,
        cell.world_size,
        payload,
        earliest_first(errors.found),
        exit_codes(log),
        oom_kills,
        last_error(log),
        {
            rank: error
            for rank in range(cell.world_size)
            if (error := last_error(tail(directory / f"rank-{rank}.stderr.log")))
        },
        damaged_ranks=frozenset(records.unusable),
        damage="; ".join(filter(None, damage)),
        missing=missing_text(_RECORD, records.missing, nodes) if nodes else "",
    )
    state, reason = classify(evidence)
    if state is State.OK:
        state, reason = _judge_steps(directory, payload, nodes)
    autopsy = _autopsy(directory, cell.world_size, ending, state)
    if autopsy is not None and nodes:
        autopsy = _with_hosts(autopsy, nodes)
    if autopsy is not None:
        reason += f"; {autopsy.summary}"
    elif state is State.CRASHED:
        reason += size_mismatch(directory, cell.world_size)
    if state is not State.OK:
        reason += _little_space(directory)
        if not (directory / "task.json").exists():
            directory.mkdir(parents=True, exist_ok=True)  # for the record
            reason += "; the folder of the launch was emptied or removed meanwhile"
    failures: tuple[RankFailure, ...] = ()
    log_tail = ""
    # A rank that fails in its teardown has measured: what it said stays in its file.
    if state is not State.OK:
        failures, log_tail = evidence.failures, log_tails(directory, log, cell.world_size)
    if ending.survivors:
        running = f"still running: {', '.join(ending.survivors)}"
        reason = "; ".join(filter(None, (reason, running)))
    if not task.log_step_times:
        for pattern in ("steps-rank-*.jsonl", exchanges_file("*")):
            for path in directory.glob(pattern):
                path.unlink()
    telemetry = _telemetry(
        task, directory, kind.measured_window(_on_one_clock(payload, nodes)), nodes
    )
    return LaunchRecord(
        cell_id=cell.id,
        launch=task.launch,
        state=state,
        reason=reason,
        started_at=started_at,
        seconds=seconds,
        command=command,
        failures=failures,
        exit_code=ending.exit_code,
        nodes=nodes,
        log_tail=log_tail,
        telemetry=telemetry[0],
        node_telemetry=telemetry if nodes else (),
        autopsy=autopsy,
        transport=launch_transport(directory, payload.ranks, process_logs),
        payload=payload,
    )


def _little_space(directory: Path) -> str:
    """A text that says that the disk of the results is full; empty where it is not. Ranks could not
    write there why they failed."""
    try:
        free = shutil.disk_usage(directory).free
    except OSError:
        return ""
    if free < _LITTLE_BYTES:
        return f"; the disk of the results has {format_bytes(free)} free"
    return ""


def node_file(node: LaunchNode, name: str) -> str:
    """A file of another node in the launch's directory, where the first node has one of that
    name."""
    return f"node-{node.node_rank}.{name}"


def _on_one_clock(payload: AnyPayload, nodes: tuple[LaunchNode, ...]) -> AnyPayload:
    """Convert the moments between which ranks of training measured to the first node's clock."""
    training = as_kind(payload, TrainingResult)
    ahead = {
        node.first_rank + place: node.clock_offset_seconds
        for node in nodes
        for place in range(node.ranks)
        if node.clock_offset_seconds
    }
    if training is None or not ahead:
        return payload

    def shifted(moment: float | None, offset: float) -> float | None:
        if moment is None:
            return None
        return moment - offset

    ranks = tuple(
        rank.model_copy(
            update={
                "measured_from": shifted(rank.measured_from, ahead.get(rank.rank, 0.0)),
                "measured_until": shifted(rank.measured_until, ahead.get(rank.rank, 0.0)),
            }
        )
        for rank in training.ranks
    )
    return training.model_copy(update={"ranks": ranks})


def _telemetry(
    task: LaunchTask,
    directory: Path,
    window: tuple[float, float] | None,
    nodes: tuple[LaunchNode, ...],
) -> tuple[Telemetry | None, ...]:
    """Digest of the readings that each node took while every rank measured, this machine's first;
    ``None`` unless all ranks did. ``window`` is on the first node's clock."""
    files = [directory / READINGS, *(directory / node_file(node, READINGS) for node in nodes[1:])]
    if window is None:
        return tuple(None for _ in files)
    found = []
    for number, path in enumerate(files):
        readings, sampler_cpu_seconds = read_readings(path)
        ahead = (nodes[number].clock_offset_seconds if nodes else None) or 0.0
        start, end = window[0] + ahead, window[1] + ahead
        gpus = task.gpu_uuids  # every node has as many
        found.append(
            digest_telemetry(
                readings, start, end, gpus=gpus, sampler_cpu_seconds=sampler_cpu_seconds
            )
        )
    return tuple(found)


def _judge_steps(
    directory: Path, payload: AnyPayload, nodes: tuple[LaunchNode, ...]
) -> tuple[State, str]:
    """``invalid`` for a launch of training whose ranks all left a record, and not the steps that it
    counts."""
    training = as_kind(payload, TrainingResult)
    if training is None or training.rank_steps:
        return State.OK, ""
    damage = first_unusable_steps(directory, (rank.rank for rank in training.ranks), nodes)
    if damage:
        return State.INVALID, damage
    return State.OK, ""


def _autopsy(
    directory: Path, world_size: int, ending: LaunchEnding, state: State
) -> Autopsy | None:
    """Why the ranks made no progress, or which collectives of theirs made them fail; ``None`` for
    other ends."""
    if ending.kind is EndingKind.TIMEOUT and state is State.TIMEOUT:
        return hang_autopsy(directory, world_size)
    if state is State.CRASHED:
        return failure_autopsy(directory, world_size)
    return None


def _with_hosts(autopsy: Autopsy, nodes: tuple[LaunchNode, ...]) -> Autopsy:
    """Add the hosts of the ranks that an autopsy names to its summary."""
    hosts = [
        node.hostname
        for node in nodes
        if any(node.first_rank <= rank < node.first_rank + node.ranks for rank in autopsy.ranks)
    ]
    if not hosts:
        return autopsy
    return autopsy.model_copy(
        update={
            "summary": f"{autopsy.summary}; {ranks_label(autopsy.ranks)} ran on {', '.join(hosts)}"
        }
    )
