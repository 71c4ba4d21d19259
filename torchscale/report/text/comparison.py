"""Labels and sentences of comparisons, shared by all formats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from torchscale.analysis.comparison.compare import LEVEL
from torchscale.analysis.comparison.conditions import Disturbance
from torchscale.analysis.comparison.pair import (
    MIN_LAUNCHES,
    CellComparison,
    Change,
    EfficiencyScore,
    Outcome,
    Overall,
    Pair,
    Reason,
    Score,
    Verdict,
)
from torchscale.analysis.stats.ratios import LogRatio
from torchscale.config.choices import Metric
from torchscale.report.document import shortened
from torchscale.report.text.labels import (
    batch_label,
    by_count,
    capped,
    format_days,
    in_brackets,
    listed,
    panel_title,
    plural,
)
from torchscale.schema.cells.kinds import AnyCell, as_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.run.result_set import ResultCell, ResultSet
from torchscale.util.interval_text import format_ends
from torchscale.util.units import (
    format_byte_rate,
    format_bytes,
    format_change,
    format_flops,
    format_percent,
    format_rate,
    format_seconds,
)

_MAX_NAMED = 3
"""Cells named in a sentence; the rest is counted."""
METRIC_LABELS = {
    Metric.THROUGHPUT: "samples/s",
    Metric.STEP_P95: "step p95, per launch",
    Metric.MEMORY: "peak memory",
    Metric.ENERGY: "samples/joule",
    Metric.COST: "samples/$",
    Metric.BUSBW: "bus bandwidth",
    Metric.COMPUTE: "matmul rate",
    Metric.COPY: "copy bandwidth",
}
_UNITS: Mapping[Metric, Callable[[float], str]] = {
    Metric.STEP_P95: format_seconds,
    Metric.MEMORY: format_bytes,
    Metric.BUSBW: format_byte_rate,
    Metric.COPY: format_byte_rate,
    Metric.COMPUTE: format_flops,
}


_DIGITS_OF_P = 3
UNBOUNDED = "unknown"
BRACKETS = "[In brackets]: between which ends the change lies without what disturbed one side."
"""Below a table with :func:`change_ends`."""


def measured_at(sides: Sequence[ResultSet]) -> list[str]:
    """When each side was measured: days; to the minute where two sides have the same days."""
    days = [measured_days(side) for side in sides]
    if len(set(days)) == len(days):
        return days
    return [_minutes(side) or day for side, day in zip(sides, days, strict=True)]


def _minutes(side: ResultSet) -> str:
    """``2026-11-20 10:01 to 10:25 UTC``; empty where unknown."""
    times = sorted(
        launch.started_at for cell in side.cells for launch in cell.launches if launch.started_at
    )
    if not times:
        return ""
    first, last = (shortened(time[:16].replace("T", " ")) for time in (times[0], times[-1]))
    end = last
    if last[:10] == first[:10]:
        end = last[11:]
    if last == first:
        return f"{first} UTC"
    return f"{first} to {end} UTC"


def measured_days(side: ResultSet) -> str:
    """``2026-11-20``, or ``2026-11-20 to 2026-11-22``; empty where unknown."""
    launches = (
        launch.started_at for cell in side.cells for launch in cell.launches if launch.started_at
    )
    return format_days(launches) or side.created_at[:10]


def format_level(metric: Metric, value: float) -> str:
    """A value with its unit."""
    return _UNITS.get(metric, format_rate)(value)


def metric_label(metric: Metric, detail: str) -> str:
    """``samples/s``, or ``bus bandwidth all_reduce fp32``."""
    if detail:
        return f"{METRIC_LABELS[metric]} {detail}"
    return METRIC_LABELS[metric]


def format_ratio_change(ratio: LogRatio) -> str:
    """``+1.3 %``."""
    return format_change(ratio.value - 1)


def format_interval(ratio: LogRatio) -> str:
    """``-0.4 to +2.9 %``; – where the spread is unknown."""
    if ratio.interval is None:
        return "–"
    return format_ends(*(format_change(end - 1) for end in ratio.interval))


def format_p(p: float) -> str:
    """``0.012``; with as many digits as it takes to be on the side of the level that it is on, such
    as ``0.0497``."""
    smallest = 10**-_DIGITS_OF_P
    if p < smallest:
        return f"< {smallest:g}"
    digits = _DIGITS_OF_P
    while (float(f"{p:.{digits}f}") < LEVEL) != (p < LEVEL):
        digits += 1
    return f"{p:.{digits}f}"


def format_verdict(one: Change | Overall) -> str:
    """``better``, or ``unclear (contended)``, ``unclear (launches)`` where it is not noise
    alone."""
    if one.reason is Reason.CONDITIONS:
        return f"{one.verdict.value} ({', '.join(one.conditions)})"
    if one.reason is Reason.FEW_LAUNCHES:
        return f"{one.verdict.value} (launches)"
    return one.verdict.value


def format_possible(one: Change | Overall) -> str:
    """Between which changes it lies without what disturbed a side: ``-24.1 to -12.3 %``, ``-12.3 %
    or less``; empty where nothing bounds it."""
    low, high = (None if end is None else end.interval for end in (one.low, one.high))
    if low is not None and high is not None:
        ends = [format_change(end - 1) for end in (low[0], high[1])]
        return f"{ends[0].removesuffix(' %')} to {ends[1]}"
    if low is not None:
        return f"{format_change(low[0] - 1)} or more"
    if high is None:
        return ""
    return f"{format_change(high[1] - 1)} or less"


def change_ends(one: Change | Overall) -> str:
    """The interval; of a change with a disturbed side between which ends it lies without that, in
    brackets."""
    if not one.conditions:
        return format_interval(one.ratio)
    return f"[{format_possible(one) or UNBOUNDED}]"


def format_disturbance(disturbance: Disturbance, names: tuple[str, str]) -> str:
    """``launches 1 and 3 of 3 of after were contended (other processes took up to 96 % of the
    cores)``."""
    side = shortened(names[disturbance.side])
    if disturbance.fixed_work is not None:
        longer = format_percent(disturbance.fixed_work, 1)
        return (
            f"the machine itself was slower during {side} (fixed work between batches took {longer} "
            "longer)"
        )
    numbers = [str(number) for number in disturbance.launches]
    noun = by_count(len(numbers), "launch", "launches")
    which = f"{noun} {listed(numbers)} of {disturbance.of}"
    share = disturbance.other_processes
    took = ""
    if share is not None:
        took = f" (other processes took up to {format_percent(share, 0)} of the cores)"
    verb = by_count(len(numbers), "was", "were")
    return f"{which} of {side} {verb} {disturbance.condition}{took}"


def result_label(cell: ResultCell) -> str:
    """Everything that distinguishes a cell from the others, in one line."""
    return cell_text(cell.cell)


def cell_text(cell: AnyCell) -> str:
    """The same of a cell alone."""
    return shortened(", ".join(_label_parts(cell)))


def comparison_label(cell: CellComparison) -> str:
    """:func:`result_label`, with ``2 devices | 4 devices`` where the sides differ."""
    if cell.before is None or cell.after is None:
        return result_label(cell.cell)
    sides = [_label_parts(side.cell) for side in (cell.before, cell.after)]
    if len(sides[0]) != len(sides[1]):
        return shortened(" | ".join(", ".join(parts) for parts in sides))
    return shortened(
        ", ".join(both_values(ours, theirs) for ours, theirs in zip(*sides, strict=True))
    )


def both_values(before: str, after: str) -> str:
    """``8``, or ``8 | 4`` where they differ."""
    if before == after:
        return before
    return f"{before} | {after}"


def _label_parts(cell: AnyCell) -> list[str]:
    trained = as_kind(cell, TrainingCell)
    if trained is not None:
        return [panel_title(trained), batch_label(trained), plural(trained.world_size, "device")]
    return [cell.title, *cell.settings, f"n={cell.world_size}"]


def format_outcome(cell: CellComparison, names: tuple[str, str]) -> str:
    """Why a cell could not be compared."""
    outcomes = []
    for side, name in zip((cell.before, cell.after), names, strict=True):
        if side is None:
            outcomes.append(f"not in {name}")
        else:
            outcomes.append(f"{name} {format_state(side)}")
    before, after = cell.before, cell.after
    if before is not None and after is not None and format_state(before) == format_state(after):
        outcomes = [f"both {format_state(before)}"]
    return shortened("; ".join(outcomes))


def format_state(cell: ResultCell) -> str:
    """``skipped (needs 4 devices)``."""
    return cell.state.value + in_brackets(cell.reason)


def format_overall(overall: Overall) -> str:
    """``samples/s +1.3 % over 4 cells (95 % interval -0.4 to +2.9 %): unclear``."""
    return f"{_overall_change(overall)}: {format_verdict(overall)}"


def _overall_change(overall: Overall) -> str:
    interval = ""
    if overall.ratio.interval is not None:
        interval = f" (95 % interval {format_interval(overall.ratio)})"
    change = f"{METRIC_LABELS[overall.metric]} {format_ratio_change(overall.ratio)}"
    return f"{change} over {plural(overall.cells, 'cell')}{interval}"


def format_score(score: Score) -> str:
    """``98.7 = 100 × 1.013 (speed) × 38 of 39 cells``; without a verdict on the speed there is
    none."""
    terms = (
        f"{score.value:.1f} = 100 × {score.ratio:.3f} (speed) × {score.measured} of "
        f"{plural(score.of, 'cell')}"
    )
    if score.certain:
        return terms
    return f"unclear, as the change of speed is ({terms})"


def format_scores(pair: Pair) -> list[str]:
    """A line for each score that there is."""
    lines = []
    if pair.score is not None:
        lines.append(f"Score: {format_score(pair.score)}.")
    if pair.efficiency is not None:
        lines.append(f"Efficiency score: {_format_efficiency(pair.efficiency)}.")
    return lines


def _format_efficiency(score: EfficiencyScore) -> str:
    """``98.7 (95 % interval 96.1 to 101.4) = 100 × scaling efficiency against the reference's, mean
    of 2 cells``."""
    interval = score.ratio.interval
    ends = "unknown"
    if interval is not None:
        ends = f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f}"
    of = f"geometric mean of {plural(score.cells, 'cell')}"
    return (
        f"{score.value:.1f} (95 % interval {ends}) = 100 × scaling efficiency against the "
        f"reference's, {of}"
    )


def pair_verdict(pair: Pair, metrics: Sequence[Metric]) -> list[str]:
    """The result of a pair in sentences: the overall change, which cells changed, which failed or
    were not measured, which are unclear."""
    name, reference = shortened(pair.other.name), shortened(pair.reference.name)
    overall = pair.overall_by(metrics)
    sentences = [format_headline(pair, metrics)]
    if overall[1:]:
        sentences.append(f"{'; '.join(format_overall(one) for one in overall[1:])}.")
    decided = pair.decided_by(metrics)
    for verdict in (Verdict.WORSE, Verdict.BETTER):
        labels = [
            f"{comparison_label(cell)} ({format_ratio_change(change.ratio)})"
            for cell, change in decided
            if change.verdict is verdict
        ]
        if labels:
            sentences.append(f"{verdict.value.capitalize()}: {_some(labels)}.")
    lost = [
        f"{result_label(cell.cell)} ({cell.after.state.value})"
        for cell in pair.cells
        if cell.outcome is Outcome.LOST and cell.after is not None
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
    change, speed = _overall_change(overall), overall.metric is Metric.THROUGHPUT
    possible = format_possible(overall)
    if overall.conditions and possible:
        change += f"; {possible} without what disturbed one side"
    if overall.reason is Reason.CONDITIONS:
        flags = " or ".join(overall.conditions)
        return f"Unclear, because one side was {flags}: {name} against {reference}: {change}."
    if overall.reason is Reason.FEW_LAUNCHES:
        few = f"fewer than {MIN_LAUNCHES} launches on a side"
        return f"Unclear whether {name} differs from {reference}, with {few}: {change}."
    match overall.verdict:
        case Verdict.BETTER:
            return f"{name} is {'faster' if speed else 'better'} than {reference}: {change}."
        case Verdict.WORSE:
            return f"{name} is {'slower' if speed else 'worse'} than {reference}: {change}."
        case Verdict.SAME:
            return (
                f"{name} and {reference} are equal within {format_percent(pair.threshold, 1)}: "
                f"{change}."
            )
    return f"Unclear whether {name} differs from {reference}: {change}."


def format_nothing_compared(pair: Pair, metrics: Sequence[Metric]) -> str:
    """Why no change decides: ``nothing to compare: a holds 4 collectives cells, b 2 training
    cells``."""
    sides = (pair.reference, pair.other)
    if any(cell.outcome is Outcome.COMPARED for cell in pair.cells):
        wanted = " or ".join(METRIC_LABELS[metric] for metric in metrics) or "speed"
        return (
            f"{shortened(pair.other.name)} against {shortened(pair.reference.name)}: no cell has "
            f"{wanted} on both sides"
        )
    held = ", ".join(f"{shortened(side.name)} holds {format_held(side)}" for side in sides)
    matched = any(cell.outcome is not Outcome.UNMATCHED for cell in pair.cells)
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


def _bounded_sentences(pair: Pair, decided: Sequence[tuple[CellComparison, Change]]) -> list[str]:
    """Changes with a verdict although a side was disturbed, and between which ends they lie without
    that."""
    labels = [
        f"{comparison_label(cell)} ({format_possible(change)})"
        for cell, change in decided
        if change.conditions and change.verdict.decided
    ]
    if not labels:
        return []
    return [
        f"Without what disturbed one side: {_some(labels)}. "
        f"{_disturbed(pair, decided, unclear=False)}"
    ]


def _unclear_sentences(pair: Pair, decided: Sequence[tuple[CellComparison, Change]]) -> list[str]:
    """How many changes are unclear, and why."""
    of = f"of {plural(len(decided), 'change')}"
    counts = Counter(change.reason for _, change in decided)
    sentences = []
    if counts[Reason.FEW_LAUNCHES]:
        sentences.append(
            f"{counts[Reason.FEW_LAUNCHES]} {of} unclear: fewer than {MIN_LAUNCHES} launches on a "
            "side; set benchmark.repeats: 5."
        )
    if counts[Reason.CONDITIONS]:
        flags = " or ".join(
            dict.fromkeys(flag for _, change in decided for flag in change.conditions)
        )
        sentences.append(
            f"{counts[Reason.CONDITIONS]} {of} unclear because one side was {flags}, by more than "
            "the change. "
            f"{_disturbed(pair, decided, unclear=True)} Measure again on a quiet machine, or pass "
            "--accept flags."
        )
    if counts[Reason.NOISE]:
        sentences.append(f"{counts[Reason.NOISE]} {of} unclear: a change could be hidden by noise.")
    return sentences


def _disturbed(
    pair: Pair, decided: Sequence[tuple[CellComparison, Change]], *, unclear: bool
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
    return f"{comparison_label(cells[0])}: {listed(texts)}{more}."


def format_session_noise(changes: Sequence[Change]) -> str:
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
