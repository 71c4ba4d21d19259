"""The columns of ``summary.csv``: of a cell with everything, and of one with nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests import factories
from torchscale.analysis.summary.run import summarize
from torchscale.analysis.training.scaling import Efficiency
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.formats.columns import COLUMNS, SUMMARY_COLUMNS, cell_row
from torchscale.schema.launch.telemetry import GpuUse, Telemetry

GPUS = (GpuUse(uuid="GPU-1", busy=0.9), GpuUse(uuid="GPU-2", busy=0.5), GpuUse(uuid="GPU-3"))


@pytest.fixture(scope="module")
def summary() -> TrainingSummary:
    found = summarize(factories.run()).measured[0]
    assert found.figures is not None
    figures = replace(
        found.figures,
        samples_per_second=100.0,
        step_mean=0.2,
        tokens_per_second=6400.0,
        run_half_width=None,
        half_width=1.5,
        joules_per_step=12.0,
        samples_per_joule=0.5,
        telemetry=Telemetry(seconds=1.0, readings=1, memory_used_peak_bytes=7, gpus=GPUS),
    )
    return replace(found, figures=figures, efficiency=Efficiency(0.8, 1, (0.7, 0.9), ()))


def test_each_value_has_the_type_of_its_column(summary: TrainingSummary) -> None:
    types = {column.name: column.kind for column in COLUMNS}
    row = {name: value for name, value in cell_row(summary).items() if value is not None}
    del row["compile"]  # text or a switch
    assert {name: type(value) for name, value in row.items()} == {name: types[name] for name in row}
    assert {"tokens_per_second", "peak_memory_bytes", "joules_per_step"} <= row.keys()
    assert len(set(SUMMARY_COLUMNS)) == len(SUMMARY_COLUMNS)


def test_times_are_in_milliseconds_with_their_ends(summary: TrainingSummary) -> None:
    row = cell_row(summary)
    assert row["step_time_mean_ms"] == pytest.approx(200.0)
    assert row["step_time_mean_ms_low"] == pytest.approx(0.0)
    assert row["step_time_mean_ms_high"] == pytest.approx(500.0)
    assert (row["efficiency_low"], row["efficiency_high"]) == (0.7, 0.9)


def test_a_rate_without_an_upper_end_has_none(summary: TrainingSummary) -> None:
    row = cell_row(summary)
    assert row["samples_per_second_low"] == pytest.approx(40.0)
    assert row["samples_per_second_high"] is None
    assert row["tokens_per_second_low"] == pytest.approx(2560.0)


def test_columns_of_gpus_are_means_over_those_that_say_it(summary: TrainingSummary) -> None:
    row = cell_row(summary)
    assert row["gpu_busy"] == pytest.approx(0.7)
    assert row["gpu_power_watts"] is None
    assert row["host_memory_peak_bytes"] == 7


def test_a_cell_that_measured_nothing_says_what_was_asked(summary: TrainingSummary) -> None:
    row = cell_row(replace(summary, figures=None, efficiency=None, compute=None))
    assert row["model"] == summary.cell.model
    assert row["efficiency_flags"] == ""
    empty = ("samples_per_second", "peak_memory_bytes", "mfu", "gpu_busy", "cpu_busy", "efficiency")
    assert {row[name] for name in (*empty, "samples_per_second_low")} == {None}
