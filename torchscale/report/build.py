"""From a run's summary to the document."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import yaml

from torchscale.analysis.ceilings import CeilingSummary
from torchscale.analysis.flags import Flag
from torchscale.analysis.results import CellSummary, RunSummary
from torchscale.report.bottlenecks import diagnosis_section, lost_time, profile_section
from torchscale.report.ceiling_words import ceiling_outcome
from torchscale.report.charts import distribution_charts, efficiency_charts, overview_chart, throughput_charts
from torchscale.report.collectives import collectives_section
from torchscale.report.compute import compute_section, hardware_section
from torchscale.report.cost import cost_section
from torchscale.report.document import (
    DASH,
    MAX_BLOCK,
    Block,
    Bullets,
    ChartGrid,
    Column,
    Document,
    Paragraph,
    Section,
    Table,
    Tone,
    Value,
    optional_value,
    shortened,
)
from torchscale.report.environment import environment_section
from torchscale.report.frontier import frontier_section
from torchscale.report.over_time import Detail, over_time_section
from torchscale.report.resources import memory_section, telemetry_section
from torchscale.report.selection import selection_words
from torchscale.report.verdict import key_figures, verdict
from torchscale.report.words import (
    days_words,
    device_names,
    half_width_words,
    identity_columns,
    identity_values,
)
from torchscale.report.workloads import bubble_values, data_section
from torchscale.schema.config import PRESETS, Experiment
from torchscale.schema.printing import changed_content
from torchscale.schema.record import State
from torchscale.units import format_bytes, format_percent, format_rate, format_seconds

_STATE_TONE = {
    State.OK: Tone.GOOD,
    State.SKIPPED: Tone.DIM,
    State.INTERRUPTED: Tone.CAUTION,
    State.INCOMPLETE: Tone.CAUTION,
}
_GRADE_TONE = {"excellent": Tone.GOOD, "good": Tone.GOOD, "low": Tone.CAUTION}
_REASON = 240
"""Characters of a reason in a table; files have it whole."""


def build_document(
    summary: RunSummary, details: Mapping[str, Detail] | None = None, *, price: float | None = None
) -> Document:
    """The report of a run, complete or not.

    Args:
        summary: What came of its cells.
        details: By cell id, for those of :func:`~torchscale.report.selection.detailed_cells`.
        price: Dollars for a device and hour; without it there is no cost.
    """
    experiment = summary.experiment
    subtitle = f"{device_names(summary)} · {shortened(experiment.environment.hostname)} · {days_words(summary)}"
    sections = (
        _scaling(summary),
        lost_time(summary),
        diagnosis_section(summary),
        profile_section(summary),
        _step_times(summary),
        over_time_section(summary, details or {}),
        frontier_section(summary),
        cost_section(summary, price),
        compute_section(summary),
        memory_section(summary),
        telemetry_section(summary),
        data_section(summary),
        hardware_section(summary),
        collectives_section(summary),
        _cells(summary),
        environment_section(summary),
        _method(summary),
        _reproduce(summary),
    )
    return Document(
        title=f"{'Training scaling' if summary.cells else 'Machine'}: {experiment.config.experiment_name}",
        subtitle=subtitle,
        verdict=verdict(summary),
        key_figures=key_figures(summary),
        sections=tuple(section for section in sections if section.blocks),
    )


def _scaling(summary: RunSummary) -> Section:
    throughput, efficiency = throughput_charts(summary), efficiency_charts(summary)
    blocks: list[Block] = []
    if throughput:
        labels = sorted({cell.cell.scaling for cell in summary.measured})
        fixed = {"weak": "the batch per device is fixed", "strong": "the global batch is fixed"}
        kinds = " and ".join(f"{label} scaling ({fixed[label]})" for label in labels)
        blocks.append(
            Paragraph(
                f"Throughput of all devices together, {kinds}. Dashed: the smallest count's throughput times n.",
                of_charts=True,
            )
        )
        blocks.append(ChartGrid(tuple(throughput)))
        said = [selection_words(summary), _vague_words(summary)]
        if any(said):
            blocks.append(Paragraph(" ".join(words for words in said if words), of_charts=True))
    if efficiency:
        blocks.append(
            Paragraph(
                "Efficiency: throughput at n devices ÷ (n × throughput at the smallest count ÷ that count). "
                "Above 90 % is excellent, above 80 % good."
            )
        )
        overview = overview_chart(summary)
        if overview is not None:
            blocks.append(ChartGrid((overview,)))
        blocks.append(ChartGrid(tuple(efficiency)))
    elif throughput:
        blocks.append(Paragraph("No efficiency: it needs two measured counts of the same model, batch and setting."))
    return Section("Scaling", "scaling", tuple(blocks))


def _vague_words(summary: RunSummary) -> str:
    widths = [cell.figures.run_half_width for cell in summary.measured if cell.figures is not None]
    if not any(width is not None and width > 1 for width in widths):
        return ""
    return (
        "Where launches differ so much that an interval is wider than its value, its line has none: more launches "
        "(benchmark.repeats) or a quieter machine narrow it."
    )


def _step_times(summary: RunSummary) -> Section:
    charts = distribution_charts(summary)
    if not charts:
        return Section("Step times", "steps", ())
    piped = any(cell.figures is not None and cell.figures.bubble is not None for cell in summary.measured)
    compiled = any(cell.cell.compile for cell in summary.measured)
    rows = tuple(_step_row(cell, piped=piped, compiled=compiled) for cell in summary.measured)
    columns = (
        *identity_columns(summary),
        Column("p50", True),
        Column("p95", True),
        Column("p99", True),
        Column("slowest", True),
        Column("data wait", True),
        Column("forward", True),
        Column("backward", True),
        Column("exposed sync", True),
        Column("optimizer", True),
        *((Column("bubble", True), Column("scheduled", True)) if piped else ()),
        *((Column("compiling", True),) if compiled else ()),
    )
    note = (
        "From the end of one optimizer step to the end of the next; with several ranks, each step's slowest rank. "
        "Phases are means over ranks. Backward ends with the last gradient; exposed sync is the exchange that the step "
        "then waits for, with that of the buffers before it. Where sync has a dash, backward contains it."
    )
    if piped:
        note += (
            " Bubble: share of a pipeline's passes in which a rank's stages computed nothing; scheduled: what "
            "the schedule "
            "makes unavoidable."
        )
    if compiled:
        note += " Compiling: what torch.compile took before and beside the steps; it counts in no step time."
    return Section(
        "Step times",
        "steps",
        (Paragraph(note), ChartGrid(tuple(charts)), Table("Step times and phases", columns, rows)),
    )


def _step_row(cell: CellSummary, *, piped: bool, compiled: bool) -> tuple[Value, ...]:
    figures = cell.figures
    assert figures is not None  # noqa: S101 - only measured cells come here; this tells the type checker
    phases = figures.phases
    quantiles = (figures.step_p50, figures.step_p95, figures.step_p99, figures.step_maximum)
    parts = (phases.data_wait, phases.forward, phases.backward, phases.sync, phases.optimizer)
    return (
        *identity_values(cell.cell),
        *(optional_value(seconds, format_seconds) for seconds in (*quantiles, *parts)),
        *(bubble_values(cell) if piped else ()),
        *((optional_value(figures.compile_seconds, format_seconds),) if compiled else ()),
    )


def _cells(summary: RunSummary) -> Section:
    columns = (
        *identity_columns(summary),
        Column("state"),
        Column("samples/s", True),
        Column("per device", True),
        Column("tokens/s", True),
        Column("±95 %", True),
        Column("efficiency", True),
        Column("peak memory", True),
        Column("reason or warnings", prose=True),
    )
    table = Table("All cells", columns, tuple(_cell_row(cell) for cell in summary.cells), searchable=True)
    blocks: list[Block] = [table] if summary.cells else []
    if summary.machine:
        rows = tuple(_machine_row(one) for one in summary.machine)
        columns = (Column("measured"), Column("devices", True), Column("state"), Column("outcome", prose=True))
        blocks.append(Table("Cells of the machine", columns, rows))
    used = sorted({flag for cell in summary.cells for flag in cell.flags})
    if used:
        blocks.append(Bullets(tuple(f"{flag.value}: {flag.explanation}." for flag in used)))
    if summary.problems:
        blocks.append(Paragraph("Left out, because it could not be read:"))
        blocks.append(Bullets(tuple(shortened(problem) for problem in summary.problems)))
    return Section("Cells", "cells", tuple(blocks))


def _machine_row(summary: CeilingSummary) -> tuple[Value, ...]:
    cell = summary.cell
    return (
        Value(shortened(" ".join([cell.title, *cell.settings]))),
        Value(str(cell.world_size), cell.world_size),
        Value(summary.state.value, summary.state.value, _STATE_TONE.get(summary.state, Tone.BAD)),
        Value(shortened(ceiling_outcome(summary) if summary.state is State.OK else summary.reason)),
    )


def _cell_row(summary: CellSummary) -> tuple[Value, ...]:
    state = Value(summary.state.value, summary.state.value, _STATE_TONE.get(summary.state, Tone.BAD))
    warnings = ", ".join(flag.value for flag in summary.flags)
    remark = Value(shortened(summary.reason or warnings, _REASON), None, Tone.CAUTION if warnings else Tone.PLAIN)
    figures = summary.figures
    if figures is None:
        return (*identity_values(summary.cell), state, *[DASH] * 6, remark)
    half_width = figures.run_half_width if figures.run_half_width is not None else figures.half_width
    return (
        *identity_values(summary.cell),
        state,
        Value(format_rate(figures.samples_per_second), figures.samples_per_second),
        Value(format_rate(figures.samples_per_second_per_device), figures.samples_per_second_per_device),
        optional_value(figures.tokens_per_second, format_rate),
        optional_value(half_width, half_width_words),
        _efficiency_value(summary),
        optional_value(figures.peak_memory_bytes, format_bytes),
        remark,
    )


def _efficiency_value(summary: CellSummary) -> Value:
    efficiency = summary.efficiency
    if efficiency is None:
        return DASH
    if efficiency.baseline_world_size == summary.cell.world_size:
        return Value("baseline", efficiency.value, Tone.DIM)
    text = format_percent(efficiency.value) + ("*" if efficiency.flags else "")
    if efficiency.is_vague:
        text += " (± over 100 %)"
    elif efficiency.interval is not None:
        low, high = (format_percent(end) for end in efficiency.interval)
        text += f" ({low} to {high})"
    return Value(text, efficiency.value, _GRADE_TONE[efficiency.grade])


def _method(summary: RunSummary) -> Section:
    rule = summary.experiment.config.benchmark
    items = [
        _isolation_words(summary) + " What is shown was measured, and a dash means that it was not.",
        f"Preset {rule.preset}: warm-up of at least {rule.warmup_steps} steps and {rule.warmup_seconds:g} s, until two "
        f"batches of steps agree within {format_percent(rule.steady_tolerance, 0)}; then batches of steps until the "
        f"95 % interval of the mean step is within ±{format_percent(rule.target_half_width, 0)}, or a cap.",
        "Throughput is global samples ÷ wall time of the measured batches, so that stalls count.",
        "±95 % is the t-interval of the mean step over the batches of one launch, or over launches where there are "
        "several. It takes batches as independent; at a lag-1 autocorrelation of 0.8 it covers about 85 %.",
        "After the first step and after warm-up, the parameters of all ranks are compared bit by bit; a difference "
        "makes a cell invalid.",
        "Step times are from CUDA events on GPUs and from the host's clock on CPUs."
        + (" sync_cuda was on: the device was synchronised around every phase." if rule.sync_cuda else ""),
        "Peak memory is the allocator's peak on GPUs and the growth of resident memory on CPUs.",
        "Straggler wait and exposed communication are told apart without a shared clock: the rank that waits least for "
        "an exchange came last to it. Each rank's own compute is timed in windows without synchronisation, before and "
        "after the measured steps; they count in no throughput.",
        "Profiles are launches of their own; nothing that a profiler slows feeds another figure.",
        "Operations are counted on torch's meta device: a multiply-add is two, attention the products it consists of. "
        "MFU = the model's operations ÷ (step time × peak of the dtype).",
        "Telemetry is read by a process of its own, beside the ranks.",
    ]
    if any(Flag.CONTENDED in cell.flags for cell in summary.cells):
        items.append("Contended cells shared their cores with other work; measure them again on a quiet machine.")
    return Section("Method and caveats", "method", (Bullets(tuple(items)),))


def _isolation_words(summary: RunSummary) -> str:
    if any(one.facts.grouped for one in summary.in_plan_order):
        return (
            "Cells of one world size ran one after the other in the same processes (launch.isolation: group); on CPUs "
            "memory is then measured for the first of them alone."
        )
    return "Every cell ran as a torchrun of its own."


def _reproduce(summary: RunSummary) -> Section:
    experiment = summary.experiment
    commands = dict.fromkeys(shlex.join(one.sitting.environment.command) for one in summary.sittings)
    command = shortened("\n".join(commands), MAX_BLOCK) or "torchscale benchmark"
    config = shortened(_config_yaml(experiment.config), MAX_BLOCK)
    return Section(
        "How to reproduce",
        "reproduce",
        (
            Paragraph(command, code=True),
            Paragraph("with this config (what is not in it has its default):"),
            Paragraph(config, code=True),
            Paragraph(f"Plan {experiment.plan_hash}; torchscale {experiment.tool_version}."),
        ),
    )


def _config_yaml(config: Experiment) -> str:
    """The keys that are not at their defaults, nor at their preset's."""
    content = changed_content(config)
    preset = PRESETS[config.benchmark.preset]
    benchmark = content.get("benchmark")
    if isinstance(benchmark, dict):
        content["benchmark"] = {key: value for key, value in benchmark.items() if preset.get(key) != value}
    kept = {key: value for key, value in content.items() if value != {}}
    return yaml.safe_dump(kept, sort_keys=False, default_flow_style=None, allow_unicode=True, width=100)
