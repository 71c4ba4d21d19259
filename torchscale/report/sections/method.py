"""How the figures were measured, and what limits them."""

from __future__ import annotations

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.flags import Flag
from torchscale.report.document import (
    Bullets,
    Group,
    Section,
)
from torchscale.util.units import format_percent


def method_section(summary: RunSummary) -> Section:
    """Rules of the measurement, definitions of the figures, and caveats of this run."""
    rule = summary.experiment.config.benchmark
    items = [
        _isolation_note(summary),
        f"Preset {rule.preset}: warm-up of at least {rule.warmup_steps} steps and {rule.warmup_seconds:g} s, until "
        f"the mean step times of two batches of steps agree within {format_percent(rule.steady_tolerance, 0)}; then "
        "batches of steps until the 95 % interval of the mean step is within "
        f"±{format_percent(rule.target_half_width, 0)}, or a limit on steps or time is reached.",
        "Throughput is global samples ÷ wall time of the measured batches, so stalls are included.",
        "±95 % is the t-interval of the mean step over the batches of one launch, or over launches where there are "
        "several. It treats batches as independent; at a lag-1 autocorrelation of 0.8 its true coverage is about "
        "85 %.",
        "After the first step and after warm-up, the parameters of all ranks are compared bit by bit; if they "
        "differ, the cell is invalid.",
        "Step times come from CUDA events on GPUs and from the host clock on CPUs."
        + (" sync_cuda was on: the device was synchronized around every phase." if rule.sync_cuda else ""),
        "Peak memory is the allocator's peak on GPUs and the growth of resident memory on CPUs.",
        "Straggler wait and exposed communication are separated without a shared clock: the rank that waits least "
        "in a collective arrived last. Unsynchronized compute of each rank is timed in windows without gradient "
        "sync, before and after the measured steps; these windows are excluded from throughput.",
        "Profiles are recorded in separate launches, so profiler overhead affects no other figure.",
        "FLOPs are counted on torch's meta device: a multiply-add counts as two, attention as its matrix products. "
        "MFU = model FLOPs ÷ (step time × peak FLOP/s of the dtype).",
        "Telemetry is sampled by a separate process.",
    ]
    if any(Flag.CONTENDED in cell.flags for cell in summary.cells):
        items.append(
            "Contended cells shared their CPU cores with other processes; measure them again on an idle machine."
        )
    items.append(
        "Definition of every figure: torchscale docs method. How causes are found: torchscale docs diagnosis. Peak "
        "rates, MFU and memory: torchscale docs ceilings."
    )
    return Section("Method and caveats", "method", (Bullets(tuple(items)),), Group.METHOD, f"preset {rule.preset}")


def _isolation_note(summary: RunSummary) -> str:
    facts = [cell.facts for cell in summary.in_plan_order]
    if any(cell.grouped for cell in facts):
        return "Cells ran one after another in the same processes of one torchrun (launch.isolation: group)."
    if any(cell.forked for cell in facts):
        return (
            "Every launch ran under torchrun's agent, in forks of a process that had imported PyTorch "
            "(launch.isolation: group)."
        )
    return "Every launch was a torchrun command."
