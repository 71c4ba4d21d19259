"""Units of throughput: what counts samples, what counts steps, and by what steps are multiplied."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchscale.errors import UsageError
from torchscale.features.decide.forecast.measured_table import read_table
from torchscale.features.decide.forecast.rates import throughput_column
from torchscale.features.decide.forecast.units import RateScope, UnitKind, parse_unit

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
    "it.s^-1",
    "steps s**-1",
    "steps",
    "[it/s]",
    "(it/s)",
    "speed (iter/s)",
    "throughput: steps/s",
    "grad_steps/s",
    "gradient steps/s",
    "train/steps_per_second",
    "perf/it/s",
    "train.steps_per_second",
    "eval_steps_per_second",
    "optimizer_steps_per_sec",
    "steps completed per second",
    "iterationsPerSecond",
    "steps-per-second",
    "Hz",
    "`it/s`",
    "it∕s",
    "microsteps/s",
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
    "1/s",
    "requests/s",
    "documents/s",
    "env steps/s",
    "samples/s (bf16)",
    "samples/s (all GPUs)",
    "tokens/s total",
    "perf/tokens_per_second",
    "iterables/s",
    "stepwise-samples/s",
    "",
]
NEITHER = ["ms", "s", "hours", "samples/min", "it/h", "steps per minute", "samples/step", "it/ms"]
NO_SAMPLES = {
    "epochs/s": "it counts epochs",
    "epochs/h": "it counts epochs",
    "FLOP/s": "it counts operations",
    "TFLOPS": "it counts operations",
    "TFLOP/s/GPU": "it counts operations",
    "model_tflops_per_gpu": "it counts operations",
    "petaflops": "it counts operations",
    "B/s": "it counts bytes or bits",
    "GB/s": "it counts bytes or bits",
    "MiB/s": "it counts bytes or bits",
    "bytes per second": "it counts bytes or bits",
    "Gbit/s": "it counts bytes or bits",
    "%": "it is a share",
    "MFU": "it is a share",
    "scaling efficiency": "it is a share",
    "pct": "it is a share",
    "$/step": "it is no rate",
    "W": "it is power or energy",
    "kJ": "it is power or energy",
    "samples/J": "it is per 'j'",
    "tokens/s/user": "it is per 'user'",
    "tokens/s (GPU)": "it is per 's gpu'",
    "samples/s/GPU/node": "it is divided twice",
    "." * 100_000: "it is a text, not a unit",
}
OF_A_GPU = {
    "images/s/worker": "images/s",
    "img/sec/dev": "img/sec",
    "samples/s/device": "samples/s",
    "samples/s/rank": "samples/s",
    "samples/s per process": "samples/s",
    "samples/s/proc": "samples/s",
    "tokens/s/card": "tokens/s",
    "tokens/s/NPU": "tokens/s",
    "tokens/s/xpu": "tokens/s",
    "tokens/s/accelerator": "tokens/s",
    "tokens/s/chip": "tokens/s",
    "tokens/s/H100": "tokens/s",
    "tokens/s - per GPU (mean)": "tokens/s - (mean)",
    "tokens_per_second_per_gpu": "tokens_per_second",
    "tokens/GPU/s": "tokens/s",
    "tokens/(s·GPU)": "tokens/s",
    "tokens/GPU-second": "tokens/s",
    "tok s^-1 GPU^-1": "tok/s",
    "per-GPU tokens/s": "tokens/s",
    "throughput/device/samples_per_sec": "throughput/samples_per_sec",
    "TGS": "tokens/s",
}
OF_A_NODE = ["tokens/s/node", "tokens_per_second_per_host", "samples/sec per compute node"]


def table(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "points.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("unit", STEP_RATES)
def test_steps_are_no_samples(tmp_path: Path, unit: str) -> None:
    assert parse_unit(unit).kind is UnitKind.STEPS
    path = table(tmp_path, "gpus,throughput,unit", f"8,2,{unit}", f"16,1.9,{unit}")
    with pytest.raises(UsageError) as caught:
        read_table(path)
    assert f"line 2: unit {unit!r} counts steps, not samples" in caught.value.message
    assert "multiply steps per second by the samples of a step" in caught.value.message
    assert caught.value.hint is not None
    assert "samples (of a step, over all GPUs) or batch_per_gpu" in caught.value.hint


@pytest.mark.parametrize(("unit", "seconds"), STEP_TIMES.items())
def test_a_time_of_a_step_is_no_rate(tmp_path: Path, unit: str, seconds: float) -> None:
    assert (parse_unit(unit).kind, parse_unit(unit).seconds) == (UnitKind.STEP_TIME, seconds)
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


@pytest.mark.parametrize(("unit", "why"), NO_SAMPLES.items())
def test_what_counts_no_samples_is_refused(tmp_path: Path, unit: str, why: str) -> None:
    path = table(tmp_path, "gpus,throughput,unit", f'8,100,"{unit}"', f'16,190,"{unit}"')
    with pytest.raises(UsageError, match="expected a rate per second, such as samples/s") as caught:
        read_table(path)
    assert why in caught.value.message


@pytest.mark.parametrize(("unit", "whole"), OF_A_GPU.items())
def test_rates_of_a_gpu_are_multiplied_by_their_number(
    tmp_path: Path, unit: str, whole: str
) -> None:
    path = table(tmp_path, "gpus,throughput,unit", f"8,100,{unit}", f"16,95,{unit}")
    (series,), notes = read_table(path)
    assert [point.throughput for point in series.points] == [800, 1520]
    assert series.unit == whole
    assert f"{path}: {unit!r} is of one GPU: multiplied by gpus" in notes


@pytest.mark.parametrize("unit", OF_A_NODE)
def test_rates_of_a_node_are_multiplied_where_the_nodes_are_given(
    tmp_path: Path, unit: str
) -> None:
    assert parse_unit(unit).share is RateScope.NODE
    with pytest.raises(UsageError, match="it is of one node") as caught:
        read_table(table(tmp_path, "gpus,throughput,unit", f"8,100,{unit}", f"16,95,{unit}"))
    assert caught.value.hint == "or say in a column nodes how many there are"
    path = table(tmp_path, "gpus,nodes,throughput,unit", f"8,2,100,{unit}", f"16,4,95,{unit}")
    (series,), notes = read_table(path)
    assert [point.throughput for point in series.points] == [200, 380]
    assert f"{path}: {unit!r} is of one node: multiplied by nodes" in notes


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
    "column",
    [
        "it/s",
        "throughput (it/s)",
        "throughput_it_s",
        "steps_per_second",
        "train/steps_per_second",
        "grad_steps/s",
        "s/it",
    ],
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
