"""How the figures were measured, and what limits them."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.flags import Flag
from torchscale.report.document import Bullets, ReportPart, Section
from torchscale.report.text.measurement import endings, stop_rule, warmup_rule
from torchscale.report.values import only_if


def method_section(summary: RunSummary) -> Section:
    """Rules of the measurement, definitions of the figures, and caveats of this run: of a user's
    programs what was done with those alone."""
    rule = summary.experiment.config.benchmark
    if summary.job is not None:
        return _section([*_of_job(summary), *_contention(summary), _JOB_PAGES], "as it ran")
    if summary.cells and all(cell.cell.script is not None for cell in summary.cells):
        return _section(
            [*_of_scripts(summary), *_contention(summary), _PAGES], f"preset {rule.preset}"
        )
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
        _TELEMETRY,
        *_contention(summary),
        _PAGES,
    ]
    return _section(items, f"preset {rule.preset}")


def _section(items: Sequence[str], key: str) -> Section:
    shown = tuple(item for item in items if item)
    return Section("Method and caveats", "method", (Bullets(shown),), ReportPart.METHOD, key)


_TELEMETRY = "Telemetry is sampled by a separate process."
_PAGES = (
    "Definition of every figure: torchscale docs method. "
    "How causes are found: torchscale docs diagnosis. "
    "Peak rates, MFU and memory: torchscale docs ceilings."
)
_JOB_PAGES = (
    "What is seen, and how: torchscale docs watch. How causes are found: torchscale docs diagnosis."
)
_SEEN = (
    "A collector in each rank noted the ends of optimizer steps, waits and collectives by the "
    "host's clock; nothing was synchronized for it."
)


def _contention(summary: RunSummary) -> list[str]:
    if any(Flag.CONTENDED in cell.flags for cell in summary.cells):
        return [
            "Contended cells shared their CPU cores with other processes; measure them again on "
            "an idle machine."
        ]
    return []


def _of_job(summary: RunSummary) -> list[str]:
    """A watched job was started by its user, and seen from outside."""
    job = summary.job
    left_out = 0 if job is None else job.left_out_steps
    counted = "The mean step is over all steps"
    if left_out:
        counted += f" but the first {left_out}"
    return [
        "The program was started as its user gave it, and ran to its own end.",
        _SEEN,
        f"{counted}, checkpoints and other pauses included, which the wall time shows by "
        "themselves.",
        *only_if(
            any(cell.launches > 1 for cell in summary.cells),
            "Each attempt is a launch; the mean step and the findings are those of the last one.",
        ),
        "Load of the host was read every two seconds: where other processes took more than a tenth "
        "of the cores, confidence in findings is low.",
    ]


def _of_scripts(summary: RunSummary) -> list[str]:
    """Scripts of the user's own in a sweep: started by it, and measured from outside."""
    rates = [cell.figures.samples_per_second for cell in summary.measured if cell.figures]
    return [
        "Every launch was a command of its own.",
        _SEEN,
        *_rules(summary),
        *only_if(
            any(rate is not None for rate in rates),
            "Throughput is global samples ÷ wall time of the measured batches, so stalls are "
            "included.",
        ),
        _intervals_note(summary),
        *only_if(_has_telemetry(summary), _TELEMETRY),
    ]


def _has_telemetry(summary: RunSummary) -> bool:
    return any(cell.figures is not None and cell.figures.telemetry for cell in summary.cells)


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
