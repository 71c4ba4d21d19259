"""Which cells of two result sets are compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from torchscale.analysis.summary.scripts import named_arguments
from torchscale.config.choices import MatchKey
from torchscale.config.strategy import strategy_label
from torchscale.errors import UsageError
from torchscale.schema.cells.checkpoint import CheckpointCell
from torchscale.schema.cells.kinds import AnyCell, as_kind, training_workload
from torchscale.schema.cells.memory import MemoryCell
from torchscale.schema.cells.script import OWN, Script
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.run.result_set import ResultCell, ResultSet
from torchscale.schema.state import State

Match = tuple[ResultCell | None, ResultCell | None]
"""A cell of the reference, and the one of the other side that it is compared with."""
_Key = tuple[str, ...]
_HOW_MEASURED = {"measurement", "device", "seed"}
"""Fields that say how a cell is measured, not which workload it is; differences in them are
listed."""


def match_cells(
    reference: ResultSet,
    other: ResultSet,
    *,
    ignore_precision: bool = False,
    keys: Sequence[MatchKey] = (),
) -> tuple[list[Match], tuple[str, ...]]:
    """Cells of both sides in the reference's order, then what only the other has; and remarks on
    what did not match.

    A cell matches by its id, else by its workload where one cell of each side has it; a script
    whatever its arguments, where each side has one at that count and batch. With ``keys``,
    training and memory cells match by these alone, whatever else differs.

    Raises:
        UsageError: ``keys`` do not tell cells of a side apart.
    """
    pairs, notes = (
        _match_by_keys(reference, other, keys)
        if keys
        else _match_by_workload(reference.cells, other.cells, ignore_precision)
    )
    taken = {cell.cell.id for cell in pairs.values()}
    matches: list[Match] = [(cell, pairs.get(cell.cell.id)) for cell in reference.cells]
    return [*matches, *((None, cell) for cell in other.cells if cell.cell.id not in taken)], tuple(
        notes
    )


def _match_by_keys(
    reference: ResultSet, other: ResultSet, keys: Sequence[MatchKey]
) -> tuple[dict[str, ResultCell], list[str]]:
    """Cells that have no such keys match by their workload."""
    sides = [_by_keys(side.cells, keys) for side in (reference, other)]
    pairs = {}
    for key in [key for key in sides[0] if key in sides[1]]:
        for side, cells in zip((reference, other), (sides[0][key], sides[1][key]), strict=True):
            if len(cells) > 1:
                raise _ambiguous(side.name, cells, keys)
        pairs[sides[0][key][0].cell.id] = sides[1][key][0]
    without = [
        [cell for cell in side.cells if training_workload(cell.cell) is None]
        for side in (reference, other)
    ]
    machine_pairs, notes = _match_by_workload(without[0], without[1], ignore_precision=False)
    return pairs | machine_pairs, notes


def _by_keys(cells: Sequence[ResultCell], keys: Sequence[MatchKey]) -> dict[_Key, list[ResultCell]]:
    """Training and memory cells by what must be equal; a skipped one gives way to others of the
    same key."""
    by_keys: dict[_Key, list[ResultCell]] = {}
    for cell in cells:
        if training_workload(cell.cell) is not None:
            values = named_values(cell.cell)
            by_keys.setdefault((cell.cell.kind, *(values[key.value] for key in keys)), []).append(
                cell
            )
    return {
        key: [cell for cell in members if cell.state is not State.SKIPPED] or members[:1]
        for key, members in by_keys.items()
    }


def _ambiguous(side: str, cells: Sequence[ResultCell], keys: Sequence[MatchKey]) -> UsageError:
    values = [named_values(cell.cell) for cell in cells]
    shared = ", ".join(f"{key.value} {values[0][key.value]}" for key in keys)
    further = [
        key.value
        for key in MatchKey
        if key not in keys and len({one[key.value] for one in values}) > 1
    ]
    return UsageError(
        f"--match {','.join(key.value for key in keys)}: {len(cells)} cells of {side} are "
        f"{shared}; expected one",
        hint=f"add what tells them apart: {', '.join(further)}"
        if further
        else "compare them without --match",
    )


def named_values(cell: AnyCell) -> dict[str, str]:
    """What of a cell ``--match`` can name, then its other settings, and the words of a script's
    command line; of a cell that trains nothing its devices alone."""
    trained = training_workload(cell)
    if trained is None:
        return {MatchKey.DEVICES.value: str(cell.world_size)}
    options = ", ".join(f"{name}={value}" for name, value in trained.model_options.items())
    packing = [] if trained.lengths is None else [trained.lengths.packing]
    values = {
        MatchKey.MODEL: f"{trained.model} ({options})" if options else trained.model,
        MatchKey.BATCH: _batch(trained, lambda: trained.per_device_batch_size),
        MatchKey.GLOBAL_BATCH: _batch(trained, lambda: trained.global_batch_size),
        MatchKey.DEVICES: str(trained.world_size),
        MatchKey.PRECISION: trained.precision,
        MatchKey.STRATEGY: strategy_label(trained.strategy),
        MatchKey.SCALING: trained.scaling,
        MatchKey.OPTIMIZER: trained.optimizer,
        MatchKey.DATA: " ".join([trained.data_source, *packing]),
    }
    own = {trained.optimizer, trained.data_source, *packing}
    settings = ", ".join(setting for setting in trained.settings if setting not in own)
    return {
        **{key.value: value for key, value in values.items()},
        "settings": settings or "default",
        **({} if trained.script is None else named_arguments(trained.script.text)),
    }


def _batch(cell: TrainingCell, size: Callable[[], int]) -> str:
    """A batch size; ``own`` of a script that is not told it."""
    if cell.batch_size is None:
        return OWN
    return str(size())


def _match_by_workload(
    reference: Sequence[ResultCell], other: Sequence[ResultCell], ignore_precision: bool
) -> tuple[dict[str, ResultCell], list[str]]:
    theirs = {cell.cell.id: cell for cell in other}
    pairs = {cell.cell.id: theirs[cell.cell.id] for cell in reference if cell.cell.id in theirs}
    notes = []
    for precision_counts in (True, False):
        taken = {cell.cell.id for cell in pairs.values()}
        ours_left = _by_workload(
            [cell for cell in reference if cell.cell.id not in pairs], precision_counts
        )
        theirs_left = _by_workload(
            [cell for cell in other if cell.cell.id not in taken], precision_counts
        )
        unambiguous = [
            key
            for key, ours in ours_left.items()
            if len(ours) == 1 == len(theirs_left.get(key, ()))
        ]
        if precision_counts or ignore_precision:
            pairs.update({ours_left[key][0].cell.id: theirs_left[key][0] for key in unambiguous})
        elif unambiguous:
            notes.append(
                f"{len(unambiguous)} of the cells without a counterpart differ in precision alone "
                "(--accept versions compares them)"
            )
    pairs.update(_match_scripts(reference, other, pairs))
    return pairs, notes


def _match_scripts(
    reference: Sequence[ResultCell], other: Sequence[ResultCell], pairs: Mapping[str, ResultCell]
) -> dict[str, ResultCell]:
    """Scripts that are left, by what they share: their arguments are what is compared."""
    taken = {cell.cell.id for cell in pairs.values()}
    ours = _scripts([cell for cell in reference if cell.cell.id not in pairs])
    theirs = _scripts([cell for cell in other if cell.cell.id not in taken])
    return {
        members[0].cell.id: theirs[key][0]
        for key, members in ours.items()
        if len(members) == 1 == len(theirs.get(key, ()))
    }


def _scripts(cells: Sequence[ResultCell]) -> dict[_Key, list[ResultCell]]:
    found: dict[_Key, list[ResultCell]] = {}
    for cell in cells:
        trained = as_kind(cell.cell, TrainingCell)
        if trained is not None and trained.script is not None:
            found.setdefault(_of_script(trained, trained.script), []).append(cell)
    return found


def _of_script(cell: TrainingCell, script: Script) -> _Key:
    batch = _batch(cell, lambda: cell.global_batch_size)
    return script.form, str(cell.world_size), batch


def _by_workload(
    cells: Sequence[ResultCell], precision_counts: bool
) -> dict[str, list[ResultCell]]:
    by_workload: dict[str, list[ResultCell]] = {}
    for cell in cells:
        by_workload.setdefault(_workload(cell.cell, precision_counts), []).append(cell)
    return by_workload


def workload_key(cell: AnyCell) -> str:
    """Equal for cells that measure the same, on whatever device and however long."""
    return _workload(cell, precision_counts=True)


def is_same_work(before: ResultCell, after: ResultCell) -> bool:
    """Whether both measure the same, or a script whose arguments alone may differ."""
    is_one_script = any(len(alike) == 2 for alike in _scripts([before, after]).values())
    return is_one_script or workload_key(before.cell) == workload_key(after.cell)


def _workload(cell: AnyCell, precision_counts: bool) -> str:
    without = _HOW_MEASURED if precision_counts else {*_HOW_MEASURED, "precision"}
    memory, checkpoint = as_kind(cell, MemoryCell), as_kind(cell, CheckpointCell)
    content: dict[str, object]
    if memory is not None:
        content = {"kind": cell.kind, "of": _workload(memory.training, precision_counts)}
    elif checkpoint is not None:
        content = {
            "kind": cell.kind,
            "of": _workload(checkpoint.training, precision_counts),
            "threads": checkpoint.threads,
        }
    else:
        content = cell.model_dump(mode="json", exclude=without)
    return json.dumps(content, sort_keys=True)
