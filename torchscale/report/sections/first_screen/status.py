"""The questions that readers of a report come with, each with a word and the line that it rests
on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torchscale.analysis.kinds import AnySummary
from torchscale.analysis.summary.machine import MachineSummary
from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.scaling import EXCELLENT, GOOD, grade_of
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.document import QuestionAnswer
from torchscale.report.kinds import report_kind
from torchscale.report.sections.environment import changed_conditions
from torchscale.report.sections.first_screen.causes import CauseGroup
from torchscale.report.sections.first_screen.headline import (
    GRADE_TONE,
    at_largest_count,
    common_grade,
    efficiency_values,
)
from torchscale.report.sections.first_screen.limited import limited_by
from torchscale.report.sections.first_screen.recorded import (
    profiled_only,
    recorded_statuses,
)
from torchscale.report.sections.selection import MAX_LINES
from torchscale.report.text.cell_values import launches_label, memory_quantity
from torchscale.report.text.figures import PEAK_ALLOCATED
from torchscale.report.text.labels import batch_label, short_title
from torchscale.report.text.run_labels import device_noun
from torchscale.report.values import Tone, shortened
from torchscale.schema.state import State
from torchscale.util.interval_text import Interval, format_share_interval
from torchscale.util.optional import sole
from torchscale.util.units import format_bytes, format_percent
from torchscale.util.words import and_others, by_count, listed, plural

_FIT = {
    True: ("as rated", Tone.GOOD),
    False: ("below its rate", Tone.CAUTION),
    None: ("not judged", Tone.PLAIN),
}
_NO_VERDICT = "No verdict on the link: "
"""Begins a verdict that is none, which the answer says already."""
_ANCHORS = {"Peak rates?": "ceilings", "Memory?": "memory", "Checkpoints?": "checkpoints"}
_MAX_MACHINE_ROWS = 5
"""Rows beside the first chart; the sections have all cells."""


def statuses(summary: RunSummary, groups: Sequence[CauseGroup]) -> tuple[QuestionAnswer, ...]:
    """Measured? Fits? Scales? Limited by? Certain? Questions that this run cannot answer are left
    out; for a run of machine cells alone, what each of them measured."""
    if profiled_only(summary):
        return recorded_statuses(
            [cell.profile for cell in summary.cells if cell.profile is not None], "profiles"
        )
    trained = (_fits(summary), _scales(summary), limited_by(summary, groups), _certain(summary))
    rows = (_measured(summary), *(trained if summary.cells else _machine(summary)))
    return tuple(row for row in rows if row is not None)


def _machine(summary: RunSummary) -> list[QuestionAnswer]:
    """The link against its rated bandwidth, then the figures of the largest cell of each kind."""
    rows = []
    for verdict in (cell.verdict for cell in summary.collectives if cell.verdict is not None):
        answer, tone = _FIT[verdict.fits]
        text = shortened(verdict.text.removeprefix(_NO_VERDICT).removesuffix("."))
        rows.append(QuestionAnswer("Link?", answer, text, tone, "collectives"))
    kinds: tuple[tuple[str, Sequence[MachineSummary]], ...] = (
        ("Peak rates?", summary.hardware),
        ("Memory?", summary.memory),
        ("Checkpoints?", summary.checkpoints),
    )
    for kind, cells in kinds:
        measured = [cell for cell in cells if cell.state is State.OK]
        if measured:
            largest = max(measured, key=lambda cell: cell.cell.world_size)
            text = report_kind(largest.cell.kind).outcome(largest)
            rows.append(
                QuestionAnswer(kind, "measured", shortened(text), Tone.PLAIN, _ANCHORS[kind])
            )
    return rows[:_MAX_MACHINE_ROWS]


def _measured(summary: RunSummary) -> QuestionAnswer:
    cells = summary.cells or summary.everything
    states = Counter(cell.state for cell in cells)
    done, total = states[State.OK], len(cells)
    failed = sum(count for state, count in states.items() if state.has_failed)
    pending = any(state.is_pending or state is State.INTERRUPTED for state in states)
    parts = [*_partial(summary), *_failed(states), *_skipped(cells)]
    if done or not states[State.PARTIAL]:
        parts.insert(
            0,
            f"{done} of {plural(total, 'cell')}"
            + (_launches(cells) if done and not pending else ""),
        )
    if states[State.WAITING]:
        parts.append(f"{states[State.WAITING]:,} waiting")
    if states[State.INTERRUPTED]:
        parts.append(f"{states[State.INTERRUPTED]:,} interrupted")
    if summary.problems:
        parts.append(f"{plural(len(summary.problems), 'damaged file')} skipped")
    parts[0] += " so far" * pending
    answer, tone = ("in part", Tone.PLAIN)
    if done == total:
        answer, tone = ("all", Tone.GOOD)
    if failed:
        answer, tone = f"{failed:,} failed", Tone.BAD
    elif not done and not states[State.PARTIAL]:
        answer = "nothing"
        if pending:
            answer = "not yet"
    return QuestionAnswer("Measured?", answer, shortened("; ".join(parts)), tone, "cells")


def _launches(cells: Sequence[AnySummary]) -> str:
    """``, 3 launches each``, where all have as many."""
    counts = {cell.launches for cell in cells if cell.state is State.OK}
    each = ""
    if len(cells) > 1:
        each = " each"
    if len(counts) == 1:
        return f", {plural(counts.pop(), 'launch')}{each}"
    return ""


def _partial(summary: RunSummary) -> list[str]:
    """``2 of 3 launches of 3 cells``."""
    partial = Counter(launches_label(cell) for cell in summary.cells if cell.state is State.PARTIAL)
    return [f"{launches} of {plural(count, 'cell')}" for launches, count in sorted(partial.items())]


def _failed(states: Counter[State]) -> list[str]:
    return [f"{states[state]:,} {state.value}" for state in sorted(states) if state.has_failed]


def _skipped(cells: Sequence[AnySummary]) -> list[str]:
    reasons = Counter(cell.reason for cell in cells if cell.state is State.SKIPPED)
    if not reasons:
        return []
    (reason, count), *others = reasons.most_common()
    more = and_others(len(others), "other reason")
    total = count + sum(number for _, number in others)
    return [f"{total:,} skipped ({shortened(reason)}{more})"]


def _fits(summary: RunSummary) -> QuestionAnswer:
    failed = [cell for cell in summary.cells if cell.state is State.OOM]
    ran = [cell for cell in summary.measured if cell.figures is not None]
    if failed:
        smallest = min(failed, key=lambda cell: cell.cell.batch_size or 0)
        label = f"{short_title(smallest.cell)}, {batch_label(smallest.cell)}"
        text = f"{plural(len(failed), 'cell')} out of memory, the smallest: {label}"
        return QuestionAnswer("Fits?", "not all", shortened(text), Tone.BAD, "cells")
    if not ran:
        return QuestionAnswer("Fits?", "unknown", "no cell was measured")
    fullest = max(ran, key=_peak)
    peak = _peak(fullest)
    if not peak:
        return QuestionAnswer("Fits?", "yes", "no cell ran out of memory", Tone.GOOD)
    label = f"{short_title(fullest.cell)}, {batch_label(fullest.cell)}"
    most = f"{memory_quantity(summary).heading} up to {format_bytes(peak)}{_of_memory(summary)}"
    text = f"no cell ran out of memory; {most} ({label})"
    return QuestionAnswer("Fits?", "yes", shortened(text), Tone.GOOD, "cells")


def _peak(cell: TrainingSummary) -> float:
    return PEAK_ALLOCATED.value(cell) or 0


def _of_memory(summary: RunSummary) -> str:
    """``of 80 GiB``: a device's memory, where all have the same."""
    sizes = {device.memory_bytes for device in summary.experiment.environment.devices}
    size = None
    if len(sizes) == 1:
        size = sizes.pop()
    if size is None:
        return ""
    return f" of {format_bytes(size)}"


def _scales(summary: RunSummary) -> QuestionAnswer | None:
    if not summary.measured:
        return None
    cells = at_largest_count(summary.measured)
    if not cells:
        return QuestionAnswer(
            "Scales?", "not measured", "only one device count was measured; efficiency needs two"
        )
    count, word = cells[0].cell.world_size, common_grade(cells)
    values = efficiency_values(cells)
    kinds = listed(sorted({cell.cell.scaling for cell in cells}))
    text = (
        f"{kinds} scaling to {count} {device_noun(summary, count)}, {plural(len(cells), 'series')}"
    )
    if len(cells) > MAX_LINES:
        text += f"; lowest: {_series_name(min(cells, key=_efficiency))}"
    if word is not None:
        limits = (
            f"above {format_percent(EXCELLENT, 0)} is excellent, above {format_percent(GOOD, 0)} "
            "good"
        )
        text = shortened(f"{values}, {text}; {limits}")
        return QuestionAnswer("Scales?", word, text, GRADE_TONE[word], "scaling")
    why = f"; {_why_no_grade(cells)}"
    grade = sole({grade_of(_efficiency(cell)) for cell in cells})
    if grade is not None:
        why = f" would be {grade}, but {_why_no_grade(cells)}"
    return QuestionAnswer(
        "Scales?", "no grade", shortened(f"{values}{why}; {text}"), Tone.PLAIN, "scaling"
    )


def _why_no_grade(cells: Sequence[TrainingSummary]) -> str:
    single = sum(cell.efficiency is None or cell.efficiency.interval is None for cell in cells)
    if single == len(cells):
        return "one launch each gives no interval"
    if single:
        return f"{single} of {len(cells)} series have no interval: one launch each"
    return "the intervals reach over a limit between grades"


def _series_name(cell: TrainingSummary) -> str:
    return f"{short_title(cell.cell)} at {batch_label(cell.cell)}"


def _efficiency(cell: TrainingSummary) -> float:
    if cell.efficiency is None:
        return 0.0
    return cell.efficiency.value


def _certain(summary: RunSummary) -> QuestionAnswer | None:
    measured = summary.measured
    if not measured:
        return None
    doubts = [*_flagged(measured), *_vague(measured)]
    changed = changed_conditions(summary)
    if changed:
        doubts.append(f"changed between sessions: {changed}")
    once = sum(cell.launches == 1 for cell in measured)
    if once:
        which = "every cell"
        if once != len(measured):
            which = plural(once, "cell")
        planned = all((cell.planned_launches or 1) > 1 for cell in measured)
        remedy = ": set benchmark.repeats: 3, as variation"
        if planned:
            remedy = " so far: variation"
        doubts.append(f"{which} launched once{remedy} between launches is unknown")
    if doubts:
        anchor = "environment"
        if not changed:
            anchor = "method"
        return QuestionAnswer(
            "Certain?", "with caution", shortened("; ".join(doubts)), Tone.CAUTION, anchor
        )
    intervals = [cell.figures.interval_factors for cell in measured if cell.figures]
    widest = max((one for one in intervals if one is not None), key=_width, default=None)
    text = "no warnings"
    if widest is not None:
        text += f"; widest 95 % interval of throughput: {format_share_interval(1.0, widest)} of it"
    return QuestionAnswer("Certain?", "yes", text, Tone.GOOD, "method")


def _width(factors: Interval) -> float:
    return factors[1] - factors[0]


def _flagged(measured: Sequence[TrainingSummary]) -> list[str]:
    flags = Counter(flag.value for cell in measured for flag in cell.flags)
    flagged = sum(1 for cell in measured if cell.flags)
    if not flagged:
        return []
    named = ", ".join(f"{name} {count}" for name, count in sorted(flags.items()))
    return [f"{flagged} of {plural(len(measured), 'cell')} with warnings ({named})"]


def _vague(measured: Sequence[TrainingSummary]) -> list[str]:
    vague = sum(cell.efficiency is not None and cell.efficiency.is_vague for cell in measured)
    noun = by_count(vague, "efficiency is", "efficiencies are")
    if vague:
        return [
            f"{vague} {noun} uncertain by more than the value; use more launches or an idle machine"
        ]
    return []
