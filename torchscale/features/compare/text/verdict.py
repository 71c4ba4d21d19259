"""The result of a comparison in sentences, shared by all formats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.change import (
    MIN_LAUNCHES,
    ChangeVerdict,
    MetricChange,
    Reason,
)
from torchscale.features.compare.analysis.judge import LEVEL
from torchscale.features.compare.analysis.pair import CellComparison, CellOutcome, Overall, Pair
from torchscale.features.compare.text.comparison import (
    comparison_label,
    format_disturbance,
    format_overall,
    format_overall_change,
    format_possible,
    format_ratio_change,
)
from torchscale.features.compare.text.result import (
    METRIC_LABELS,
    format_state,
    metric_label,
    result_label,
)
from torchscale.report.values import shortened
from torchscale.schema.cells.kinds import as_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.run.result_set import ResultSet
from torchscale.util.units import format_percent
from torchscale.util.words import by_count, capped, listed, plural

_SPEEDS = (Metric.THROUGHPUT, Metric.STEPS)
"""Metrics of which a better one is faster."""
_MAX_NAMED = 3
"""Cells named in a sentence; the rest is counted."""


def pair_verdict(pair: Pair, metrics: Sequence[Metric]) -> list[str]:
    """The result of a pair in sentences: the overall change, which cells changed, which failed or
    were not measured, which are unclear."""
    name, reference = shortened(pair.other.name), shortened(pair.reference.name)
    overall = pair.overall_by(metrics)
    sentences = [format_headline(pair, metrics)]
    if pair.is_same_run:
        return sentences
    if overall[1:]:
        sentences.append(f"{'; '.join(format_overall(one) for one in overall[1:])}.")
    decided = pair.decided_by(metrics)
    for verdict in (ChangeVerdict.WORSE, ChangeVerdict.BETTER):
        labels = [
            f"{comparison_label(cell)} ({format_ratio_change(change.ratio)})"
            for cell, change in decided
            if change.verdict is verdict
        ]
        if labels and len(decided) > 1:
            sentences.append(f"{verdict.value.capitalize()}: {_some(labels)}.")
    lost = [
        f"{result_label(cell.cell)} ({cell.after.state.value})"
        for cell in pair.cells
        if cell.outcome is CellOutcome.LOST and cell.after is not None
    ]
    if lost:
        sentences.append(f"Measured in {reference} and failed in {name}: {_some(lost)}.")
    missing = [
        f"{result_label(cell.cell)} ({_why_missing(cell)})" for cell in pair.missing(metrics)
    ]
    if missing:
        sentences.append(f"{name} measured less than {reference}: {_some(missing)}.")
    return [*sentences, *_bounded_sentences(pair, decided), *_unclear_sentences(pair, decided)]


def format_headline(pair: Pair, metrics: Sequence[Metric]) -> str:
    """The result in one sentence, with the interval in it."""
    of_all = pair.overall_by(metrics)
    if not of_all:
        return f"{format_nothing_compared(pair, metrics)}."
    overall = of_all[0]
    name, reference = shortened(pair.other.name), shortened(pair.reference.name)
    if pair.is_same_run:
        return f"{name} and {reference} are the same run."
    change, speed = format_overall_change(overall), overall.metric in _SPEEDS
    possible = format_possible(overall)
    if overall.conditions and possible:
        change += f"; {possible} undisturbed"
    if overall.reason is Reason.CONDITIONS:
        why = _what_was_disturbed(pair, overall.conditions)
        return f"Unclear, because {why}: {name} against {reference}: {change}."
    if overall.reason is Reason.FEW_LAUNCHES:
        few = f"fewer than {MIN_LAUNCHES} launches on a side"
        return f"Unclear whether {name} differs from {reference}, with {few}: {change}."
    how_much = "; how much is unclear" if overall.size_is_unclear else ""
    match overall.verdict:
        case ChangeVerdict.BETTER:
            than = "faster" if speed else "better"
        case ChangeVerdict.WORSE:
            than = "slower" if speed else "worse"
        case ChangeVerdict.SAME if overall.limit is not None:
            return (
                f"No alarm: {name} is within the calibrated {_allowed(overall)} of "
                f"{reference}: {change}."
            )
        case ChangeVerdict.SAME:
            return (
                f"{name} and {reference} are equal within {format_percent(pair.threshold, 1)}: "
                f"{change}."
            )
        case ChangeVerdict.UNCLEAR:
            return f"Unclear whether {name} differs from {reference}: {change}."
    return f"{name} is {than} than {reference}{how_much}: {change}."


def _allowed(overall: Overall) -> str:
    """The threshold as everywhere; of a time also how much longer that is, which is more."""
    limit = overall.limit or 0.0
    text = format_percent(limit)
    if overall.metric.higher_is_better:
        return text
    return f"{text} (up to +{format_percent(1 / (1 - limit) - 1)})"


def _what_was_disturbed(pair: Pair, conditions: Sequence[str]) -> str:
    """``both sides were contended``, ``night-6 was slowed``."""
    disturbed = {
        one.side for cell in pair.cells for one in cell.disturbances if one.condition in conditions
    }
    flags = " or ".join(conditions)
    if len(disturbed) != 1:
        return f"both sides were {flags}"
    side = (pair.reference, pair.other)[disturbed.pop()]
    return f"{shortened(side.name)} was {flags}"


def format_nothing_compared(pair: Pair, metrics: Sequence[Metric]) -> str:
    """Why no change decides: ``nothing to compare: a holds 4 collectives cells, b 2 training
    cells``."""
    sides = (pair.reference, pair.other)
    if any(cell.outcome is CellOutcome.COMPARED for cell in pair.cells):
        wanted = " or ".join(METRIC_LABELS[metric] for metric in metrics) or "speed"
        return (
            f"{shortened(pair.other.name)} against {shortened(pair.reference.name)}: no cell has "
            f"{wanted} on both sides"
        )
    held = ", ".join(f"{shortened(side.name)} holds {format_held(side)}" for side in sides)
    matched = any(cell.outcome is not CellOutcome.UNMATCHED for cell in pair.cells)
    if matched:
        return f"No cell was measured on both sides: {held}"
    return f"No cell of one side is in the other: {held}"


def format_held(side: ResultSet) -> str:
    """``4 training cells and 1 hardware cell, 3 measured``."""
    kinds = Counter(cell.cell.kind for cell in side.cells)
    listed_kinds = (
        listed([plural(count, f"{kind} cell") for kind, count in kinds.items()]) or "no cell"
    )
    return f"{listed_kinds}, {sum(bool(cell.launches) for cell in side.cells)} measured"


def _why_missing(cell: CellComparison) -> str:
    if cell.after is None:
        return "not there"
    if cell.measured_less and cell.after.launches:
        return cell.after.reason or plural(len(cell.after.launches), "launch")
    if cell.measured_less:
        return format_state(cell.after)
    return f"no {listed([metric_label(key.metric, key.detail) for key in cell.absent])}"


def _some(labels: Sequence[str]) -> str:
    return listed(capped(labels, _MAX_NAMED))


def _bounded_sentences(
    pair: Pair, decided: Sequence[tuple[CellComparison, MetricChange]]
) -> list[str]:
    """Changes with a verdict although launches were disturbed, and where they lie without that."""
    labels = [
        f"{comparison_label(cell)} ({format_possible(change)})"
        for cell, change in decided
        if change.conditions and change.verdict.decided
    ]
    if not labels:
        return []
    disturbed = _disturbed(pair, decided, unclear=False)
    if len(decided) == 1:
        return [disturbed]
    return [f"Undisturbed: {_some(labels)}. {disturbed}"]


def _more_launches(pair: Pair) -> str:
    """How to have more launches of what was compared."""
    trained = [as_kind(one.cell.cell, TrainingCell) for one in pair.cells]
    watched = [cell for cell in trained if cell is not None and cell.is_watched]
    if any(cell.measurement.measure_seconds for cell in watched):
        return "the same command goes on (a larger --budget)"
    if watched:
        return "watch it again into the same folder (--append): each attempt is a launch"
    return "set benchmark.repeats: 5"


def _unclear_sentences(
    pair: Pair, decided: Sequence[tuple[CellComparison, MetricChange]]
) -> list[str]:
    """How many changes are unclear, and why."""
    of = f"of {plural(len(decided), 'change')}"
    counts = Counter(change.reason for _, change in decided)
    sentences = []
    if counts[Reason.FEW_LAUNCHES]:
        sentences.append(
            f"{counts[Reason.FEW_LAUNCHES]} {of} unclear: fewer than {MIN_LAUNCHES} launches on a "
            f"side; {_more_launches(pair)}."
        )
    if counts[Reason.CONDITIONS]:
        conditions = dict.fromkeys(flag for _, change in decided for flag in change.conditions)
        sentences.append(
            f"{counts[Reason.CONDITIONS]} {of} unclear: {_what_was_disturbed(pair, [*conditions])}, "
            "which can explain the difference. "
            f"{_disturbed(pair, decided, unclear=True)} Measure again on a quiet machine, or pass "
            "--accept flags."
        )
    if counts[Reason.NOISE]:
        sentences.append(
            f"{counts[Reason.NOISE]} {of} unclear: noise could hide a change.{_by_chance(decided)}"
        )
    return sentences


def _by_chance(decided: Sequence[tuple[CellComparison, MetricChange]]) -> str:
    """How many of the unclear changes are beyond their own noise, and not beyond what one of so
    many shows by chance; empty for none."""
    beyond = sum(
        change.reason is Reason.NOISE
        and (change.ratio.p or 1.0) < LEVEL <= (change.adjusted_p or 0)
        for _, change in decided
    )
    if not beyond:
        return ""
    differ = by_count(beyond, "differs by more than its", "differ by more than their")
    return (
        f" {beyond} {differ} own noise, as one of {len(decided)} may by chance; more launches "
        "decide."
    )


def _disturbed(
    pair: Pair, decided: Sequence[tuple[CellComparison, MetricChange]], *, unclear: bool
) -> str:
    """Which launches of which side, for the first of the cells."""
    names = (pair.reference.name, pair.other.name)
    cells = [
        cell
        for cell, change in decided
        if change.conditions
        and (change.reason is Reason.CONDITIONS) == unclear
        and cell.disturbances
    ]
    if not cells:
        return ""
    texts = [format_disturbance(one, names) for one in cells[0].disturbances]
    more = ""
    if len(cells) > 1:
        more = f", and so on in {plural(len(cells) - 1, 'other cell')}"
    sentence = f"{listed(texts)}{more}."
    if len(decided) == 1:
        return f"{sentence[0].upper()}{sentence[1:]}"
    return f"{comparison_label(cells[0])}: {sentence}"


def format_session_noise(changes: Sequence[MetricChange]) -> str:
    """What the intervals say of the noise between sessions."""
    spreads = [change.session_spread for change in changes if change.session_spread is not None]
    uncovered = sum(not change.covers_sessions for change in changes)
    if not uncovered:
        text = "Intervals cover the noise between launches and between sessions"
    else:
        some = ""
        if uncovered != len(changes):
            some = f" for {uncovered} of {plural(len(changes), 'change')}"
        text = (
            "Intervals cover the noise between launches; the noise between sessions (time of day, "
            f"temperature, other jobs) is unknown{some}: a side was measured in one session"
        )
    if any(spreads):
        text += (
            ". Where it is estimated, levels of sessions spread by up to "
            f"{format_percent(max(spreads))}"
        )
    return f"{text}."
