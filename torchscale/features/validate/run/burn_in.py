"""Runs the burn-in on all devices, reads its rounds as they come, and ends it in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from torchscale.analysis.training.telemetry import digest_telemetry
from torchscale.catalog.backends import is_nccl
from torchscale.features.validate.health.burn_in import BurnInTotals
from torchscale.features.validate.run.probe import (
    collective_environment,
    collective_ranks,
    first_error,
)
from torchscale.launch.control import StopRequest
from torchscale.launch.telemetry import READINGS, read_readings, sampling
from torchscale.schema.launch.telemetry import GpuUse
from torchscale.schema.node.burn_in import BurnIn, BurnInRound
from torchscale.schema.node.probe import NodeFacts
from torchscale.util.interpreter import module_command
from torchscale.util.processes.subprocesses import ManagedProcess, tail
from torchscale.util.scratch import scratch_directory

_STOP_FILE = "stop"
"""Name of the file, as torchscale.worker.machine.burn_in, which imports torch, names it."""
_READING_SECONDS = 1.0
"""Seconds between two readings of the GPUs: temperature and clocks follow the load within
seconds."""
_REPORT_SECONDS = 10.0
"""Seconds between two lines on the state: as for other waits in a log."""
_POLL_SECONDS = 0.2
_MAX_CPU_RANKS = 8
"""Ranks on CPUs share all cores; more of them test nothing else, and each holds torch in memory."""
_LAST_ROUND_SECONDS = 60.0
"""Bound on the round that runs when the time is over: on a slow CPU a round takes some seconds."""


def run_burn_in(
    facts: NodeFacts,
    seconds: float,
    *,
    timeout_seconds: float,
    stop: StopRequest,
    report: Callable[[str], None],
) -> BurnIn:
    """Rounds of work with known results on every device for ``seconds``.

    Args:
        facts: Facts of this node.
        seconds: How long.
        timeout_seconds: Bound on the start and on each collective.
        stop: Ends it after the running round; asked twice, at once.
        report: Gets a line on its state every 10 s.
    """
    backend, world_size = collective_ranks(facts)
    cores = 1
    if facts.host is not None:
        cores = facts.host.cores
    if not is_nccl(backend):
        world_size = min(_MAX_CPU_RANKS, max(world_size, cores))
    uuids: tuple[str, ...] = ()
    if facts.software is not None and is_nccl(backend):
        uuids = facts.software.cuda_uuids
    totals = BurnInTotals()
    seen = _Seen(totals)
    with scratch_directory("burn-in") as directory:
        arguments = (str(directory), backend, str(seconds), str(timeout_seconds))
        worker = module_command("torchscale.worker.machine.burn_in", *arguments)
        local = [
            "--standalone",
            "--local-addr=127.0.0.1",
            f"--nproc-per-node={world_size}",
            "--max-restarts=0",
        ]
        command = module_command(
            "torch.distributed.run", *local, f"--log-dir={directory}/logs", "--no-python", *worker
        )
        threads = 1 if backend == "nccl" else max(1, cores // world_size)
        environment = {**collective_environment(), "OMP_NUM_THREADS": str(threads)}
        log = directory / "output.log"
        began = time.time()
        with (
            sampling(directory, _READING_SECONDS if uuids else None, uuids),
            log.open("wb") as output,
        ):
            process = ManagedProcess(command, env=environment, stdout=output, stderr=output)
            try:
                error = _follow(
                    process, directory, seen, _Limits(seconds, timeout_seconds, stop, report)
                )
            finally:
                process.end()
        if error is None and process.poll() != 0 and not stop.asked:
            error = first_error(tail(log))
        gpus = gpu_use(directory, seen.began or began, uuids)
    return totals.result(backend, world_size, interrupted=stop.asked, error=error, gpus=gpus)


@dataclass(frozen=True)
class _Limits:
    """What ends a burn-in: its seconds of work, the bound on its start, the user; and who hears of
    it."""

    seconds: float
    timeout_seconds: float
    stop: StopRequest
    report: Callable[[str], None]


@dataclass
class _Seen:
    """Rounds that were read, and when the first of them began, in seconds since the epoch: what
    GPUs drew while ranks started is no part of the burn-in."""

    totals: BurnInTotals
    began: float | None = None

    def add(self, burn_round: BurnInRound) -> None:
        """One round of one rank, read just after its end."""
        if self.began is None:
            self.began = time.time() - burn_round.seconds
        self.totals.add(burn_round)


def _follow(
    process: ManagedProcess,
    directory: Path,
    seen: _Seen,
    limits: _Limits,
) -> str | None:
    """Read rounds until the process ends; why it had to be ended, or ``None``."""
    stop = limits.stop
    started = time.monotonic()
    deadline = started + limits.seconds + limits.timeout_seconds + _LAST_ROUND_SECONDS
    offsets: dict[Path, int] = {}
    told = started
    while True:
        ended = process.poll() is not None
        for burn_round in _new_rounds(directory, offsets):
            seen.add(burn_round)
        if ended:
            return None
        now = time.monotonic()
        if stop.at_once:
            return None
        if stop.asked and not (directory / _STOP_FILE).exists():
            (directory / _STOP_FILE).touch()
            deadline = min(deadline, now + _LAST_ROUND_SECONDS)
        if now >= deadline:
            if stop.asked:
                return None
            return f"no end within {now - started:.0f} s"
        if now - told >= _REPORT_SECONDS and seen.totals.rounds:
            told = now
            limits.report(_state(seen.totals, limits.seconds))
        time.sleep(_POLL_SECONDS)


def _state(totals: BurnInTotals, seconds: float) -> str:
    wrong = f"{totals.wrong_results:,} WRONG RESULTS" if totals.wrong_results else "no wrong bit"
    return (
        f"Burn-in: {totals.seconds:.0f} of {seconds:.0f} s, {min(totals.rounds.values()):,} rounds, "
        f"{wrong}"
    )


def _new_rounds(directory: Path, offsets: dict[Path, int]) -> Iterator[BurnInRound]:
    """Whole lines that the ranks wrote since the last call; ``offsets`` remembers how far each file
    was read."""
    for path in sorted(directory.glob("rank-*.jsonl")):
        with path.open("rb") as file:
            file.seek(offsets.get(path, 0))
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        offsets[path] = offsets.get(path, 0) + len(whole)
        for line in whole.splitlines():
            try:
                yield BurnInRound.model_validate_json(line)
            except ValidationError:
                continue


def gpu_use(directory: Path, began: float, uuids: Sequence[str]) -> tuple[GpuUse, ...]:
    """What the driver reported of the GPUs since ``began``."""
    readings, _ = read_readings(directory / READINGS)
    telemetry = digest_telemetry(readings, began, time.time(), gpus=uuids)
    if telemetry is None:
        return ()
    return telemetry.gpus
