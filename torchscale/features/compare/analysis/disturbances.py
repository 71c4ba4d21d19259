"""Launches that something else on the machine slowed, and whether that was alike on both sides."""

from __future__ import annotations

import statistics

from torchscale.analysis.training.flags import OTHER_PROCESSES_LIMIT, Flag
from torchscale.features.compare.analysis.machine_speed import (
    LEAST_GAP,
    SLOWED,
    SpeedGap,
    speed_gap,
)
from torchscale.features.compare.export_schema import Disturbance
from torchscale.schema.run.result_set import ResultCell, ResultSet

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
