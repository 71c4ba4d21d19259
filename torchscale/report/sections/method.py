"""How the figures were measured, and what limits them."""

from __future__ import annotations

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.flags import Flag
from torchscale.report.document import Bullets, ReportPart, Section
from torchscale.report.text.measurement import endings, stop_rule, warmup_rule
from torchscale.report.values import only_if


def method_section(summary: RunSummary) -> Section:
    """Rules of the measurement, definitions of the figures, and caveats of this run."""
    rule = summary.experiment.config.benchmark
    items = [
        _isolation_note(summary),
        *_rules(summary),
        "Throughput is global samples ÷ wall time of the measured batches, so stalls are included.",
        _intervals_note(summary),
        "After the first step and after warm-up, the parameters of all ranks are compared bit by "
        "bit; if they differ, the cell is invalid.",
        "Step times come from CUDA events on GPUs and from the host clock on CPUs."
        + (
            " sync_cuda was on: the device was synchronized around every phase."
            if rule.sync_cuda
            else ""
        ),
        "Peak memory is the allocator's peak on GPUs and the growth of resident memory on CPUs.",
        "Straggler wait and exposed communication are separated without a shared clock: the rank "
        "that waits least in a collective arrived last. Unsynchronized compute of each rank is "
        "timed in windows without gradient sync, before and after the measured steps; these "
        "windows are excluded from throughput.",
        "Profiles are recorded in separate launches, so profiler overhead affects no other figure.",
        "FLOPs are counted on torch's meta device: a multiply-add counts as two, attention as its "
        "matrix products. "
        "MFU = model FLOPs ÷ (step time × peak FLOP/s of the dtype).",
        "Telemetry is sampled by a separate process.",
    ]
    if any(Flag.CONTENDED in cell.flags for cell in summary.cells):
        items.append(
            "Contended cells shared their CPU cores with other processes; measure them again on "
            "an idle machine."
        )
    items.append(
        "Definition of every figure: torchscale docs method. "
        "How causes are found: torchscale docs diagnosis. "
        "Peak rates, MFU and memory: torchscale docs ceilings."
    )
    shown = tuple(item for item in items if item)
    return Section(
        "Method and caveats",
        "method",
        (Bullets(shown),),
        ReportPart.METHOD,
        f"preset {rule.preset}",
    )


def _rules(summary: RunSummary) -> list[str]:
    """When warm-up and measurement ended: by the rules of the recorded cells, all of which a run
    shares."""
    if not summary.cells:
        return []
    rule, budget = (
        summary.cells[0].cell.measurement,
        summary.experiment.config.benchmark.cell_seconds,
    )
    items = [f"{warmup_rule(rule)}.", f"{stop_rule(rule)}."]
    if budget is not None:
        items.append(
            f"A launch has {budget:g} s with start-up (benchmark.cell_seconds): warm-up and "
            "measurement are shortened to fit."
        )
    ended = endings(summary.measured)
    return [*items, *only_if(ended, f"{ended}.")]


def _intervals_note(summary: RunSummary) -> str:
    """What the intervals in brackets are, as far as this run has any."""
    launches = {cell.launches > 1 for cell in summary.measured}
    items = []
    if True in launches:
        items.append(
            "Brackets hold the ends of 95 % intervals over launches: of throughput the t-interval "
            "of the mean logarithm, of efficiency Welch's on the logarithm of the ratio."
        )
    if False in launches:
        items.append(
            "Of a single launch, brackets hold the ends of the 95 % t-interval of the mean step "
            "over its batches of steps: what another launch would give is not in it. It treats "
            "batches as independent; at a lag-1 autocorrelation of 0.8 it covers about 85 %."
        )
    return " ".join(items)


def _isolation_note(summary: RunSummary) -> str:
    facts = [cell.facts for cell in summary.in_plan_order]
    if any(cell.grouped for cell in facts):
        return (
            "Cells ran one after another in the same processes of one torchrun (launch.isolation: "
            "group)."
        )
    if any(cell.forked for cell in facts):
        return (
            "Every launch ran under torchrun's agent, in forks of a process that had imported "
            "PyTorch (launch.isolation: group)."
        )
    return "Every launch was a torchrun command."
