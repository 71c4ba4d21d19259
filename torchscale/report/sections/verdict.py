"""The summary at the top of a report, made from figures only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.catalog.models import model_title
from torchscale.report.document import KeyFigure, shortened
from torchscale.report.kinds import hardware
from torchscale.report.sections.environment import changed_conditions
from torchscale.report.text.labels import (
    batch_label,
    device_names,
    device_noun,
    listed,
    panel_title,
    plural,
    sentence,
)
from torchscale.report.text.profile import finding_text
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.state import State
from torchscale.util.units import format_percent, format_rate

_MAX_MODELS = 4
"""Sentences, one per model, that still read as a summary; the Scaling section covers all."""


def verdict(summary: RunSummary) -> tuple[str, ...]:
    """Coverage, scaling, bottlenecks, reliability and peak rates, a paragraph each."""
    trained = [_coverage(summary), *_scaling(summary), *_limits(summary), *_certainty(summary)]
    paragraphs = [*(trained if summary.cells else [_machine_coverage(summary)]), *_ceilings(summary)]
    return tuple(paragraph for paragraph in paragraphs if paragraph)


def key_figures(summary: RunSummary) -> tuple[KeyFigure, ...]:
    """A few numbers for the top of the page."""
    what, total, measured = "training cells measured", len(summary.cells), len(summary.measured)
    if not summary.cells:
        what, total = "cells measured", len(summary.everything)
        measured = sum(cell.state is State.OK for cell in summary.everything)
    figures = [KeyFigure(what, f"{measured} of {total}", _state_note(summary))]
    best = max(summary.measured, key=_rate, default=None)
    if best is not None:
        where = f"{panel_title(best.cell)}, {batch_label(best.cell)}, {_devices(summary, best)}"
        figures.append(KeyFigure("highest throughput", f"{format_rate(_rate(best))} samples/s", where))
    at_most = _at_largest_count(summary.measured)
    if at_most:
        values = [cell.efficiency.value for cell in at_most if cell.efficiency]
        count = at_most[0].cell.world_size
        spread = format_percent(min(values))
        if len(values) > 1:
            spread = f"{format_percent(min(values))} to {format_percent(max(values))}"
        figures.append(KeyFigure("scaling efficiency", spread, f"at {count} {device_noun(summary, count)}"))
    figures.append(KeyFigure("machine", device_names(summary), shortened(summary.experiment.environment.hostname)))
    return tuple(figures)


def _coverage(summary: RunSummary) -> str:
    total, measured = len(summary.cells), len(summary.measured)
    text = f"{measured} of {plural(total, 'planned training cell')} {'was' if measured == 1 else 'were'} measured on "
    text += f"{device_names(summary)}."
    states = Counter(cell.state for cell in summary.cells)
    if states[State.SKIPPED]:
        reasons = Counter(cell.reason for cell in summary.cells if cell.state is State.SKIPPED)
        listed_reasons = [
            f"{shortened(reason)} ({count})" if len(reasons) > 1 else shortened(reason)
            for reason, count in reasons.most_common(3)
        ]
        more = f" and {len(reasons) - 3} more reasons" if len(reasons) > 3 else ""
        text += f" {states[State.SKIPPED]:,} skipped: {'; '.join(listed_reasons)}{more}."
    failed = [state for state in states if state not in (State.OK, State.SKIPPED)]
    if failed:
        counts = [f"{states[state]} {state.value}" for state in sorted(failed)]
        text += f" Failed or incomplete: {listed(counts)}; see Cells for the reasons."
    if summary.problems:
        text += f" {plural(len(summary.problems), 'damaged file')} skipped (listed under Cells)."
    return text


def _machine_coverage(summary: RunSummary) -> str:
    """Coverage of a run without training cells."""
    everything = summary.everything
    fine = sum(cell.state is State.OK for cell in everything)
    return f"{fine} of {plural(len(everything), 'machine cell')} measured on {device_names(summary)}."


def _ceilings(summary: RunSummary) -> list[str]:
    """Peak rates of devices and links, and the highest MFU."""
    sentences = []
    measured = [cell for cell in summary.hardware if cell.figures is not None]
    if measured:
        largest = max(measured, key=lambda cell: cell.cell.world_size)
        sentences.append(f"A device reaches {hardware.outcome(largest)}.")
    used = [(cell, cell.compute.mfu) for cell in summary.measured if cell.compute and cell.compute.mfu is not None]
    if used:
        best, mfu = max(used, key=lambda item: item[1])
        label = shortened(f"{panel_title(best.cell)}, {batch_label(best.cell)}")
        sentences.append(f"The highest model FLOPs utilization is {format_percent(mfu)} ({label}).")
    judged = [cell.verdict for cell in summary.collectives if cell.verdict is not None]
    sentences += [shortened(verdict.text) for verdict in judged if verdict.share is not None]
    return [" ".join(sentences)] if sentences else []


def _scaling(summary: RunSummary) -> list[str]:
    """A sentence per model, at its largest measured count."""
    if not summary.measured:
        return ["Nothing has been measured yet, so there is no scaling result."]
    by_model: dict[str, list[TrainingSummary]] = {}
    for cell in summary.measured:
        by_model.setdefault(cell.cell.model, []).append(cell)
    sentences = []
    for model, cells in list(by_model.items())[:_MAX_MODELS]:
        largest = _at_largest_count(cells)
        if largest:
            sentences.append(_scaling_sentence(summary, model, largest))
    if not sentences:
        return ["Only one device count was measured; scaling efficiency needs two."]
    more = len(by_model) - _MAX_MODELS
    if more > 0:
        sentences.append(f"See Scaling for {plural(more, 'more model')}.")
    return [" ".join(sentences)]


def _scaling_sentence(summary: RunSummary, model: str, cells: Sequence[TrainingSummary]) -> str:
    efficiencies = [cell.efficiency for cell in cells if cell.efficiency is not None]
    count, base = cells[0].cell.world_size, efficiencies[0].baseline_world_size
    low, high = min(efficiencies, key=lambda item: item.value), max(efficiencies, key=lambda item: item.value)
    start = (
        f"{model_title(model)} from {base} to {count} {device_noun(summary, count)} ({cells[0].cell.scaling} scaling)"
    )
    values = f"{format_percent(low.value, 0)} ({low.grade})"
    if len(efficiencies) > 1:
        best = next(cell for cell in cells if cell.efficiency is high)
        worst = next(cell for cell in cells if cell.efficiency is low)
        several = len({cell.cell.setting for cell in cells}) > 1

        def which(cell: TrainingCell) -> str:
            return f"{cell.setting}, {batch_label(cell)}" if several else batch_label(cell)

        values = (
            f"between {format_percent(low.value, 0)} ({low.grade}, {which(worst.cell)}) and "
            f"{format_percent(high.value, 0)} ({high.grade}, {which(best.cell)})"
        )
    return f"{start}: efficiency {values}."


def _limits(summary: RunSummary) -> list[str]:
    """The costliest finding at the largest count."""
    diagnosed = [(cell, cell.diagnosis) for cell in summary.measured if cell.diagnosis is not None]
    if not diagnosed:
        return []
    largest = max(cell.cell.world_size for cell, _ in diagnosed)
    costliest = [
        (finding, cell)
        for cell, diagnosis in diagnosed
        if cell.cell.world_size == largest
        for finding in diagnosis.findings[:1]
    ]
    where = f"{largest} {device_noun(summary, largest)}"
    if not costliest:
        return [f"No bottleneck found at {where}."]
    finding, cell = max(costliest, key=lambda item: item[0].cost_percent)
    label = f"{panel_title(cell.cell)}, {batch_label(cell.cell)}"
    next_step = sentence(finding.advice)
    return [f"Largest cost at {where} ({shortened(label)}): {shortened(finding_text(finding))}. {shortened(next_step)}"]


def _certainty(summary: RunSummary) -> list[str]:
    if not summary.measured:
        return []
    sentences = []
    flags = Counter(flag.value for cell in summary.measured for flag in cell.flags)
    flagged = sum(1 for cell in summary.measured if cell.flags)
    if flagged:
        warnings = listed([f"{name} ({count})" for name, count in sorted(flags.items())])
        verb = "has" if flagged == 1 else "have"
        sentences.append(
            f"{flagged} of {plural(len(summary.measured), 'measured cell')} {verb} a warning: {warnings}; efficiencies "
            "based on such cells are marked *."
        )
    changed = changed_conditions(summary)
    if changed:
        sentences.append(f"Conditions changed between sessions: {changed} (see Environment).")
    if all(cell.launches == 1 for cell in summary.measured):
        sentences.append(
            "Every cell was launched once, so variation between launches is unknown; set benchmark.repeats: 3 "
            "before comparing."
        )
    vague = sum(cell.efficiency is not None and cell.efficiency.is_vague for cell in summary.measured)
    if vague:
        count = "One efficiency is" if vague == 1 else f"{vague} efficiencies are"
        sentences.append(
            f"{count} uncertain by more than the value itself, because launches differ too much; measure again on an "
            "idle machine, with more launches."
        )
    return [" ".join(sentences)]


def _at_largest_count(cells: Sequence[TrainingSummary]) -> list[TrainingSummary]:
    """Cells at the largest count that has an efficiency against a smaller one."""
    scaled = [cell for cell in cells if cell.efficiency and cell.efficiency.baseline_world_size < cell.cell.world_size]
    largest = max((cell.cell.world_size for cell in scaled), default=0)
    return [cell for cell in scaled if cell.cell.world_size == largest]


def _rate(cell: TrainingSummary) -> float:
    return cell.figures.samples_per_second if cell.figures else 0.0


def _devices(summary: RunSummary, cell: TrainingSummary) -> str:
    return f"{cell.cell.world_size} {device_noun(summary, cell.cell.world_size)}"


def _state_note(summary: RunSummary) -> str:
    cells = summary.cells or summary.everything
    states = Counter(cell.state.value for cell in cells if cell.state is not State.OK)
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
