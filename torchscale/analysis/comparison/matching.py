"""Which cells of two result sets are the same workload, and in what else the two sets differ."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torchscale.analysis.comparison.conditions import DEVICE, over_sessions, session_facts
from torchscale.schema.cells.kinds import AnyCell, as_kind
from torchscale.schema.cells.memory import MemoryCell
from torchscale.schema.run.experiment_file import Session
from torchscale.schema.run.result_set import ResultCell, ResultSet
from torchscale.schema.state import State

Match = tuple[ResultCell | None, ResultCell | None]
"""A cell of the reference and the same one of the other side."""
_HOW_MEASURED = {"measurement", "device", "seed"}
"""Fields that say how a cell is measured, not which workload it is; differences in them are listed."""
_DECIDING = ("device", "torch")
"""Conditions that change every figure, so that a comparison over them needs ``--force``."""


@dataclass(frozen=True)
class Difference:
    """Something that is not equal on all sides. ``forbids`` is set where a comparison then tells nothing of what people
    usually ask, so that it needs to be asked for."""

    what: str
    values: tuple[str, ...]
    forbids: bool = False


def match_cells(
    reference: ResultSet, other: ResultSet, *, ignore_precision: bool = False
) -> tuple[list[Match], tuple[str, ...]]:
    """Cells of both sides in the reference's order, then what only the other has; and remarks on what did not match.

    A cell matches by its id, else by its workload where one cell of each side has it.
    """
    theirs = {cell.cell.id: cell for cell in other.cells}
    pairs = {cell.cell.id: theirs[cell.cell.id] for cell in reference.cells if cell.cell.id in theirs}
    notes = []
    for precision_counts in (True, False):
        taken = {cell.cell.id for cell in pairs.values()}
        ours_left = _by_workload([cell for cell in reference.cells if cell.cell.id not in pairs], precision_counts)
        theirs_left = _by_workload([cell for cell in other.cells if cell.cell.id not in taken], precision_counts)
        unambiguous = [key for key, ours in ours_left.items() if len(ours) == 1 == len(theirs_left.get(key, ()))]
        if precision_counts or ignore_precision:
            pairs.update({ours_left[key][0].cell.id: theirs_left[key][0] for key in unambiguous})
        elif unambiguous:
            notes.append(
                f"{len(unambiguous)} of the cells without a counterpart differ in precision alone "
                "(--force compares them)"
            )
    taken = {cell.cell.id for cell in pairs.values()}
    matches: list[Match] = [(cell, pairs.get(cell.cell.id)) for cell in reference.cells]
    return [*matches, *((None, cell) for cell in other.cells if cell.cell.id not in taken)], tuple(notes)


def _by_workload(cells: Sequence[ResultCell], precision_counts: bool) -> dict[str, list[ResultCell]]:
    by_workload: dict[str, list[ResultCell]] = {}
    for cell in cells:
        by_workload.setdefault(_workload(cell.cell, precision_counts), []).append(cell)
    return by_workload


def _workload(cell: AnyCell, precision_counts: bool) -> str:
    without = _HOW_MEASURED if precision_counts else {*_HOW_MEASURED, "precision"}
    memory = as_kind(cell, MemoryCell)
    if memory is not None:
        content: dict[str, object] = {"kind": cell.kind, "of": _workload(memory.training, precision_counts)}
    else:
        content = cell.model_dump(mode="json", exclude=without)
    return json.dumps(content, sort_keys=True)


def differences(sets: Sequence[ResultSet]) -> list[Difference]:
    """Everything of machines, software and settings that is not equal on all sides; the forbidding ones first."""
    columns = [_facts(results) for results in sets]
    names = dict.fromkeys(name for column in columns for name in column)
    unequal = []
    for name in names:
        values = tuple(column.get(name, "") for column in columns)
        if len(set(values)) > 1:
            forbids = name in _DECIDING and len({value for value in values if value}) > 1
            unequal.append(Difference(name, values, forbids))
    return sorted(unequal, key=lambda difference: not difference.forbids)


def _facts(results: ResultSet) -> dict[str, str]:
    measured = [cell for cell in results.cells if cell.state is State.OK]
    facts = {
        "device": _listed(cell.device for cell in measured),
        "torch": _listed(cell.torch for cell in measured),
    }
    facts |= over_sessions(
        [_of_session(session) for session in results.sessions] or [{"torchscale": results.tool_version}]
    )
    if results.threads_per_rank is not None:
        facts["threads per rank"] = str(results.threads_per_rank)
    return facts | _settings(results)


def _of_session(session: Session) -> dict[str, str]:
    """What rank records do not hold; of the devices only their number, since each has its own UUID."""
    devices = session.environment.devices
    facts = {"devices": str(len(devices))} if devices else {}
    return facts | {
        name: value
        for name, value in session_facts(session).items()
        if name != "PyTorch" and not name.startswith(DEVICE)
    }


def _settings(results: ResultSet) -> dict[str, str]:
    """The config as flat keys, without the axes (cells tell those) and where it went."""
    if results.config is None:
        return {}
    content = results.config.model_dump(
        mode="json", exclude={"experiment_name", "models", "batch_sizes", "gpu_counts", "measure"}
    )
    return {f"config {key}": value for key, value in _flat(content).items()}


def _flat(content: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in content.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value if isinstance(value, str) else json.dumps(value)
    return flat


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted({name for name in names if name}))
