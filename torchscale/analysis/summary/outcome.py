"""How a cell ended, from how its launches ended."""

from __future__ import annotations

from torchscale.schema.run.content import CellRun
from torchscale.schema.state import State

_WORST_FIRST = (
    State.CRASHED,
    State.KILLED,
    State.OOM,
    State.TIMEOUT,
    State.INVALID,
    State.INCOMPLETE,
    State.INTERRUPTED,
    State.SKIPPED,
)
"""Of several launches the first of these counts: what broke by itself, then what was stopped, then what did not run."""


def cell_outcome(cell_run: CellRun, repeats: int | None) -> tuple[State, str]:
    """The cell's state, and a reason unless it is ``ok``: the worst of its launches'."""
    planned, launches = cell_run.planned, cell_run.launches
    if not launches:
        skipped = planned.skip_reason
        return (State.SKIPPED, skipped) if skipped is not None else (State.INCOMPLETE, "not run yet")
    for state in _WORST_FIRST:
        for record in launches:
            if record.state is state:
                which = f"launch {record.launch + 1}: " if len(launches) > 1 else ""
                return state, which + record.reason
    if repeats is not None and len(launches) < repeats:
        return State.INCOMPLETE, f"{len(launches)} of {repeats} launches done"
    return State.OK, ""
