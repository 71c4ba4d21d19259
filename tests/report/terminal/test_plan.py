"""What a dry run prints."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.factories import experiment, machine
from torchscale.plan.duration import CellProgress, LaunchEnd, cell_progress, estimate_seconds
from torchscale.plan.expand import make_plan
from torchscale.plan.memory import Forecast
from torchscale.report.terminal.plan import print_plan
from torchscale.schema.cells.memory import MemoryParts, PredictedMemory
from torchscale.schema.state import State


def predicted(peak_bytes: int) -> PredictedMemory:
    parts = MemoryParts(parameters=1, buffers=0, gradients=1, optimizer_states=1, activations=1)
    return PredictedMemory(parts=parts, peak_bytes=peak_bytes, method="by hand")


def test_a_plan_tells_what_runs_what_may_not_fit_and_how_long_it_takes(tmp_path: Path) -> None:
    settings = {"repeats": 3}
    config = experiment(
        models="tiny-decoder", batch_sizes=[2, 4, 8], gpu_counts=[1, 64], benchmark=settings
    )
    plan = make_plan(config, machine())
    small, large, unknown = (cell for cell in plan.training if cell.world_size == 1)
    forecast = Forecast(
        {small.id: predicted(1 << 20), large.id: predicted(3 << 30)},
        device_bytes=2 << 30,
        shared=True,
    )
    console = Console(file=io.StringIO(), width=120, color_system=None)
    progress = [cell_progress(cell, {}, 3) for cell in plan.to_run]
    estimate = estimate_seconds(progress, config.benchmark, 1800.0, plan)
    print_plan(
        plan,
        console,
        device_label="2 CPU cores",
        folder=tmp_path,
        forecast=forecast,
        progress=progress,
        estimate=estimate,
    )
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    rows = {
        int(line.split()[0]): line
        for line in text.partition("\n\n")[0].splitlines()
        if line[:2].strip().isdigit()
    }
    assert len(rows) == 6
    numbers = {entry.cell.id: number for number, entry in enumerate(plan.cells, start=1)}
    assert "1.00 MiB" in rows[numbers[small.id]]
    assert "run, may not fit" in rows[numbers[large.id]]
    assert rows[numbers[unknown.id]].split()[-2:] == ["ddp", "run"]
    assert "Tensor memory: predicted, of all ranks of a cell together" in text
    assert sum("skip (a)" in row for row in rows.values()) == 3
    assert "6 cells: 3 to run (9 launches), 3 skipped. On 2 CPU cores." in text
    assert (
        "Estimated time: 4 min (shortest warm-up and measurement) to 40 min (both at their limit)."
        in text
    )
    assert "1 cell has no memory prediction" in text
    assert (
        "1 cell is predicted to take more than the 2.00 GiB that all ranks together can have."
        in text
    )


@pytest.mark.parametrize("width", [60, 80])
def test_nothing_in_a_plan_is_cut_and_no_unit_leaves_its_number(width: int, tmp_path: Path) -> None:
    models = ["tiny-decoder", {"script": "train.py --lr 0.1"}, {"script": "train.py --lr 1"}]
    text = printed([], tmp_path, width, predicted(105 << 10), models=models)
    assert "…" not in text
    assert all(len(line) <= width for line in text.partition("\n\n")[0].splitlines())
    assert all(word in text for word in ("devices", "memory", "train.py --lr 0.1", "105 KiB"))


def printed(
    progress: list[CellProgress],
    tmp_path: Path,
    width: int = 120,
    memory: PredictedMemory | None = None,
    **content: Any,
) -> str:
    config = experiment(**{"gpu_counts": [1], "batch_sizes": [8, 16], **content})
    plan = make_plan(config, machine())
    console = Console(file=io.StringIO(), width=width, color_system=None)
    estimate = estimate_seconds(progress, config.benchmark, 1800.0, plan)
    known = {cell.id: memory for cell in plan.training if memory is not None}
    forecast = Forecast(known, None, shared=True)
    print_plan(
        plan,
        console,
        device_label="a CPU",
        folder=tmp_path,
        forecast=forecast,
        progress=progress,
        estimate=estimate,
    )
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_plan_knows_what_is_done_and_left(tmp_path: Path) -> None:
    first, second = make_plan(experiment(gpu_counts=[1], batch_sizes=[8, 16]), machine()).to_run
    end = LaunchEnd(State.OK, 30.0)
    text = printed(
        [cell_progress(first, {0: end, 1: end}, 2), cell_progress(second, {0: end}, 2)], tmp_path
    )
    assert "  done" in text
    assert "run, 1 of 2 done" in text
    assert "2 cells: 1 done, 1 to run (4 launches: 3 done, 1 left), 0 skipped. On a CPU." in text
    assert "Estimated time: 30 s, as long as earlier launches of these cells took." in text
    text = printed([cell_progress(cell, {0: end}, 1) for cell in (first, second)], tmp_path)
    assert "2 cells: 2 done, none to run (2 launches: 2 done, 0 left), 0 skipped." in text
    assert "Nothing is left to run." in text
    assert "Estimated time" not in text
