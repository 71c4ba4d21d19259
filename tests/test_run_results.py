"""Result folders as records, frames and figures."""

from __future__ import annotations

from pathlib import Path

import pytest

import torchscale
from tests.factories import (
    experiment,
    experiment_file,
    launch_record,
    machine,
    rank_record,
    run,
    trained,
    training_result,
)
from tests.report.test_machine import record as record_of_any_kind
from torchscale.errors import UsageError
from torchscale.plan.expand import make_plan
from torchscale.schema.launch.steps import StepSample
from torchscale.schema.launch.telemetry import GpuReading, Reading, Telemetry
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind
from torchscale.store.run_folder import RunFolder


def written(path: Path, launches: int = 3) -> RunFolder:
    """A run of one and two ranks with the files of its launches."""
    content = run({}, training={"precision": "bf16"})
    folder = RunFolder.create(path, content.experiment)
    for number, cell_run in enumerate(content.cells):
        cell = trained(cell_run.planned)
        for launch in range(launches):
            directory = folder.begin_launch(cell, launch)
            batches = [1.0 + 0.1 * number + 0.01 * launch] * 10
            ranks = [
                rank_record(cell, rank, batches, measured_from=100.0)
                for rank in range(cell.world_size)
            ]
            for rank in range(cell.world_size):
                steps = [
                    StepSample(
                        step=step,
                        seconds=0.1,
                        data_wait=0.01,
                        forward=0.03,
                        backward=0.04,
                        optimizer=0.02,
                    )
                    for step in range(5)
                ]
                text = "".join(f"{step.model_dump_json()}\n" for step in steps)
                (directory / f"steps-rank-{rank}.jsonl").write_text(text)
            gpus = tuple(
                GpuReading(uuid=f"GPU-{rank}", busy=0.5) for rank in range(cell.world_size)
            )
            readings = [
                Reading(time=99.0 + at, cpu_busy=0.25, memory_used_bytes=1, gpus=gpus)
                for at in range(3)
            ]
            text = "".join(f"{reading.model_dump_json()}\n" for reading in readings)
            (directory / "telemetry.jsonl").write_text(text + "torn {\n")
            folder.finish_launch(cell, launch_record(cell, launch, batches, ranks))
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> torchscale.Results:
    root = tmp_path_factory.mktemp("results")
    written(root / "one")
    written(root / "two", launches=1)
    return torchscale.load_results(root)


def test_a_directory_of_runs_is_loaded_whole(runs: torchscale.Results) -> None:
    assert repr(runs) == "Results(one: 2 of 2 cells, two: 2 of 2 cells)"
    assert list(runs.cells["run"]) == ["one", "one", "two", "two"]
    assert runs.problems == []


def test_cells_hold_figures_in_base_units(runs: torchscale.Results) -> None:
    import pandas as pd

    cells = runs.cells.set_index(["run", "gpu_count"])
    seconds = (1.0 + 1.01 + 1.02) / 3
    assert cells.loc[("two", 1), "samples_per_second"] == pytest.approx(80)
    assert cells.loc[("two", 2), "efficiency"] == pytest.approx((160 / 1.1) / 160)
    assert cells.loc[("one", 1), "step_time_p50_ms"] == pytest.approx(seconds * 100)
    assert cells.loc[("one", 2), "efficiency_low"] < cells.loc[("one", 2), "efficiency"]
    assert pd.isna(cells.loc[("two", 2), "efficiency_low"]), "one launch says nothing of launches"
    assert cells.loc[("two", 1), "measured_seconds"] == pytest.approx(10)
    assert cells.loc[("two", 1), "forward_seconds"] == pytest.approx(0.03)


def test_launches_steps_and_telemetry_are_tidy(runs: torchscale.Results) -> None:
    assert len(runs.launches) == 2 * 3 + 2
    assert set(runs.launches.columns) >= {
        "run",
        "cell_id",
        "launch",
        "throughput",
        "step-p95",
        "memory",
    }
    assert len(runs.steps) == (3 + 1) * (1 + 2) * 5
    assert runs.steps["seconds"].sum() == pytest.approx(len(runs.steps) * 0.1)
    phases = runs.steps[["data_wait", "forward", "backward", "optimizer"]].sum(axis=1)
    assert phases.to_numpy() == pytest.approx(runs.steps["seconds"].to_numpy())
    assert len(runs.telemetry) == (3 + 1) * (1 + 2) * 3
    assert sorted(runs.telemetry["seconds"].unique()) == [-1.0, 0.0, 1.0]
    assert set(runs.telemetry["gpu"]) == {"GPU-0", "GPU-1"}


def test_collectives_are_tidy(tmp_path: Path) -> None:
    config = experiment(measure=["collectives"], gpu_counts=[2])
    plan = make_plan(config, machine()).cells
    folder = RunFolder.create(tmp_path / "comm", experiment_file(config, plan))
    cell = plan[0].cell
    folder.begin_launch(cell, 0)
    folder.finish_launch(cell, record_of_any_kind(cell, Telemetry(seconds=1.0, readings=0)))
    runs = torchscale.load_results(tmp_path / "comm")
    assert repr(runs) == "Results(comm: 1 of 1 cells)"
    frame = runs.collectives
    curves = runs.runs["comm"].collectives[0].figures
    assert curves is not None
    assert len(frame) == sum(len(curve.points) for curve in curves.curves) > 0
    assert frame["busbw"].iloc[0] == curves.curves[0].points[0].busbw


def test_efficiency_findings_cost_and_comparison_are_functions(
    runs: torchscale.Results, tmp_path: Path
) -> None:
    efficiency = runs.efficiency()
    assert list(efficiency["gpu_count"]) == [1, 2, 1, 2]
    assert runs.findings() == []
    cost = runs.cost(2.0)
    assert cost["samples_per_dollar"].iloc[2] == pytest.approx(80 * 3600 / 2)
    pair = torchscale.compare_results(runs.result_set("one"), runs.result_set("two"))
    assert [change.verdict.value for change in pair.cells[0].changes] == ["unclear"] * 3


def test_figures_are_plotlys_and_by_title(runs: torchscale.Results) -> None:
    figures = runs.throughput_figures()
    assert list(figures) == ["tiny ResNet, bf16", "tiny ResNet, bf16 (1)"]
    first = figures["tiny ResNet, bf16"]
    assert list(first.data[0].x) == [1, 2]
    assert first.layout.yaxis.title.text == "samples/s"
    assert runs.efficiency_figures()
    assert runs.step_time_figures()
    assert runs.lost_time_figures() == {}, "these launches did not measure their exchange"


def test_records_are_typed(runs: torchscale.Results) -> None:
    record = runs.records("two", runs.cells["cell_id"].iloc[2])[0]
    assert training_result(record).ranks[0].batches.steps[0] == 10
    with pytest.raises(UsageError, match="no run 'three'"):
        runs.records("three", "x")
    with pytest.raises(UsageError, match="has no cell"):
        runs.records("two", "x")


def test_frames_of_nothing_have_their_columns(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "empty", run({}).experiment)
    runs = torchscale.load_results(tmp_path / "empty")
    assert list(runs.cells["state"]) == ["waiting"] * 2
    assert list(runs.steps.columns) == ["run", "cell_id", "launch", "rank", "step", "seconds"]
    assert runs.telemetry.empty
    assert runs.efficiency().empty


def test_what_holds_no_results_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no results"):
        torchscale.load_results(tmp_path)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = torchscale.nonsense


def test_what_no_launch_measured_is_a_number_that_is_missing(runs: torchscale.Results) -> None:
    once = runs.cells[runs.cells["run"] == "two"]
    assert once["efficiency_low"].isna().all()
    alone = torchscale.load_results(runs.directories["two"]).cells
    assert alone["efficiency_low"].dtype == float
    assert (alone["efficiency"] - alone["efficiency_low"]).isna().all()


def test_what_is_shown_of_findings_and_runs_is_short(runs: torchscale.Results) -> None:
    finding = Finding(
        kind=FindingKind.STRAGGLER,
        rank=3,
        cost_percent=12.34,
        cost_seconds=0.0123,
        confidence=Confidence.HIGH,
        summary="rank 3 computes longer",
        advice="exchange it",
    )
    cell = runs.runs["one"].cells[0]
    assert len(repr(cell)) < 150
    assert repr(cell).endswith(" samples/s)")
    assert repr([("one", cell, finding)]) == (
        f"[('one', {cell!r}, Finding(straggler, rank 3, 12.3 % (12.3 ms) of a step, high: rank 3 "
        "computes longer))]"
    )
    page = runs._repr_html_()
    assert page.count("<table>") == 2
    assert page.count("<tr>") == 6
