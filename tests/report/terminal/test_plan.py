"""What a dry run prints."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from tests.factories import experiment, machine
from torchscale.plan.expand import make_plan
from torchscale.plan.forecast import Forecast
from torchscale.report.terminal.plan import print_plan
from torchscale.schema.cells.memory import MemoryParts, PredictedMemory


def predicted(peak_bytes: int) -> PredictedMemory:
    parts = MemoryParts(parameters=1, buffers=0, gradients=1, optimizer_states=1, activations=1)
    return PredictedMemory(parts=parts, peak_bytes=peak_bytes, method="by hand")


def test_a_plan_tells_what_runs_what_may_not_fit_and_how_long_it_takes(tmp_path: Path) -> None:
    settings = {"repeats": 3}
    config = experiment(models="tiny-decoder", batch_sizes=[2, 4, 8], gpu_counts=[1, 64], benchmark=settings)
    plan = make_plan(config, machine())
    small, large, unknown = (cell for cell in plan.training if cell.world_size == 1)
    forecast = Forecast({small.id: predicted(1 << 20), large.id: predicted(3 << 30)}, device_bytes=2 << 30, shared=True)
    console = Console(file=io.StringIO(), width=120, color_system=None)
    print_plan(plan, console, device_label="2 CPU cores", folder=tmp_path, settings=config.benchmark, forecast=forecast)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    rows = {int(line.split()[0]): line for line in text.partition("\n\n")[0].splitlines() if line[:2].strip().isdigit()}
    assert len(rows) == 6
    numbers = {entry.cell.id: number for number, entry in enumerate(plan.cells, start=1)}
    assert "1.00 MiB" in rows[numbers[small.id]]
    assert "run, may not fit" in rows[numbers[large.id]]
    assert rows[numbers[unknown.id]].rstrip().endswith("ddp                 run")
    assert sum("skip (a)" in row for row in rows.values()) == 3
    assert "6 cells: 3 to run (9 launches), 3 skipped. On 2 CPU cores." in text
    assert "It should take between" in text
    assert "Memory was not predicted for 1 of them" in text
    assert "1 cell is predicted to take more than the 2.00 GiB that all ranks together can have." in text
