"""What differs between result sets beside their figures: machines, software, settings, and what
cells were started with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torchscale.analysis.summary.conditions import DEVICE, over_sessions, session_facts
from torchscale.analysis.summary.scripts import ARGUMENT
from torchscale.config.choices import MatchKey
from torchscale.features.compare.analysis.matching import Match, named_values
from torchscale.schema.run.experiment_file import Session
from torchscale.schema.run.result_set import ResultCell, ResultSet
from torchscale.schema.state import State

_DECIDING = ("device", "torch")
"""Conditions that change every figure, so that a comparison over them must be asked for."""


@dataclass(frozen=True)
class SideDifference:
    """Something that is not equal on all sides. ``forbids`` is set where a comparison then tells
    nothing of what people usually ask, so that it needs to be asked for."""

    what: str
    values: tuple[str, ...]
    forbids: bool = False


def cell_differences(sides: Sequence[Sequence[Match]]) -> list[SideDifference]:
    """What differs between cells that are compared with each other: for each side against the
    reference, the matches. Values are those of all cells of a side."""
    matched = [
        [_values(before, after) for before, after in matches if before and after]
        for matches in sides
    ]
    names = dict.fromkeys(
        name for pairs in matched for ours, theirs in pairs for name in (*ours, *theirs)
    )
    unequal = [
        name
        for name in names
        if any(ours.get(name) != theirs.get(name) for pairs in matched for ours, theirs in pairs)
    ]
    return [
        SideDifference(
            _name_of(name),
            (
                _in_order(ours.get(name, "") for pairs in matched for ours, _ in pairs),
                *(_in_order(theirs.get(name, "") for _, theirs in pairs) for pairs in matched),
            ),
        )
        for name in unequal
    ]


def _name_of(name: str) -> str:
    """``global batch of cells``; the name of an argument as it was typed."""
    if name.startswith(ARGUMENT):
        return name
    return f"{name.replace('_', ' ')} of cells"


def _values(before: ResultCell, after: ResultCell) -> tuple[dict[str, str], dict[str, str]]:
    """What both cells were started with, and by what their data moved, if both say so. The model of
    a script is the name of its file, which is an argument."""
    ours, theirs = named_values(before.cell), named_values(after.cell)
    if all(any(name.startswith(ARGUMENT) for name in side) for side in (ours, theirs)):
        del ours[MatchKey.MODEL.value], theirs[MatchKey.MODEL.value]
    if before.moved_by is not None and after.moved_by is not None:
        ours["transport"], theirs["transport"] = before.moved_by, after.moved_by
    return ours, theirs


def differences(sets: Sequence[ResultSet]) -> list[SideDifference]:
    """Everything of machines, software and settings that is not equal on all sides; the forbidding
    ones first."""
    return unequal_facts([result_facts(results) for results in sets])


def unequal_facts(columns: Sequence[Mapping[str, str]]) -> list[SideDifference]:
    """What is not equal in all of these :func:`result_facts`; what forbids a comparison first."""
    names = dict.fromkeys(name for column in columns for name in column)
    unequal = []
    for name in names:
        values = tuple(column.get(name, "") for column in columns)
        if len(set(values)) > 1:
            forbids = name in _DECIDING and len({value for value in values if value}) > 1
            unequal.append(SideDifference(name, values, forbids))
    return sorted(unequal, key=lambda difference: not difference.forbids)


def result_facts(results: ResultSet) -> dict[str, str]:
    """Everything of a run's machine, software and settings that can change a figure, by name."""
    measured = [cell for cell in results.cells if cell.state is State.OK]
    facts = {
        "device": _listed(cell.device for cell in measured),
        "torch": _listed(cell.torch for cell in measured),
    }
    facts |= over_sessions(
        [_of_session(session) for session in results.sessions]
        or [{"torchscale": results.tool_version}]
    )
    if results.threads_per_rank is not None:
        facts["threads per rank"] = str(results.threads_per_rank)
    return facts | _settings(results)


def _of_session(session: Session) -> dict[str, str]:
    """What rank records do not hold; of the devices only their number, since each has its own
    UUID."""
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
        mode="json",
        exclude={"experiment_name", "models", "batch_sizes", "gpu_counts", "nodes", "measure"},
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


def _in_order(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(value for value in values if value))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted({name for name in names if name}))
