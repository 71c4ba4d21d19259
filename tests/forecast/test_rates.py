"""Units of throughput: what counts samples, what counts steps, and by what steps are multiplied."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchscale.errors import UsageError
from torchscale.forecast.measured_table import read_table
from torchscale.forecast.rates import Kind, parse_unit, throughput_column

STEP_RATES = [
    "it/s",
    "It/s",
    "it/sec",
    "its/s",
    "iter/s",
    "iters/s",
    "iterations/sec",
    "iterations per second",
    "iterations_per_second",
    "steps/s",
    "step/s",
    "Steps / s",
    "steps_per_second",
    "train_steps_per_second",
    "optimizer steps per second",
    "global_step/sec",
    "batches/s",
    "batch/second",
    "mini-batches/s",
    "micro_batches_per_second",
    "updates/s",
    "it s^-1",
    "it·s⁻¹",
    "steps",
]
STEP_TIMES = {
    "s/it": 1.0,
    "sec/iter": 1.0,
    "seconds per step": 1.0,
    "ms/step": 1e-3,
    "us/it": 1e-6,
    "step_time_ms": 1e-3,
    "iteration time (s)": 1.0,
    "avg_step_time": 0.0,
}
SAMPLE_RATES = [
    "samples/s",
    "samples_per_second",
    "images/s",
    "img/sec",
    "tokens/s",
    "tok/s",
    "seq/s",
    "sequences per second",
    "examples/sec",
    "words/s",
    "TFLOPS",
    "1/s",
    "epochs/s",
    "iterables/s",
    "stepwise-samples/s",
    "",
]
NEITHER = ["ms", "s", "hours", "samples/min", "it/h", "steps per minute", "samples/step", "it/ms"]


def table(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "points.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("unit", STEP_RATES)
def test_steps_are_no_samples(tmp_path: Path, unit: str) -> None:
    assert parse_unit(unit).kind is Kind.STEPS
    path = table(tmp_path, "gpus,throughput,unit", f"8,2,{unit}", f"16,1.9,{unit}")
    with pytest.raises(UsageError) as caught:
        read_table(path)
    assert f"line 2: unit {unit!r} counts steps, not samples" in caught.value.message
    assert "multiply steps per second by the samples of a step" in caught.value.message
    assert caught.value.hint is not None
    assert "samples (of a step, over all GPUs) or batch_per_gpu" in caught.value.hint


@pytest.mark.parametrize(("unit", "seconds"), STEP_TIMES.items())
def test_a_time_of_a_step_is_no_rate(tmp_path: Path, unit: str, seconds: float) -> None:
    assert (parse_unit(unit).kind, parse_unit(unit).seconds) == (Kind.STEP_TIME, seconds)
    path = table(tmp_path, "gpus,throughput,unit", f"8,2,{unit}", f"16,1.9,{unit}")
    with pytest.raises(UsageError, match="is a time of a step; expected a rate per second"):
        read_table(path)


@pytest.mark.parametrize("unit", SAMPLE_RATES)
def test_what_counts_samples_stays_as_it_is(tmp_path: Path, unit: str) -> None:
    path = table(tmp_path, "gpus,throughput,unit", f"8,100,{unit}", f"16,190,{unit}")
    (series,), _ = read_table(path)
    assert [point.throughput for point in series.points] == [100, 190]
    assert series.unit == (unit or "1/s")


@pytest.mark.parametrize("unit", NEITHER)
def test_times_and_rates_of_another_time_are_refused(tmp_path: Path, unit: str) -> None:
    path = table(tmp_path, "gpus,throughput,unit", f"8,100,{unit}", f"16,190,{unit}")
    with pytest.raises(UsageError, match="expected a rate per second, such as samples/s"):
        read_table(path)


@pytest.mark.parametrize(
    ("unit", "value", "column", "batch", "rate", "counted"),
    [
        ("it/s", "2", "samples", "256", 512, "samples/s"),
        ("steps_per_second", "2", "tokens", "8192", 16384, "tokens/s"),
        ("it/s", "2", "global_batch_size", "256", 512, "samples/s"),
        ("it/s", "2", "batch_per_gpu", "32", 2 * 32 * 8, "samples/s"),
        ("s/it", "0.5", "samples", "256", 512, "samples/s"),
        ("ms/step", "500", "per_device_train_batch_size", "32", 512, "samples/s"),
    ],
)
def test_steps_are_multiplied_by_the_samples_of_a_step_where_the_table_has_them(
    tmp_path: Path, unit: str, value: str, column: str, batch: str, rate: float, counted: str
) -> None:
    path = table(
        tmp_path,
        f"gpus,nodes,throughput,unit,{column}",
        f"8,1,{value},{unit},{batch}",
        f"16,2,{value},{unit},{batch}",
    )
    (series,), notes = read_table(path)
    assert series.points[0].throughput == pytest.approx(rate)
    assert series.unit == counted
    assert any(f"{unit} counts steps: multiplied by {column}" in note for note in notes)


def test_steps_of_one_gpu_are_refused_even_with_a_batch(tmp_path: Path) -> None:
    path = table(tmp_path, "gpus,throughput,unit,samples", "8,2,it/s/GPU,256", "16,2,it/s/GPU,512")
    with pytest.raises(UsageError, match="counts steps"):
        read_table(path)


def test_a_batch_beside_samples_per_second_multiplies_nothing(tmp_path: Path) -> None:
    path = table(
        tmp_path, "gpus,throughput,batch_per_gpu", "8,100,as large as fits", "16,190,the same"
    )
    (series,), _ = read_table(path)
    assert series.points[0].throughput == 100


@pytest.mark.parametrize(
    ("column", "unit"),
    [
        ("throughput (tokens/s)", "tokens/s"),
        ("throughput [img/sec]", "img/sec"),
        ("samples/s", "samples/s"),
        ("train_samples_per_second", "train_samples_per_second"),
        ("samples_per_second", "samples_per_second"),
    ],
)
def test_the_name_of_a_column_gives_the_unit(tmp_path: Path, column: str, unit: str) -> None:
    (series,), _ = read_table(table(tmp_path, f"gpus,{column}", "8,100", "16,190"))
    assert series.unit == unit


def test_a_column_per_gpu_is_multiplied(tmp_path: Path) -> None:
    path = table(tmp_path, "gpus,tokens_per_second_per_gpu", "8,100", "16,95")
    (series,), _ = read_table(path)
    assert [point.throughput for point in series.points] == [800, 1520]


@pytest.mark.parametrize(
    "column", ["it/s", "throughput (it/s)", "throughput_it_s", "steps_per_second", "s/it"]
)
def test_a_column_of_steps_is_refused(tmp_path: Path, column: str) -> None:
    with pytest.raises(UsageError, match="of a step"):
        read_table(table(tmp_path, f"gpus,{column}", "8,2", "16,1.9"))


def test_samples_go_before_steps_and_two_columns_of_samples_are_asked_about() -> None:
    assert throughput_column("t", ["gpus", "steps/s", "samples/s"]) == (2, "samples/s")
    assert throughput_column("t", ["gpus", "it/s", "throughput"]) == (2, "")
    assert throughput_column("t", ["gpus", "steps", "batch", "rate"]) is None
    with pytest.raises(UsageError, match="several columns of throughput"):
        throughput_column("t", ["gpus", "tokens/s", "samples/s"])
