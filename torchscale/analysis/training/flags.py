"""Flags: a valid figure that needs care, and why. From measured data only."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.stats.series import drift_probability, relative_drift
from torchscale.analysis.training.contention import most_delay, ranks_by_host
from torchscale.analysis.training.throughput import batch_half_width, batch_step_seconds
from torchscale.schema.cells.training import Measurement
from torchscale.schema.launch.rank import HostLoad, RankRecord
from torchscale.schema.launch.record import LaunchRecord, payload
from torchscale.schema.launch.steps import RankSteps, StopRule
from torchscale.schema.launch.telemetry import Telemetry
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.node.environment import RankIdentity, bare_uuid
from torchscale.util.units import format_percent

DRIFT_LIMIT = 0.02
"""Largest change of the mean step between first and last third: about the noise from launch to
launch (2 to 3 %). A larger change within one launch is a trend."""
DRIFT_LEVEL = 0.01
"""Chance of such a change without a trend: one launch in a hundred may have the flag for nothing."""
PHASE_LIMIT = 0.02
"""Largest missing share of the step: phases and step are read from the same clock, so what is
missing is time that no phase covers. Beyond the noise of a launch it would change what a phase's
share says."""
DELAY_LIMIT = 0.02
"""Share of the time by which other processes may have delayed ranks on CPUs: about the noise from
launch to launch (2 to 3 %), and the smallest change that a comparison calls one."""
OTHER_PROCESSES_LIMIT = 0.10
"""Share of the cores' time that went to other processes, of ranks without cores of their own, and on
devices, which compute on while their process waits."""
MIN_BATCHES = 10
"""Minimum number of batches: as many as a measurement has unless a cap ends it
(``analysis/training/stop.py``)."""


class Flag(str, Enum):
    """A caution; its value is what files and tables show."""

    CONTENDED = "contended"
    DRIFTING = "drifting"
    NOISY = "noisy"
    NOT_COLD = "not_cold"
    NOT_STEADY = "not_steady"
    OVERSUBSCRIBED = "oversubscribed"
    PHASES_INCONSISTENT = "phases_inconsistent"
    THROTTLED = "throttled"

    @property
    def explanation(self) -> str:
        """What it says about the figure, and what to do; which key that is depends on the rule that
        was in force."""
        return _EXPLANATIONS[self]


_EXPLANATIONS = {
    Flag.CONTENDED: "other processes kept ranks waiting for a core for over "
    f"{format_percent(DELAY_LIMIT, 0)} of the time, used over "
    f"{format_percent(OTHER_PROCESSES_LIMIT, 0)} of cores that ranks shared, or computed on its "
    "GPUs; quiet the machine and measure again",
    Flag.DRIFTING: "the first and last third of the steps differ by over "
    f"{format_percent(DRIFT_LIMIT, 0)}; "
    "look for heating, throttling or a growing process, or warm up longer",
    Flag.NOISY: "the interval of its mean step is wider than benchmark.target_half_width allows, "
    f"or is from fewer than {MIN_BATCHES} batches of steps; quiet the machine, or measure longer",
    Flag.NOT_COLD: "a load is not proved to come from the disk, so its rate is not taken for the "
    "disk's",
    Flag.NOT_STEADY: "warm-up ended before step times settled; warm up longer",
    Flag.OVERSUBSCRIBED: "ranks shared devices or cores: the figure shows how they slow each "
    "other down, not how training scales",
    Flag.PHASES_INCONSISTENT: "the phases of a step do not add up to it within "
    f"{format_percent(PHASE_LIMIT, 0)}; "
    "do not rely on the phases",
    Flag.THROTTLED: "a GPU lowered its clocks for heat or power while it was measured; look at "
    "cooling and power, and measure again",
}


DOUBTING = (Flag.CONTENDED, Flag.OVERSUBSCRIBED, Flag.THROTTLED)
"""Under them ranks are slow, and wait for one another, without a cause in the training."""


def launch_flags(record: LaunchRecord, rule: Measurement) -> set[Flag]:
    """The flags of one ``ok`` launch."""
    result = payload(record, TrainingResult)
    rank = result.ranks[0]
    seconds = batch_step_seconds(result)
    flags = set()
    half_width = batch_half_width(result)
    imprecise = (
        half_width is None or half_width > rule.target_half_width or len(seconds) < MIN_BATCHES
    )
    if rank.stop_rule is not StopRule.CONVERGED and imprecise:
        flags.add(Flag.NOISY)
    if not rank.warmup.steady:
        flags.add(Flag.NOT_STEADY)
    if _drifts(seconds):
        flags.add(Flag.DRIFTING)
    if _phases_off(result.rank_steps):
        flags.add(Flag.PHASES_INCONSISTENT)
    return flags | doubts(record.machine_telemetry, result.ranks)


def doubts(machines: Sequence[Telemetry | None], ranks: Sequence[RankRecord]) -> set[Flag]:
    """Those of :data:`DOUBTING` that hold."""
    flags = set()
    if _share_devices(ranks):
        flags.add(Flag.OVERSUBSCRIBED)
    if _others_delayed(ranks) or gpus_are_shared(machines, ranks):
        flags.add(Flag.CONTENDED)
    if is_throttled(machines, ranks):
        flags.add(Flag.THROTTLED)
    return flags


def _others_delayed(ranks: Sequence[RankRecord]) -> bool:
    """Whether other processes may have slowed the ranks by more than noise."""
    on_cores = all(
        rank.device.kind == "cpu" and rank.host_load.pinned and rank.host_load.run_queue
        for rank in ranks
    )
    delay = most_delay(ranks)
    if on_cores and delay is not None:
        return delay > DELAY_LIMIT
    others = other_processes_share(ranks)
    return others is not None and others > OTHER_PROCESSES_LIMIT


def _drifts(seconds: Sequence[float]) -> bool:
    """Whether first and last third differ by more than the limit, and by more than the launch's own
    noise explains: on any machine step times wander."""
    drift = relative_drift(seconds)
    if drift is None or abs(drift) <= DRIFT_LIMIT:
        return False
    probability = drift_probability(seconds)
    return probability is not None and probability < DRIFT_LEVEL


def is_throttled(machines: Sequence[Telemetry | None], ranks: Sequence[RankRecord]) -> bool:
    """Whether a driver gave a reason at any reading, or between batches."""
    read = any(
        use.throttle_reasons
        for telemetry in machines
        if telemetry is not None
        for use in telemetry.gpus
    )
    return read or any(rank.signals is not None and rank.signals.throttle_reasons for rank in ranks)


def gpus_are_shared(machines: Sequence[Telemetry | None], ranks: Sequence[RankIdentity]) -> bool:
    """Whether more processes computed on a GPU than ranks of ours. Counted, not looked up: in a
    container the driver may give the host's process numbers, or none."""
    ours = Counter(bare_uuid(rank.device.uuid or "") for rank in ranks)
    uses = [use for telemetry in machines if telemetry is not None for use in telemetry.gpus]
    return any((use.processes_peak or 0) > ours[bare_uuid(use.uuid)] > 0 for use in uses)


def other_processes_shares(ranks: Sequence[RankRecord]) -> list[float] | None:
    """:func:`other_processes_share` of each rank; ``None`` unless every rank was bound to cores of
    its own."""
    loads = [rank.host_load for rank in ranks]
    if not all(load.pinned and load.wall_seconds > 0 and load.cores > 0 for load in loads):
        return None
    return [
        max(0.0, load.occupied_seconds - load.process_seconds) / (load.wall_seconds * load.cores)
        for load in loads
    ]


def other_processes_share(ranks: Sequence[RankRecord]) -> float | None:
    """:func:`foreign_share` during the measurement of training."""
    return foreign_share([(rank.hostname, rank.host_load) for rank in ranks])


def bounded_share(share: float) -> float:
    """The share, limited to 0 to 1: the counters that it is made of are read one after the
    other."""
    return min(1.0, max(0.0, share))


def foreign_share(ranks: Sequence[tuple[str, HostLoad | None]]) -> float | None:
    """Share of the cores' time that other processes, or other guests of the hypervisor, used; of
    the ranks the hosts and loads are given. The worst rank's where ranks are pinned; ``None`` where
    it was not read of all."""
    loads = [
        load for _, load in ranks if load is not None and load.wall_seconds > 0 and load.cores > 0
    ]
    if not loads or len(loads) < len(ranks):
        return None
    if all(load.pinned for load in loads):
        return max(
            (load.occupied_seconds - load.process_seconds) / (load.wall_seconds * load.cores)
            for load in loads
        )
    hosts: dict[str, list[HostLoad]] = {}
    for (host, _), load in zip(ranks, loads, strict=True):
        hosts.setdefault(host, []).append(load)
    return max(map(_unpinned_share, hosts.values()))


def _unpinned_share(loads: Sequence[HostLoad]) -> float:
    """Unpinned ranks of a host share its cores: what its first rank saw busy, less what they all
    used."""
    first, used = loads[0], math.fsum(load.process_seconds for load in loads)
    return max(0.0, first.occupied_seconds - used) / (first.wall_seconds * first.cores)


def _share_devices(ranks: Sequence[RankRecord]) -> bool:
    """Two ranks on one GPU, or more threads than cores on a host, where those are known."""
    devices = [(rank.hostname, rank.device.index) for rank in ranks if rank.device.kind != "cpu"]
    if devices:
        return len(set(devices)) < len(devices)
    for here in ranks_by_host(ranks):
        cores = {cpu for rank in here for cpu in rank.cpus}
        if cores and sum(rank.threads for rank in here) > len(cores):
            return True
    return False


def _phases_off(steps: RankSteps) -> bool:
    """Whether the phases of any rank's steps do not add up to its mean step."""
    measured = (
        steps.mean_data_wait,
        steps.mean_forward,
        steps.mean_backward,
        steps.mean_optimizer,
        steps.mean_sync,
        steps.mean_bubble,
        steps.mean_compute or (None,) * len(steps),
    )
    total = np.sum([_or_zero(phase) for phase in measured], axis=0)
    mean = np.array(steps.mean)
    return bool(np.any(np.abs(total - mean) > PHASE_LIMIT * mean))


def _or_zero(seconds: Sequence[float | None]) -> NDArray[np.float64]:
    return np.array([value or 0.0 for value in seconds])
