from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, cast, get_args

import pytest
from pydantic import TypeAdapter, ValidationError

import torchscale
from tests.factories import cells, experiment, launch_record, training_result
from torchscale.analysis.kinds import AnalysisKind, analysis_kind
from torchscale.config.choices import CellKind
from torchscale.door import OFFERS
from torchscale.launch.kinds import LaunchKind, launch_kind
from torchscale.plan.kinds import PlanKind, plan_kind
from torchscale.report.kinds import ReportKind, report_kind
from torchscale.schema.cells.checkpoint import CheckpointCell
from torchscale.schema.cells.collectives import CollectivesResult
from torchscale.schema.cells.kinds import (
    KINDS,
    AnyCell,
    AnyPayload,
    AnyRank,
    as_kind,
    of_kind,
    training_workload,
)
from torchscale.schema.cells.memory import MemoryCell
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.record import payload
from torchscale.worker.kinds import WorkerKind, worker_kind

ROOMS: dict[str, tuple[type, Callable[[CellKind], object]]] = {
    "analysis": (AnalysisKind, analysis_kind),
    "launch": (LaunchKind, launch_kind),
    "plan": (PlanKind, plan_kind),
    "report": (ReportKind, report_kind),
    "worker": (WorkerKind, worker_kind),
}
CONFIG = experiment()
CELL = cells()[0]


def parameters(function: Callable[..., object]) -> list[tuple[str, object]]:
    """Names and kinds, without ``self``: what a caller through the interface relies on."""
    return [
        (one.name, one.kind)
        for one in inspect.signature(function).parameters.values()
        if one.name != "self"
    ]


def test_the_table_holds_every_kind_and_every_class_once() -> None:
    assert set(KINDS) == set(get_args(CellKind))
    for any_class, field in ((AnyCell, "cell"), (AnyPayload, "payload")):
        union, _ = get_args(any_class)
        assert {getattr(kind, field) for kind in KINDS.values()} == set(get_args(union))
    assert {kind.rank for kind in KINDS.values()} == set(get_args(AnyRank))
    for name, kind in KINDS.items():
        assert (
            kind.cell.model_fields["kind"].default
            == kind.payload.model_fields["kind"].default
            == name
        )
        assert kind.payload().ranks == ()


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_has_one_module_for_each_kind(room: str) -> None:
    interface, find = ROOMS[room]
    if room != "worker":  # whose modules are found by their names: a rank knows no features
        assert set(OFFERS[f"kinds, {room}"]) == set(KINDS)
    methods = {
        name: function for name, function in vars(interface).items() if inspect.isfunction(function)
    }
    methods = {name: function for name, function in methods.items() if not name.startswith("_")}
    assert methods
    for kind in KINDS:
        module = cast(ModuleType, find(kind))
        public = {
            name
            for name, value in vars(module).items()
            if inspect.isfunction(value)
            and value.__module__ == module.__name__
            and not name.startswith("_")
        }
        assert public == set(methods), f"{module.__name__} against {interface.__name__}"
        for name, method in methods.items():
            assert parameters(getattr(module, name)) == parameters(method), (
                f"{module.__name__}.{name}"
            )


def test_only_the_table_of_kinds_asks_for_a_class() -> None:
    asks = re.compile(r"isinstance\(.*(Cell|Summary|Record|Rank|Result)\b")
    package = Path(torchscale.__file__).parent
    sources = {path.relative_to(package): path.read_text() for path in package.rglob("*.py")}
    assert [str(path) for path, source in sources.items() if asks.search(source)] == []


def test_a_cell_says_its_kind() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(AnyCell)
    content = CELL.model_dump(mode="json")
    assert adapter.validate_python(content) == CELL
    del content["kind"]
    with pytest.raises(ValidationError, match="kind"):
        adapter.validate_python(content)


def test_narrowing() -> None:
    memory, checkpoint = MemoryCell(training=CELL), CheckpointCell(training=CELL)
    (collectives,) = plan_kind("collectives").make_cells(CONFIG, "cpu", [2])
    assert of_kind([memory, CELL, collectives], TrainingCell) == (CELL,)
    assert as_kind(memory, TrainingCell) is None
    of = [training_workload(cell) for cell in (CELL, memory, checkpoint, collectives)]
    assert of == [CELL, CELL, CELL, None]


def test_a_payload_of_another_kind_is_an_error() -> None:
    record = launch_record(CELL)
    assert len(training_result(record).ranks) == CELL.world_size
    with pytest.raises(ValueError, match="kind training"):
        payload(record, CollectivesResult)
