"""Asks the ranks of a launch that makes no progress where they are, and reads the answers. Every
wait has a bound."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import psutil
from pydantic import ValidationError

from torchscale.config.choices import MAX_NODES
from torchscale.errors import OutputError, TraceError
from torchscale.features.watch.hang.collective_log import CollectiveLog, ProcessGroup
from torchscale.features.watch.hang.explain import explain_failure, explain_hang
from torchscale.features.watch.hang.flight_recorder import MAX_DUMP_BYTES, collective_log, merged
from torchscale.features.watch.hang.job import RankEvidence
from torchscale.features.watch.hang.nccl_ras import nccl_notes
from torchscale.features.watch.hang.py_spy import py_spy_stacks
from torchscale.features.watch.hang.stacks import last_stack
from torchscale.launch.gloo_log import size_error
from torchscale.schema.launch.hang import (
    FACTS_FILE,
    REQUEST_FILE,
    Autopsy,
    HangFacts,
    RankCondition,
    RankDump,
    RankProcess,
    StackFrame,
    dump_file,
)
from torchscale.util.files import atomic_write_model, atomic_write_text, read_bounded
from torchscale.util.processes.description import rank_environment
from torchscale.util.processes.names import RANK_PROCESS
from torchscale.util.processes.subprocesses import POLL_SECONDS, tail

_WORKERS = frozenset({"torchscale.worker", "torchscale.worker.launcher.elastic_launcher"})
"""Modules that a rank's command line names, from Python 3.11 on where the rank is a fork."""
_ANSWER_SECONDS = 5.0
"""Ranks look for a request once a second and write some 2 MB; those that have not answered by then
hold the interpreter's lock or are stopped."""
LOG_BYTES = 64 * 1024
"""End of a rank's log in which its stacks are looked for: faulthandler writes some KiB for a
process."""


def inspect_hang(
    directory: Path,
    torchrun_pid: int,
    ranks: Iterable[int] | None,
    moved_seconds_ago: float | None = None,
) -> None:
    """Ask every rank below torchrun for its dump and its Python stacks, and keep what they and the
    kernel say in ``directory``. Takes at most some seconds more than ``_ANSWER_SECONDS``.

    Args:
        directory: Directory of the launch.
        torchrun_pid: The ranks are its descendants.
        ranks: Ranks of the launch on this machine, since processes may be gone or more; ``None``
            for those that there are.
        moved_seconds_ago: When the last progress was, if the launch may be slow and not hang.
    """
    found = rank_processes(torchrun_pid)
    _ask_for_stacks(torchrun_pid)
    if ranks is None:
        ranks = sorted(found)
    asked = {rank: found.get(rank) for rank in ranks}
    ask_ranks(directory, asked, moved_seconds_ago)


def ask_ranks(
    directory: Path,
    processes: Mapping[int, psutil.Process | None],
    moved_seconds_ago: float | None = None,
) -> None:
    """Ask the ranks whose processes these are for their dumps, and keep what they and the kernel
    say in ``directory``; ``moved_seconds_ago`` as for :func:`inspect_hang`."""
    states = tuple(_state(rank, process) for rank, process in processes.items())
    request = directory / REQUEST_FILE
    with contextlib.suppress(
        OutputError
    ):  # on a full disk the stacks in the logs may still be written
        atomic_write_text(request, "")
    expected = [state.rank for state in states if state.condition is RankCondition.RUNNING]
    deadline = time.monotonic() + _ANSWER_SECONDS
    while (silent := _without_dump(directory, expected)) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    request.unlink(missing_ok=True)
    pids = {state.rank: state.pid for state in states if state.pid is not None}
    facts = HangFacts(
        processes=states,
        stacks=py_spy_stacks({rank: pids[rank] for rank in silent}),
        notes=nccl_notes(pids.values()),
        moved_seconds_ago=moved_seconds_ago,
    )
    with contextlib.suppress(OutputError):
        atomic_write_model(directory / FACTS_FILE, facts)


def hang_autopsy(directory: Path, world_size: int) -> Autopsy:
    """Why the launch in ``directory`` made no progress, from what :func:`inspect_hang` left
    there."""
    facts = read_facts(directory)
    states = {state.rank: state for state in facts.processes}
    evidence = [
        _evidence(
            directory, rank, states.get(rank, RankProcess(rank=rank)), facts.stacks.get(rank, ())
        )
        for rank in range(world_size)
    ]
    return explain_hang(evidence, facts.notes, facts.moved_seconds_ago)


def failure_autopsy(directory: Path, world_size: int) -> Autopsy | None:
    """Whether ranks failed because their collectives do not fit together; ``None`` where nothing
    says so."""
    if not any((directory / dump_file(rank)).exists() for rank in range(world_size)):
        return None
    return explain_failure(
        [_evidence(directory, rank, RankProcess(rank=rank), ()) for rank in range(world_size)]
    )


def rank_processes(parent_pid: int) -> dict[int, psutil.Process]:
    """Rank → process, of the workers below ``parent_pid``: the Python process that is nearest to
    it. A profiler or torchrun's agent may stand in between, and a data loader's workers below a
    rank have its command line and its environment."""
    try:
        below = psutil.Process(parent_pid).children(recursive=True)
    except psutil.Error:
        return {}
    found: dict[int, psutil.Process] = {}
    for process in below:  # parents come before their children
        with contextlib.suppress(psutil.Error, OSError):
            command = process.cmdline()
            rank = rank_environment(process).get("RANK", "")
            if _is_worker(process) and "python" in Path(command[0]).name and rank.isdigit():
                found.setdefault(int(rank), process)
    return found


def _is_worker(process: psutil.Process) -> bool:
    """Whether it is a rank or a process of one; or of what forks ranks, which ignores what ranks
    answer.

    Raises:
        psutil.Error: it has ended, or belongs to another user.
    """
    return (
        bool(_WORKERS.intersection(process.cmdline()))
        or RANK_PROCESS.fullmatch(process.name()) is not None
    )


def process_condition(process: psutil.Process | None) -> RankCondition:
    """State of a process, from the kernel."""
    if process is None:
        return RankCondition.GONE
    try:
        status = process.status()
    except psutil.Error:
        return RankCondition.GONE
    if status in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP):
        return RankCondition.STOPPED
    if status in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
        return RankCondition.GONE
    return RankCondition.RUNNING


def _ask_for_stacks(torchrun_pid: int) -> None:
    """Ask every rank for its Python stacks (they go to its stderr log): also a rank answers that
    runs no Python code, since faulthandler writes them from the signal handler."""
    try:
        below = psutil.Process(torchrun_pid).children(recursive=True)
    except psutil.Error:
        return
    for process in below:
        with contextlib.suppress(psutil.Error):
            if _is_worker(process):
                process.send_signal(signal.SIGUSR1)


def _without_dump(directory: Path, ranks: Collection[int]) -> list[int]:
    return [rank for rank in ranks if not (directory / dump_file(rank)).exists()]


def _state(rank: int, process: psutil.Process | None) -> RankProcess:
    if process is None:
        return RankProcess(rank=rank, pid=None, condition=RankCondition.GONE)
    return RankProcess(rank=rank, pid=process.pid, condition=process_condition(process))


def read_facts(directory: Path) -> HangFacts:
    """What the launchers of all nodes saw; empty where none looked."""
    first = _read_facts(directory / FACTS_FILE)
    all_facts = [
        first,
        *map(_read_facts, sorted(directory.glob(f"node-*.{FACTS_FILE}"))[:MAX_NODES]),
    ]
    return HangFacts(
        processes=tuple(process for facts in all_facts for process in facts.processes),
        stacks={rank: frames for facts in all_facts for rank, frames in facts.stacks.items()},
        notes=tuple(dict.fromkeys(note for facts in all_facts for note in facts.notes)),
        moved_seconds_ago=first.moved_seconds_ago,
    )


def _read_facts(path: Path) -> HangFacts:
    try:
        return HangFacts.model_validate_json(read_bounded(path, MAX_DUMP_BYTES))
    except (OSError, ValidationError):
        return HangFacts()


def _evidence(
    directory: Path, rank: int, state: RankProcess, stack: tuple[StackFrame, ...]
) -> RankEvidence:
    """What a rank left; its stack from its own dump, else from py-spy, else from the log."""
    log, problem, frames = None, "", stack
    if state.condition is RankCondition.RUNNING:
        problem = "it left no dump"
    text = tail(directory / f"rank-{rank}.stderr.log", LOG_BYTES)
    try:
        dump = RankDump.model_validate_json(
            read_bounded(directory / dump_file(rank), MAX_DUMP_BYTES)
        )
    except (OSError, ValidationError):
        dump = None
    if dump is not None:
        log, problem = log_of(dump)
        frames = next((thread.frames for thread in dump.threads if thread.is_main), ())
        text += dump.error
    condition = condition_of(state, dump)
    return RankEvidence(
        rank, condition, frames or last_stack(text), log, problem, state.pid, size_error(text)
    )


def condition_of(state: RankProcess, dump: RankDump | None) -> RankCondition:
    """A rank that has answered is there, whatever name its process goes by; one that raised may
    have ended since."""
    if dump is not None and not dump.error:
        return RankCondition.RUNNING
    return state.condition


def log_of(dump: RankDump) -> tuple[CollectiveLog | None, str]:
    """The collectives in a rank's dump with the groups that the rank itself knows, or why there are
    none."""
    logs, problems = {}, [dump.problem] * bool(dump.problem)
    for name, content in dump.flight_recorders.items():
        try:
            logs[name] = collective_log(content, dump.since)
        except TraceError as error:
            problems.append(f"flight recorder of {name}: {error.message}")
    problem = "; ".join(problems)
    if not logs:
        return None, problem
    log = merged(logs)
    calls = log.calls
    if (
        dump.error and calls and not calls[-1].is_p2p
    ):  # gloo marks what failed as it marks what is done
        calls = (*calls[:-1], replace(calls[-1], is_done=False))
    groups = {
        name: ProcessGroup(group.description, dump.groups.get(name, group.ranks))
        for name, group in log.groups.items()
    }
    return replace(log, calls=calls, groups=groups), problem
