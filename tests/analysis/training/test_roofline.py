from __future__ import annotations

from typing import Any

import pytest

from tests.factories import cells
from torchscale.analysis.training.roofline import MeanStepTimes, compute_figures, find_peak
from torchscale.schema.exports.machine import CopyRate, HardwareFigures, MatmulRates
from torchscale.schema.exports.training import Peak
from torchscale.schema.launch.rank import FlopCount

FLOPS = FlopCount(
    forward=1e9, backward=2e9, sample_bytes=1e8, fixed_bytes=2e8, blocks_forward=0.75e9
)


def ceilings(rate: float = 1e12, memory: float = 1e11) -> HardwareFigures:
    products = MatmulRates("fp32", rate, (1, 1, 1), None, rate, 0.0, ())
    return HardwareFigures((products,), (CopyRate("device", memory, 0.0),), None, ())


def times(**changes: Any) -> MeanStepTimes:
    defaults = {"step": 0.1, "data_wait": 0.0, "passes": 0.08, "optimizer": 0.02, "sync": 0.0}
    return MeanStepTimes(**{**defaults, **changes})


def test_utilization_by_hand() -> None:
    cell = cells(batch_sizes=[8], gpu_counts=[2])[0]
    found = compute_figures(cell, FLOPS, times(), peak=Peak(1e12, "declared"), hardware=None)
    assert found.flops_per_step == 3e9 * 16  # both devices' samples
    assert found.flops_per_second == pytest.approx(2.4e11)  # of one device: 24 GFLOP in 0.1 s
    assert found.mfu == pytest.approx(0.24)
    assert found.hfu == found.mfu
    assert found.roof is None
    assert found.bound is None


def test_recomputed_passes_count_for_the_hardware_alone() -> None:
    again = cells(batch_sizes=[8], gpu_counts=[1], training={"activation_checkpointing": "full"})[0]
    found = compute_figures(again, FLOPS, times(), peak=Peak(1e12, "declared"), hardware=None)
    assert found.mfu is not None
    assert found.hfu == pytest.approx(found.mfu * 3.75 / 3)  # the blocks' forward passes once more
    some = cells(
        batch_sizes=[8], gpu_counts=[1], training={"activation_checkpointing": "selective"}
    )[0]
    assert (
        compute_figures(some, FLOPS, times(), peak=Peak(1e12, "declared"), hardware=None).hfu
        is None
    )


def test_intensity_counts_samples_and_weights_and_the_width_of_elements() -> None:
    one = cells(batch_sizes=[8], gpu_counts=[1])[0]
    found = compute_figures(one, FLOPS, times(), peak=None, hardware=ceilings(), hardware_count=1)
    assert found.intensity == pytest.approx(8 * 3e9 / (8 * 1e8 + 2e8))
    half = cells(batch_sizes=[8], gpu_counts=[1], training={"precision": "bf16"})[0]
    assert compute_figures(
        half, FLOPS, times(), peak=None, hardware=None
    ).intensity == pytest.approx(48)
    split = cells(
        models="tiny-decoder", batch_sizes=[8], gpu_counts=[2], parallel={"strategy": "tensor"}
    )[0]
    assert compute_figures(split, FLOPS, times(), peak=None, hardware=None).intensity is None


def test_the_lower_roof_bounds_the_passes() -> None:
    cell = cells(batch_sizes=[8], gpu_counts=[1])[0]
    by_products = compute_figures(
        cell, FLOPS, times(), peak=None, hardware=ceilings(6e11, 1e12), hardware_count=1
    )
    assert (by_products.bound, by_products.roof) == ("compute", 6e11)
    assert by_products.headroom == pytest.approx(6e11 / (24e9 / 0.08))
    by_memory = compute_figures(
        cell, FLOPS, times(), peak=None, hardware=ceilings(1e12, 1e10), hardware_count=1
    )
    assert by_memory.bound == "memory"
    assert by_memory.roof == pytest.approx(24e10)


def test_far_below_both_ceilings_neither_bounds_the_passes() -> None:
    cell = cells(batch_sizes=[8], gpu_counts=[1])[0]
    found = compute_figures(
        cell, FLOPS, times(), peak=None, hardware=ceilings(1e12, 1e12), hardware_count=1
    )
    assert found.headroom == pytest.approx(1e12 / (24e9 / 0.08))
    assert found.bound == "overhead"


def test_what_most_of_the_step_goes_to_decides() -> None:
    cell = cells(batch_sizes=[8], gpu_counts=[2])[0]

    def bound(**changes: Any) -> str | None:
        return compute_figures(
            cell, FLOPS, times(**changes), peak=None, hardware=ceilings(5e11), hardware_count=2
        ).bound

    assert bound(sync=0.2) == "communication"
    assert bound(data_wait=0.3) == "input"
    assert bound() == "compute"
    # Where backward contains the exchange nothing tells whose time it is.
    assert bound(sync=None) is None


def test_where_a_peak_comes_from() -> None:
    declared = find_peak("bf16", "NVIDIA H200", {"bf16": 5e14}, None)
    assert declared == Peak(5e14, "declared in the config")
    catalogued = find_peak("bf16", "NVIDIA H200", {}, None)
    assert catalogued is not None
    assert catalogued.flops_per_second == 989.4e12
    assert "H200" in catalogued.source
    measured = find_peak("fp32", "Some Processor", {}, ceilings(2e11))
    assert measured is not None
    assert measured.flops_per_second == 2e11
    assert find_peak("fp32", "Some Processor", {}, None) is None
    assert find_peak("bf16", "Some Processor", {}, ceilings()) is None
