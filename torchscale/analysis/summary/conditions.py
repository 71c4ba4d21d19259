"""The conditions under which a run was measured: the machine and its software, at each time that
somebody measured."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torchscale.analysis.summary.machine_speed import (
    LEAST_GAP,
    SLOWED,
    SpeedGap,
    speed_gap,
)
from torchscale.analysis.training.flags import OTHER_PROCESSES_LIMIT, Flag
from torchscale.features.compare.export_schema import Disturbance
from torchscale.schema.run.experiment_file import ExperimentFile, Session
from torchscale.schema.run.result_set import LaunchFigures, ResultCell, ResultSet

DEVICE = "GPU "
"""What the names of devices begin with, before their index."""
_VARIABLE = "variable "
_NAMES_OF_A_JOB = (f"{_VARIABLE}SLURM_", f"{_VARIABLE}MASTER_")
"""Other at every start, and no condition of a measurement."""
_ABSENT = "absent"
CONDITIONS = (Flag.CONTENDED, Flag.THROTTLED)
"""Flags that say what the machine did to a launch, rather than how precise it is."""
_SHARE_GAP = 1 / 3
"""Gap between the sides' shares of the launches of a side. One launch in three is what chance gives
on a shared machine, and its deviation widens the interval; a larger gap between the sides shifts a
side as a whole."""
DELAYED = 0.02
"""Share of a launch by which others delayed it at most: above the default threshold of a change it
could make one."""
_TOLERANCE = 1e-9
"""Thirds are not exact in binary."""


@dataclass(frozen=True)
class MeasuredSession:
    """A session that figures are from.

    Attributes:
        session: The command and the machine.
        launches: Launches of it with figures.
        changed: Names of conditions that are not as in the session before.
    """

    session: Session
    launches: int
    changed: tuple[str, ...] = ()


def measured_sessions(
    experiment: ExperimentFile, launches: Iterable[LaunchFigures]
) -> tuple[MeasuredSession, ...]:
    """Sessions in which ``launches`` were measured, oldest first; the folder's first session where
    there are none."""
    sessions = experiment.sessions
    counts = Counter(session_numbers(sessions, launches)) or Counter({0: 0})
    measured: list[MeasuredSession] = []
    before: Mapping[str, str] | None = None
    for place, count in sorted(counts.items()):
        facts = session_facts(sessions[place])
        measured.append(MeasuredSession(sessions[place], count, _changed(before or facts, facts)))
        before = facts
    return tuple(measured)


def session_numbers(sessions: Sequence[Session], launches: Iterable[LaunchFigures]) -> list[int]:
    """The session of each launch, as its place in ``sessions`` (oldest first): the last that had
    begun by then; 0 for a launch before all of them, or where none is known."""
    begun = [session.started_at for session in sessions]  # ISO 8601 in UTC: sorts as text
    return [max(0, bisect_right(begun, launch.started_at) - 1) for launch in launches]


def unequal_conditions(
    before: ResultCell, after: ResultCell, *, same_machine: bool
) -> tuple[str, ...]:
    """Which of ``CONDITIONS`` one side was measured under and the other not, or much less: in more
    than a third of the launches, or contended sides to another degree; and ``slowed`` where the
    same machine was slower. A difference between such sides need not come of what was changed."""
    unequal = []
    for flag in CONDITIONS:
        shares = [_flagged_share(side, flag) for side in (before, after)]
        by_load = any(shares) and _unequal_load(before, after)
        by_degree = flag is Flag.CONTENDED and (by_load or _unequal_delay(before, after))
        if abs(shares[0] - shares[1]) > _SHARE_GAP + _TOLERANCE or by_degree:
            unequal.append(flag.value)
    gap = _speed_gap(before, after, same_machine)
    if gap is not None and gap.is_unequal:
        unequal.append(SLOWED)
    return tuple(unequal)


def is_same_machine(reference: ResultSet, other: ResultSet) -> bool:
    """Whether all sessions of both sides ran on one host. Of two hosts, that one is slower is what
    a comparison is to find."""
    hosts = [
        {session.environment.hostname for session in one.sessions} for one in (reference, other)
    ]
    return hosts[0] == hosts[1] and len(hosts[0]) == 1


def _speed_gap(before: ResultCell, after: ResultCell, same_machine: bool) -> SpeedGap | None:
    if not same_machine or before.device != after.device:
        return None
    return speed_gap(before.launches, after.launches)


def disturbances(
    before: ResultCell, after: ResultCell, *, same_machine: bool
) -> tuple[Disturbance, ...]:
    """Launches of each side that were measured under one of ``CONDITIONS``, and the side whose
    machine itself was slower."""
    found = []
    for flag in CONDITIONS:
        for place, side in enumerate((before, after)):
            numbers = [
                number
                for number, disturbed in enumerate(_disturbed(side, flag), start=1)
                if disturbed
            ]
            shares = [side.launches[number - 1].other_processes for number in numbers]
            known = [share for share in shares if share is not None and flag is Flag.CONTENDED]
            if numbers:
                found.append(
                    Disturbance(
                        flag.value,
                        place,
                        tuple(numbers),
                        len(side.launches),
                        max(known, default=None),
                    )
                )
    return (*found, *_slowed_sides(before, after, same_machine))


def _slowed_sides(before: ResultCell, after: ResultCell, same_machine: bool) -> list[Disturbance]:
    gap = _speed_gap(before, after, same_machine)
    if gap is None:
        return []
    counts = (len(before.launches), len(after.launches))
    return [
        Disturbance(SLOWED, place, tuple(range(1, count + 1)), count, fixed_work=share)
        for place, (share, count) in enumerate(zip(gap.shares, counts, strict=True))
        if share > LEAST_GAP
    ]


def disturbed_launches(cell: ResultCell) -> list[bool]:
    """Which of a cell's launches were contended or throttled, or delayed by others."""
    by_flag = [_disturbed(cell, flag) for flag in CONDITIONS]
    return [any(flags) for flags in zip(*by_flag, strict=True)]


def _disturbed(cell: ResultCell, flag: Flag) -> list[bool]:
    """Which launches carry a flag, or were delayed by others by as much as could make a change."""
    flagged = _flagged(cell, flag)
    if flag is not Flag.CONTENDED:
        return flagged
    delays = [0.0 if launch.delay is None else launch.delay[1] for launch in cell.launches]
    return [one or delay > DELAYED for one, delay in zip(flagged, delays, strict=True)]


def flagged_conditions(cell: ResultCell) -> tuple[str, ...]:
    """Which of ``CONDITIONS`` more than a third of a cell's launches were measured under."""
    return tuple(
        flag.value for flag in CONDITIONS if _flagged_share(cell, flag) > _SHARE_GAP + _TOLERANCE
    )


def _unequal_delay(before: ResultCell, after: ResultCell) -> bool:
    """Whether others delayed one side by more, by as much as could make a change."""
    delays = [
        [launch.delay[1] for launch in side.launches if launch.delay is not None]
        for side in (before, after)
    ]
    known = all(
        len(found) == len(side.launches) > 0
        for found, side in zip(delays, (before, after), strict=True)
    )
    return known and abs(statistics.fmean(delays[0]) - statistics.fmean(delays[1])) > DELAYED


def _unequal_load(before: ResultCell, after: ResultCell) -> bool:
    """Whether other processes took more of the cores on one side, by as much as makes a launch
    contended."""
    loads = [[launch.other_processes for launch in side.launches] for side in (before, after)]
    known = [[load for load in side if load is not None] for side in loads]
    return (
        all(known)
        and abs(statistics.fmean(known[0]) - statistics.fmean(known[1])) > OTHER_PROCESSES_LIMIT
    )


def _flagged_share(cell: ResultCell, flag: Flag) -> float:
    flagged = _flagged(cell, flag)
    return sum(flagged) / len(flagged) if flagged else float(flag.value in cell.flags)


def _flagged(cell: ResultCell, flag: Flag) -> list[bool]:
    """Which launches carry a flag; all or none by the cell's where those of launches were not
    kept."""
    kept = [launch.flags for launch in cell.launches if launch.flags is not None]
    if len(kept) < len(cell.launches):
        return [flag.value in cell.flags] * len(cell.launches)
    return [flag.value in flags for flags in kept]


def unlike_before(sessions: Sequence[Session]) -> tuple[str, ...]:
    """Names of conditions of the last session that an earlier one had otherwise."""
    *earlier, last = map(session_facts, sessions)
    return tuple(dict.fromkeys(name for facts in earlier for name in _changed(facts, last)))


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    names = dict.fromkeys((*before, *after))
    return tuple(
        name
        for name in names
        if before.get(name) != after.get(name) and not name.startswith(_NAMES_OF_A_JOB)
    )


def session_facts(session: Session) -> dict[str, str]:
    """Everything of a machine and its software that can change a figure, by name; what is not there
    is left out."""
    environment, versions = session.environment, session.environment.versions
    memory = environment.memory_bytes
    facts = {
        "host": environment.hostname,
        "system": environment.system,
        "processor": environment.cpu,
        "usable cores": str(environment.cores),
        "memory": None if memory is None else f"{memory / 2**30:.0f} GiB",
        **{
            f"{DEVICE}{device.index}": f"{device.name} {device.uuid or ''}".strip()
            for device in environment.devices
        },
        "torchscale": session.tool_version,
        "Python": versions.python,
        "PyTorch": versions.torch,
        "CUDA": versions.cuda,
        "ROCm": versions.rocm,
        "cuDNN": versions.cudnn,
        "NCCL": versions.nccl,
        "driver": versions.driver,
        "transformers": versions.transformers,
        "torchao": versions.torchao,
        "git branch": environment.git_branch,
        "git commit": environment.git_commit,
        **{f"{_VARIABLE}{name}": value for name, value in environment.env.items()},
    }
    return {name: value for name, value in facts.items() if value}


def over_sessions(columns: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """One text for each name: ``550.54``, or ``550.54, then 560.28`` where it changed."""
    texts = {}
    for name in dict.fromkeys(name for column in columns for name in column):
        values = [column.get(name, _ABSENT) for column in columns]
        changes = [
            value for place, value in enumerate(values) if place == 0 or value != values[place - 1]
        ]
        texts[name] = ", then ".join(changes)
    return texts
