"""How much of a device's ceiling a training cell reaches, and which ceiling it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torchscale.catalog.devices import find_device
from torchscale.config.choices import PeakType, Precision
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.exports.machine import HardwareFigures
from torchscale.schema.exports.training import Bound, Compute, Peak
from torchscale.schema.launch.rank import FlopCount

FAR_BELOW_ROOF = 3.0
"""Roof ÷ achieved from which neither ceiling holds the passes back. Chosen: tuned kernels reach
half of a roof or more; below a third, most of the time goes to small operators and kernel launches,
which a roofline does not model."""

_BYTES_OF_FP32 = 4
_ELEMENT_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 2, "mxfp8": 2, "nvfp4": 2}
"""Bytes per element of what a step's operators read and write; with the last three only the inputs
of products are smaller than bf16."""


@dataclass(frozen=True)
class MeanStepTimes:
    """Mean seconds of a step and of its parts, as measured; ``sync`` is ``None`` where backward
    contains it."""

    step: float
    data_wait: float
    passes: float
    optimizer: float
    sync: float | None


def find_peak(
    precision: Precision,
    device_name: str,
    declared: Mapping[PeakType, float],
    hardware: HardwareFigures | None,
) -> Peak | None:
    """The user's own, else the device's documented dense figure, else the measured rate of matrix
    products."""
    if precision == "own":
        return None
    if precision in declared:
        return Peak(declared[precision], "declared in the config")
    facts = find_device(device_name)
    if facts is not None and precision in facts.peak_flops:
        return Peak(
            facts.peak_flops[precision], f"dense {precision} of the {facts.title} ({facts.source})"
        )
    if hardware is None:
        return None
    measured = hardware.peak(precision)
    if measured is None:
        return None
    return Peak(measured, f"measured matrix products in {precision}")


def compute_figures(
    cell: TrainingCell,
    flops: FlopCount,
    times: MeanStepTimes,
    *,
    peak: Peak | None,
    hardware: HardwareFigures | None,
    hardware_count: int | None = None,
    work_share: float = 1.0,
) -> Compute:
    """``hardware_count`` is the number of devices that ``hardware`` was measured on at once;
    ``work_share`` what documents of different lengths need, over samples of full length."""
    per_sample = flops.forward + flops.backward
    per_step = per_sample * cell.global_batch_size * work_share
    rate = per_step / (times.step * cell.world_size)
    recomputed = {"none": 0.0, "full": flops.blocks_forward}.get(cell.activation_checkpointing)
    # Where backward contains the gradient sync, the passes of several devices are not compute only.
    only_compute = times.sync is not None or cell.world_size == 1
    intensity = _intensity(cell, flops)
    roof, side = _roof(cell, intensity, hardware)
    mfu = hfu = passes_rate = headroom = bound = None
    roof_source = ""
    if peak is not None:
        mfu = rate / peak.flops_per_second
    if peak is not None and recomputed is not None:
        hfu = rate * (1 + recomputed / per_sample) / peak.flops_per_second
    if only_compute and times.passes > 0:
        passes_rate = per_step / (times.passes * cell.world_size)
    if roof is not None:
        roof_source = f"measured on {hardware_count} device{'s' * (hardware_count != 1)} at once"
    if roof is not None and passes_rate is not None:
        headroom = roof / passes_rate
    if only_compute:
        bound = _bound(times, side, headroom)
    return Compute(
        flops_per_step=per_step,
        flops_per_second=rate,
        mfu=mfu,
        hfu=hfu,
        peak=peak,
        intensity=intensity,
        passes_flops_per_second=passes_rate,
        roof=roof,
        bound=bound,
        headroom=headroom,
        roof_source=roof_source,
    )


def _intensity(cell: TrainingCell, flops: FlopCount) -> float | None:
    """Operations per byte moved in one device's passes: weights count once a pass, samples each.
    ``None`` where the bytes are not known, samples have different lengths, or the model is
    split."""
    if flops.sample_bytes is None or flops.fixed_bytes is None or cell.degrees.model > 1:
        return None
    if cell.lengths is not None:
        return None
    samples, passes = cell.copy_batch_size, cell.gradient_accumulation
    moved = samples * flops.sample_bytes + passes * flops.fixed_bytes
    moved *= _ELEMENT_BYTES[cell.precision] / _BYTES_OF_FP32
    if moved > 0:
        return samples * (flops.forward + flops.backward) / moved
    return None


def _roof(
    cell: TrainingCell, intensity: float | None, hardware: HardwareFigures | None
) -> tuple[float | None, Bound | None]:
    """The lower of what products and what memory allow, and which it is."""
    if intensity is None or hardware is None:
        return None, None
    products, memory = hardware.peak(cell.precision), hardware.memory_bytes_per_second
    if products is None or memory is None:
        return None, None
    by_memory = intensity * memory
    if by_memory < products:
        return by_memory, "memory"
    return products, "compute"


def _bound(times: MeanStepTimes, side: Bound | None, headroom: float | None) -> Bound | None:
    """The largest part of the step; where that is the passes, the side of the ridge, unless they
    are far below it."""
    parts = {
        "input": times.data_wait,
        "communication": times.sync or 0.0,
        "device": times.passes + times.optimizer,
    }
    largest = max(parts, key=lambda name: parts[name])
    if largest == "input":
        return "input"
    if largest == "communication":
        return "communication"
    if headroom is not None and headroom > FAR_BELOW_ROOF:
        return "overhead"
    return side
