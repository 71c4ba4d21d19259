"""Several runs of one configuration as one side of a comparison."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.features.compare.analysis.matching import workload_key
from torchscale.features.compare.history.entry import history_entry
from torchscale.observer import Observer
from torchscale.schema.run.calibration import Calibration
from torchscale.schema.run.result_set import ResultCell, ResultSet
from torchscale.schema.state import State


def merged_cell(parts: Sequence[ResultCell]) -> ResultCell:
    """One cell with the launches of all, the oldest first; all else as the first part has it."""
    flags = tuple(dict.fromkeys(flag for part in parts for flag in part.flags))
    launches = sorted(
        (launch for part in parts for launch in part.launches), key=lambda one: one.started_at
    )
    return parts[0].model_copy(update={"flags": flags, "launches": tuple(launches)})


def merged_sessions(runs: Sequence[ResultSet]) -> dict[str, object]:
    """Fields of a result set that has the sessions of all of them; none where records are all that
    there is."""
    sessions = sorted(
        (session for run in runs for session in run.sessions),
        key=lambda session: session.started_at,
    )
    if not sessions:
        return {}
    first, *later = sessions
    return {
        "tool_version": first.tool_version,
        "created_at": first.started_at,
        "environment": first.environment,
        "later": tuple(later),
    }


def each_once(results: Sequence[ResultSet], observer: Observer) -> list[ResultSet]:
    """Without what is there twice, by its measurement: a run and a copy of it are one."""
    found: dict[str, ResultSet] = {}
    for one in results:
        digest = history_entry(one).digest
        if digest in found:
            observer.note(f"Left out: {one.name} is the same measurement as {found[digest].name}.")
        found.setdefault(digest, one)
    return list(found.values())


def calibrated_baseline(runs: Sequence[ResultSet], calibration: Calibration) -> ResultSet:
    """All A/A runs as one baseline with its thresholds. Its level is that of all runs: one run as
    the baseline would add its own deviation to every gate."""
    found = [_measured(cell, runs) for cell in runs[0].cells]
    return runs[0].model_copy(
        update={"cells": tuple(found), "calibration": calibration, **merged_sessions(runs)}
    )


def _measured(cell: ResultCell, runs: Sequence[ResultSet]) -> ResultCell:
    """A cell as the runs that measured it; as it is where none did."""
    key = workload_key(cell.cell)
    parts = [
        one
        for run in runs
        for one in run.cells
        if workload_key(one.cell) == key and one.state is State.OK and one.launches
    ]
    if not parts:
        return cell
    return merged_cell(parts)
