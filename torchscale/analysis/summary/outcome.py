"""How a cell ended, from how its launches ended."""

from __future__ import annotations

from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.run.content import CellRun
from torchscale.schema.state import State

_WORST_FIRST = (
    State.CRASHED,
    State.KILLED,
    State.OOM,
    State.TIMEOUT,
    State.INVALID,
    State.NODE_LOST,
    State.INCOMPLETE,
    State.SKIPPED,
)
"""The states from the worst on. Of several launches the first of these counts: what broke by
itself, then what did not run."""


def completed_launches(cell_run: CellRun) -> tuple[LaunchRecord, ...]:
    """The cell's launches without those that were interrupted, which run again."""
    return tuple(record for record in cell_run.launches if record.state is not State.INTERRUPTED)


def cell_outcome(cell_run: CellRun, repeats: int | None) -> tuple[State, str]:
    """The cell's state, and a reason unless it is ``ok``: the worst of its launches'. An
    interrupted launch counts as one that has not run, unless it is the only one.

    Args:
        cell_run: The cell with its launches.
        repeats: Launches that were asked for; ``None`` takes any number.
    """
    planned, launches = cell_run.planned, completed_launches(cell_run)
    if not cell_run.launches:
        if planned.skip_reason is not None:
            return State.SKIPPED, planned.skip_reason
        return State.WAITING, "not run yet"
    if not launches:
        return State.INTERRUPTED, cell_run.launches[0].reason
    for state in _WORST_FIRST:
        for record in launches:
            if record.state is state:
                which = f"launch {record.launch + 1}: " * (len(launches) > 1)
                return state, which + record.reason
    if repeats is not None and len(launches) < repeats:
        return State.PARTIAL, f"{len(launches)} of {repeats} launches"
    return State.OK, ""
