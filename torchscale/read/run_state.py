"""How far a run is, in one word."""

from __future__ import annotations

from collections.abc import Collection

from torchscale.schema.state import State

_TO_RUN = frozenset({State.WAITING, State.PARTIAL, State.INTERRUPTED})
"""States of cells that the same command would go on with."""


def run_state(states: Collection[State], *, running: bool) -> str:
    """``running``, ``partial`` (something is left to run), ``done`` or ``failed`` (some cells).

    Args:
        states: Those of the cells that this machine can run.
        running: Whether a command writes to the folder now.
    """
    if running:
        return "running"
    if not _TO_RUN.isdisjoint(states):
        return "partial"
    if set(states) <= {State.OK}:
        return "done"
    return "failed"
