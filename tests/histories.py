"""Run folders and result sets of many nights, for tests of what is followed over time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from tests.factories import (
    VERSIONS,
    cells,
    environment,
    experiment,
    experiment_file,
    launch_record,
    machine,
    trained,
)
from torchscale.plan.expand import make_plan
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import LaunchFigures, ResultCell, ResultSet
from torchscale.schema.state import State
from torchscale.store.run_folder import RunFolder

FIRST_NIGHT = datetime(2026, 1, 1, 3, tzinfo=timezone.utc)
THROUGHPUT = MetricKey.model_validate("throughput")


def night(number: int) -> str:
    """When it began."""
    return (FIRST_NIGHT + timedelta(days=number)).isoformat(timespec="seconds")


def nightly(
    number: int,
    levels: Sequence[Sequence[float]],
    *,
    driver: str = "550.54",
    flags: tuple[str, ...] = (),
    state: State = State.OK,
    measured: Sequence[TrainingCell] = (),
    **of_environment: Any,
) -> ResultSet:
    """The results of a night: for each cell, the samples per second of its launches."""
    versions = VERSIONS.model_copy(update={"driver": driver})
    of_cells = measured or cells(
        batch_sizes=[8 * (place + 1) for place in range(len(levels))], gpu_counts=[1]
    )
    return ResultSet(
        name=f"night-{number}",
        tool_version="0.1.0",
        created_at=night(number),
        environment=environment(versions=versions, **of_environment),
        config=experiment(),
        threads_per_rank=1,
        cells=tuple(
            ResultCell(
                cell=cell,
                state=state,
                flags=flags,
                device="Test Processor",
                torch="2.13.0",
                launches=tuple(
                    LaunchFigures(started_at=night(number), values={THROUGHPUT: level}, flags=flags)
                    for level in of_cell
                ),
            )
            for cell, of_cell in zip(of_cells, levels, strict=True)
        ),
    )


def write_night(directory: Path, number: int, seconds: float = 1.0, **of_environment: Any) -> Path:
    """A run folder of one cell with three launches, whose ten steps took about so long."""
    config = experiment(gpu_counts=[1])
    plan = make_plan(config, machine()).cells
    of_night = {"created_at": night(number), "environment": environment(**of_environment)}
    folder = RunFolder.create(
        directory / f"night-{number}", experiment_file(config, plan, **of_night)
    )
    for launch in range(3):
        cell = trained(plan[0])
        folder.begin_launch(cell, launch)
        batches = (seconds * (1 + 0.002 * launch + 0.003 * (number * 7 % 5)),) * 10
        folder.finish_launch(cell, launch_record(cell, launch, batches, started_at=night(number)))
    return folder.path
