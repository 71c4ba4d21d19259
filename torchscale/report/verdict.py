"""The paragraph that a reader takes away, from figures alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torchscale.analysis.results import CellSummary, RunSummary
from torchscale.catalog.models import model_title
from torchscale.report.ceiling_words import ceiling_outcome
from torchscale.report.document import KeyFigure, shortened
from torchscale.report.environment import changed_conditions
from torchscale.report.profile_words import finding_text
from torchscale.report.words import batch_words, device_names, device_noun, listed, panel_title, plural
from torchscale.schema.cell import Cell
from torchscale.schema.record import State
from torchscale.units import format_percent, format_rate

_MAX_MODELS = 4


def verdict(summary: RunSummary) -> tuple[str, ...]:
    """What was measured and how it scales; what failed or is missing; how sure."""
    trained = [_coverage(summary), *_scaling(summary), *_limits(summary), *_certainty(summary)]
    paragraphs = [*(trained if summary.cells else [_machine_coverage(summary)]), *_ceilings(summary)]
    return tuple(paragraph for paragraph in paragraphs if paragraph)


def key_figures(summary: RunSummary) -> tuple[KeyFigure, ...]:
    """A few numbers for the top of the page."""
    what, total, measured = "training cells measured", len(summary.cells), len(summary.measured)
    if not summary.cells:
        what, total = "cells measured", len(summary.everything)
        measured = sum(one.state is State.OK for one in summary.everything)
    figures = [KeyFigure(what, f"{measured} of {total}", _state_note(summary))]
    best = max(summary.measured, key=_rate, default=None)
    if best is not None:
        where = f"{panel_title(best.cell)}, {batch_words(best.cell)}, {_devices(summary, best)}"
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
        told = [
            f"{shortened(reason)} ({count})" if len(reasons) > 1 else shortened(reason)
            for reason, count in reasons.most_common(3)
        ]
        more = f" and {len(reasons) - 3} more reasons" if len(reasons) > 3 else ""
        text += f" {states[State.SKIPPED]:,} skipped: {'; '.join(told)}{more}."
    failed = [state for state in states if state not in (State.OK, State.SKIPPED)]
    if failed:
        told = [f"{states[state]} {state.value}" for state in sorted(failed)]
        text += f" Not measured as planned: {listed(told)}; the reasons stand with the cells."
    if summary.problems:
        text += f" {plural(len(summary.problems), 'damaged file')} left out (named under Cells)."
    return text


def _machine_coverage(summary: RunSummary) -> str:
    """Where nothing was to be trained."""
    everything = summary.everything
    fine = sum(one.state is State.OK for one in everything)
    return f"{fine} of {plural(len(everything), 'cell')} of the machine measured on {device_names(summary)}."


def _ceilings(summary: RunSummary) -> list[str]:
    """What devices and links reach, and how near training comes to it."""
    found = []
    measured = [one for one in summary.hardware if one.figures is not None]
    if measured:
        largest = max(measured, key=lambda one: one.cell.world_size)
        found.append(f"A device reaches {ceiling_outcome(largest)}.")
    used = [(cell, cell.compute.mfu) for cell in summary.measured if cell.compute and cell.compute.mfu is not None]
    if used:
        best, mfu = max(used, key=lambda item: item[1])
        words = shortened(f"{panel_title(best.cell)}, {batch_words(best.cell)}")
        found.append(f"The highest model FLOPs utilization is {format_percent(mfu)} ({words}).")
    judged = [one.verdict for one in summary.collectives if one.verdict is not None]
    found += [shortened(verdict.text) for verdict in judged if verdict.share is not None]
    return [" ".join(found)] if found else []


def _scaling(summary: RunSummary) -> list[str]:
    """A sentence per model, at its largest measured count."""
    if not summary.measured:
        return ["Nothing has been measured yet, so nothing can be said about scaling."]
    by_model: dict[str, list[CellSummary]] = {}
    for cell in summary.measured:
        by_model.setdefault(cell.cell.model, []).append(cell)
    sentences = []
    for model, cells in list(by_model.items())[:_MAX_MODELS]:
        largest = _at_largest_count(cells)
        if largest:
            sentences.append(_scaling_sentence(summary, model, largest))
    if not sentences:
        return ["Only one device count was measured, so there is no scaling efficiency: it needs two."]
    more = len(by_model) - _MAX_MODELS
    if more > 0:
        sentences.append(f"{plural(more, 'further model')} under Scaling.")
    return [" ".join(sentences)]


def _scaling_sentence(summary: RunSummary, model: str, cells: Sequence[CellSummary]) -> str:
    found = [cell.efficiency for cell in cells if cell.efficiency is not None]
    count, base = cells[0].cell.world_size, found[0].baseline_world_size
    low, high = min(found, key=lambda item: item.value), max(found, key=lambda item: item.value)
    start = (
        f"{model_title(model)} from {base} to {count} {device_noun(summary, count)} ({cells[0].cell.scaling} scaling)"
    )
    values = f"{format_percent(low.value, 0)} ({low.grade})"
    if len(found) > 1:
        best = next(cell for cell in cells if cell.efficiency is high)
        worst = next(cell for cell in cells if cell.efficiency is low)
        several = len({cell.cell.setting for cell in cells}) > 1

        def which(cell: Cell) -> str:
            return f"{cell.setting}, {batch_words(cell)}" if several else batch_words(cell)

        values = (
            f"between {format_percent(low.value, 0)} ({low.grade}, {which(worst.cell)}) and "
            f"{format_percent(high.value, 0)} ({high.grade}, {which(best.cell)})"
        )
    return f"{start}: efficiency {values}."


def _limits(summary: RunSummary) -> list[str]:
    """What costs most at the largest counts."""
    judged = [(cell, cell.diagnosis) for cell in summary.measured if cell.diagnosis is not None]
    if not judged:
        return []
    largest = max(cell.cell.world_size for cell, _ in judged)
    found = [
        (finding, cell)
        for cell, diagnosis in judged
        if cell.cell.world_size == largest
        for finding in diagnosis.findings[:1]
    ]
    where = f"{largest} {device_noun(summary, largest)}"
    if not found:
        return [f"At {where} the signals show nothing that holds training back."]
    finding, cell = max(found, key=lambda item: item[0].cost_percent)
    told = f"{panel_title(cell.cell)}, {batch_words(cell.cell)}"
    next_step = f"{finding.advice[:1].upper()}{finding.advice[1:]}."
    return [
        f"What costs most at {where} ({shortened(told)}): {shortened(finding_text(finding))}. {shortened(next_step)}"
    ]


def _certainty(summary: RunSummary) -> list[str]:
    if not summary.measured:
        return []
    sentences = []
    flags = Counter(flag.value for cell in summary.measured for flag in cell.flags)
    flagged = sum(1 for cell in summary.measured if cell.flags)
    if flagged:
        told = listed([f"{name} ({count})" for name, count in sorted(flags.items())])
        verb = "carries" if flagged == 1 else "carry"
        sentences.append(
            f"{flagged} of {plural(len(summary.measured), 'measured cell')} {verb} a warning: {told}; "
            "an efficiency that rests on one is marked with *."
        )
    changed = changed_conditions(summary)
    if changed:
        sentences.append(
            f"Not everything was measured under the same conditions: {changed} changed between sittings "
            "(see Environment)."
        )
    if all(cell.launches == 1 for cell in summary.measured):
        sentences.append(
            "Every cell was launched once, so nothing is known about differences from launch to launch; "
            "repeat with benchmark.repeats: 3 before comparing."
        )
    vague = sum(cell.efficiency is not None and cell.efficiency.is_vague for cell in summary.measured)
    if vague:
        count = "One efficiency is" if vague == 1 else f"{vague} efficiencies are"
        sentences.append(
            f"{count} uncertain by more than the value itself: launches differ too much to say how well this scales; "
            "measure again on a quieter machine, with more launches."
        )
    return [" ".join(sentences)]


def _at_largest_count(cells: Sequence[CellSummary]) -> list[CellSummary]:
    """Cells at the largest count that has an efficiency against a smaller one."""
    scaled = [cell for cell in cells if cell.efficiency and cell.efficiency.baseline_world_size < cell.cell.world_size]
    largest = max((cell.cell.world_size for cell in scaled), default=0)
    return [cell for cell in scaled if cell.cell.world_size == largest]


def _rate(cell: CellSummary) -> float:
    return cell.figures.samples_per_second if cell.figures else 0.0


def _devices(summary: RunSummary, cell: CellSummary) -> str:
    return f"{cell.cell.world_size} {device_noun(summary, cell.cell.world_size)}"


def _state_note(summary: RunSummary) -> str:
    cells = summary.cells or summary.everything
    states = Counter(cell.state.value for cell in cells if cell.state is not State.OK)
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
