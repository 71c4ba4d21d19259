"""Launches that something else on the machine slowed, and whether that was alike on both sides."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.training.flags import Flag
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

_TOLERANCE = 1e-9
"""Thirds are not exact in binary."""


def unequal_conditions(
    before: ResultCell, after: ResultCell, *, same_machine: bool
) -> tuple[str, ...]:
    """Which of ``CONDITIONS`` may have made a difference: more than a third of the launches of one
    side were measured under it beyond those of the other; or any was contended, and the delay by
    others is known of it, so that the change without it can be told; and ``slowed`` where the same
    machine was slower."""
    unequal = []
    for flag in CONDITIONS:
        shares = [_flagged_share(side, flag) for side in (before, after)]
        is_unequal = abs(shares[0] - shares[1]) > _SHARE_GAP + _TOLERANCE
        is_bounded = flag is Flag.CONTENDED and any(shares) and _delays_known((before, after))
        if is_unequal or is_bounded:
            unequal.append(flag.value)
    gap = _speed_gap(before, after, same_machine)
    if gap is not None and gap.is_unequal:
        unequal.append(SLOWED)
    return tuple(unequal)


def _delays_known(sides: Sequence[ResultCell]) -> bool:
    """Whether it is known how much others delayed each contended launch."""
    return all(
        launch.delay is not None
        for side in sides
        for launch, contended in zip(side.launches, _flagged(side, Flag.CONTENDED), strict=True)
        if contended
    )


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
                number for number, flagged in enumerate(_flagged(side, flag), start=1) if flagged
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
    """Which of a cell's launches were contended or throttled."""
    by_flag = [_flagged(cell, flag) for flag in CONDITIONS]
    return [any(flags) for flags in zip(*by_flag, strict=True)]


def any_conditions(cell: ResultCell) -> tuple[str, ...]:
    """Which of ``CONDITIONS`` any of a cell's launches was measured under."""
    return tuple(flag.value for flag in CONDITIONS if any(_flagged(cell, flag)))


def flagged_conditions(cell: ResultCell) -> tuple[str, ...]:
    """Which of ``CONDITIONS`` more than a third of a cell's launches were measured under."""
    return tuple(
        flag.value for flag in CONDITIONS if _flagged_share(cell, flag) > _SHARE_GAP + _TOLERANCE
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
