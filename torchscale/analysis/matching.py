"""Which cells of two result sets are the same workload, and in what else the two sets differ."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torchscale.analysis.conditions import DEVICE, over_sittings, sitting_facts
from torchscale.schema.experiment import Sitting
from torchscale.schema.memory import MemoryCell
from torchscale.schema.record import State
from torchscale.schema.results import ResultCell, ResultSet
from torchscale.schema.task import AnyCell

Match = tuple[ResultCell | None, ResultCell | None]
"""A cell of the reference and the same one of the other side."""
_HOW = {"measurement", "device", "seed"}
"""How a cell is measured and what it asks for, not what it is; what differs in them is named."""
_DECIDING = ("device", "torch")


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

    A cell matches by its id, else by its workload where that is told by one cell of each side.
    """
    theirs = {cell.cell.id: cell for cell in other.cells}
    pairs = {cell.cell.id: theirs[cell.cell.id] for cell in reference.cells if cell.cell.id in theirs}
    notes = []
    for precision_counts in (True, False):
        taken = {cell.cell.id for cell in pairs.values()}
        ours_left = _by_workload([cell for cell in reference.cells if cell.cell.id not in pairs], precision_counts)
        theirs_left = _by_workload([cell for cell in other.cells if cell.cell.id not in taken], precision_counts)
        alone = [key for key, found in ours_left.items() if len(found) == 1 == len(theirs_left.get(key, ()))]
        if precision_counts or ignore_precision:
            pairs.update({ours_left[key][0].cell.id: theirs_left[key][0] for key in alone})
        elif alone:
            notes.append(
                f"{len(alone)} of the cells without a counterpart differ in precision alone (--force compares them)"
            )
    taken = {cell.cell.id for cell in pairs.values()}
    found: list[Match] = [(cell, pairs.get(cell.cell.id)) for cell in reference.cells]
    return [*found, *((None, cell) for cell in other.cells if cell.cell.id not in taken)], tuple(notes)


def _by_workload(cells: Sequence[ResultCell], precision_counts: bool) -> dict[str, list[ResultCell]]:
    found: dict[str, list[ResultCell]] = {}
    for cell in cells:
        found.setdefault(_workload(cell.cell, precision_counts), []).append(cell)
    return found


def _workload(cell: AnyCell, precision_counts: bool) -> str:
    without = _HOW if precision_counts else {*_HOW, "precision"}
    if isinstance(cell, MemoryCell):
        content: dict[str, object] = {"kind": cell.kind, "of": _workload(cell.training, precision_counts)}
    else:
        content = cell.model_dump(mode="json", exclude=without)
    return json.dumps(content, sort_keys=True)


def differences(sets: Sequence[ResultSet]) -> list[Difference]:
    """Everything of machines, software and settings that is not equal on all sides; the forbidding ones first."""
    columns = [_facts(one) for one in sets]
    names = dict.fromkeys(name for column in columns for name in column)
    found = []
    for name in names:
        values = tuple(column.get(name, "") for column in columns)
        if len(set(values)) > 1:
            forbids = name in _DECIDING and len({value for value in values if value}) > 1
            found.append(Difference(name, values, forbids))
    return sorted(found, key=lambda difference: not difference.forbids)


def _facts(one: ResultSet) -> dict[str, str]:
    measured = [cell for cell in one.cells if cell.state is State.OK]
    facts = {
        "device": _listed(cell.device for cell in measured),
        "torch": _listed(cell.torch for cell in measured),
    }
    facts |= over_sittings([_of_sitting(sitting) for sitting in one.sittings] or [{"torchscale": one.tool_version}])
    if one.threads_per_rank is not None:
        facts["threads per rank"] = str(one.threads_per_rank)
    return facts | _settings(one)


def _of_sitting(sitting: Sitting) -> dict[str, str]:
    """What no rank tells; of the devices their number alone, since every one has another UUID."""
    devices = sitting.environment.devices
    facts = {"devices": str(len(devices))} if devices else {}
    return facts | {
        name: value
        for name, value in sitting_facts(sitting).items()
        if name != "PyTorch" and not name.startswith(DEVICE)
    }


def _settings(one: ResultSet) -> dict[str, str]:
    """The config as flat keys, without the axes (cells tell those) and where it went."""
    if one.config is None:
        return {}
    content = one.config.model_dump(
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
