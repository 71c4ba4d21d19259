"""Labels and values of comparisons, shared by all formats."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.stats.ratios import LogRatio
from torchscale.features.compare.analysis.change import ChangeVerdict, MetricChange, Reason
from torchscale.features.compare.analysis.judge import LEVEL
from torchscale.features.compare.analysis.pair import (
    CellComparison,
    EfficiencyScore,
    Overall,
    Pair,
    Score,
)
from torchscale.features.compare.export_schema import Disturbance
from torchscale.features.compare.text.result import (
    METRIC_LABELS,
    format_state,
    label_parts,
    result_label,
)
from torchscale.report.values import only_if, shortened
from torchscale.util.interval_text import format_change_ends
from torchscale.util.units import format_change, format_percent
from torchscale.util.words import by_count, listed, plural

_DIGITS_OF_P = 3
UNBOUNDED = "unknown"
NO_ALARM = "no alarm"
UNDISTURBED = "undisturbed"
"""The column beside the measured interval."""
UNDISTURBED_LEGEND = (
    "Undisturbed: where the change lies without the time that other processes or low clocks took. "
    "Where this column has a value, it decides."
)
"""Below a table with that column."""


def table_names(names: Sequence[str]) -> tuple[str, ...]:
    """Names of sides for tables: of long paths what tells them apart, ``…/a/demo`` and
    ``…/b/demo``."""
    paths = [shortened(name).split("/") for name in names]
    tails = list(zip(*(reversed(path) for path in paths), strict=False))
    shared = next((n for n, level in enumerate(tails) if len(set(level)) > 1), len(tails))
    return tuple(_distinguishing(path, paths, shared) for path in paths)


def _distinguishing(path: Sequence[str], paths: Sequence[Sequence[str]], shared: int) -> str:
    """The shortest end of a path that no other has; of directories that all have at their ends the
    last alone."""
    whole = "/".join(path)
    others = [other for other in paths if other is not path]
    apart = (
        count
        for count in range(1, len(path))
        if all(path[-count:] != other[-count:] for other in others)
    )
    count = next(apart, len(path))
    kept = [*only_if(count < len(path), "…"), *path[-count:]]
    if 1 < shared < count:
        kept[-shared:] = ["…", path[-1]]
    return min(whole, "/".join(kept), key=len)


def format_ratio_change(ratio: LogRatio) -> str:
    """``+1.3 %``."""
    return format_change(ratio.value - 1)


def format_interval(ratio: LogRatio) -> str:
    """``-0.4 to +2.9 %``; – where the spread is unknown."""
    if ratio.interval is None:
        return "–"
    return format_change_ends(*ratio.interval)


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


def format_verdict(one: MetricChange | Overall) -> str:
    """``better``, ``better, size unclear``, or ``unclear (contended)``, ``unclear (launches)``
    where it is not noise alone; ``no alarm`` within a calibrated threshold, which may be wide."""
    if one.limit is not None and one.verdict is ChangeVerdict.SAME:
        return NO_ALARM
    if one.size_is_unclear:
        return f"{one.verdict.value}, size unclear"
    if one.reason is Reason.CONDITIONS:
        return f"{one.verdict.value} ({', '.join(one.conditions)})"
    if one.reason is Reason.FEW_LAUNCHES:
        return f"{one.verdict.value} (launches)"
    return one.verdict.value


def format_possible(one: MetricChange | Overall) -> str:
    """Range of changes that are possible without what disturbed a side: ``-24.1 to -12.3 %``,
    ``-12.3 % or less``; empty where nothing bounds it."""
    low, high = (None if end is None else end.interval for end in (one.low, one.high))
    if low is not None and high is not None:
        return format_change_ends(low[0], high[1])
    if low is not None:
        return f"{format_change(low[0] - 1)} or more"
    if high is None:
        return ""
    return f"{format_change(high[1] - 1)} or less"


def format_undisturbed(one: MetricChange | Overall) -> str:
    """:func:`format_possible` of a change that something disturbed; – of others."""
    if not one.conditions:
        return "–"
    return format_possible(one) or UNBOUNDED


def format_disturbance(disturbance: Disturbance, names: tuple[str, str]) -> str:
    """``launches 1 and 3 of 3 of after were contended (other processes took up to 96 % of the
    cores)``, ``all 3 launches of after were …``."""
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
    if len(numbers) == disturbance.of > 1:
        which = f"all {disturbance.of} launches"
    share = disturbance.other_processes
    took = ""
    if share is not None:
        took = f" (other processes took up to {format_percent(share, 0)} of the cores)"
    verb = by_count(len(numbers), "was", "were")
    return f"{which} of {side} {verb} {disturbance.condition}{took}"


def comparison_label(cell: CellComparison) -> str:
    """:func:`result_label`, with ``2 devices | 4 devices`` where the sides differ."""
    if cell.before is None or cell.after is None:
        return result_label(cell.cell)
    sides = [label_parts(side.cell) for side in (cell.before, cell.after)]
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


def format_overall(overall: Overall) -> str:
    """``samples/s +1.3 % over 4 cells (95 % interval -0.4 to +2.9 %): unclear``."""
    return f"{format_overall_change(overall)}: {format_verdict(overall)}"


def format_overall_change(overall: Overall) -> str:
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
