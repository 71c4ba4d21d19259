"""Words and units that all forms of a comparison share."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.comparison import CellComparison, Outcome, Overall, Pair, Score, Verdict
from torchscale.analysis.welch import LogRatio
from torchscale.report.document import shortened
from torchscale.report.words import between_days, cell_words, listed, plural
from torchscale.schema.cell import Cell
from torchscale.schema.results import Metric, ResultCell, ResultSet
from torchscale.units import format_byte_rate, format_bytes, format_change, format_flops, format_rate, format_seconds

_MAX_NAMED = 3
METRIC_WORDS = {
    Metric.THROUGHPUT: "samples/s",
    Metric.STEP_P95: "step p95",
    Metric.MEMORY: "peak memory",
    Metric.ENERGY: "samples/joule",
    Metric.COST: "samples/$",
    Metric.BUSBW: "bus bandwidth",
    Metric.COMPUTE: "matrix products",
    Metric.COPY: "copies",
}
_UNITS = {
    Metric.STEP_P95: format_seconds,
    Metric.MEMORY: format_bytes,
    Metric.BUSBW: format_byte_rate,
    Metric.COPY: format_byte_rate,
    Metric.COMPUTE: format_flops,
}


def measured_days(side: ResultSet) -> str:
    """``2026-11-20``, or ``2026-11-20 to 2026-11-22``; empty where nothing says."""
    launches = (launch.started_at for cell in side.cells for launch in cell.launches if launch.started_at)
    return between_days(launches) or side.created_at[:10]


def level_words(metric: Metric, value: float) -> str:
    """A value with its unit."""
    return _UNITS.get(metric, format_rate)(value)


def metric_words(metric: Metric, detail: str) -> str:
    """``samples/s``, or ``bus bandwidth all_reduce fp32``."""
    return f"{METRIC_WORDS[metric]} {detail}" if detail else METRIC_WORDS[metric]


def change_words(ratio: LogRatio) -> str:
    """``+1.3 %``."""
    return format_change(ratio.value - 1)


def interval_words(ratio: LogRatio) -> str:
    """``-0.4 to +2.9 %``; a dash where nothing is known of the spread."""
    if ratio.interval is None:
        return "–"
    low, high = (format_change(end - 1) for end in ratio.interval)
    return f"{low.removesuffix(' %') if high.endswith('%') else low} to {high}"


def result_words(cell: ResultCell) -> str:
    """All that tells a cell from the others, in a line."""
    found = cell.cell
    if isinstance(found, Cell):
        return cell_words(found)
    return shortened(", ".join([found.title, *found.settings, f"n={found.world_size}"]))


def outcome_words(cell: CellComparison, names: tuple[str, str]) -> str:
    """What became of a cell that could not be compared, and why."""
    told = []
    for one, name in zip((cell.before, cell.after), names, strict=True):
        if one is None:
            told.append(f"not in {name}")
        else:
            told.append(f"{name} {state_words(one)}")
    before, after = cell.before, cell.after
    if before is not None and after is not None and state_words(before) == state_words(after):
        told = [f"both {state_words(before)}"]
    return shortened("; ".join(told))


def state_words(cell: ResultCell) -> str:
    """``skipped (needs 4 devices)``."""
    return cell.state.value + (f" ({cell.reason})" if cell.reason else "")


def overall_words(overall: Overall) -> str:
    """``samples/s +1.3 % over 4 cells (95 % interval -0.4 to +2.9 %): unclear``."""
    interval = "" if overall.ratio.interval is None else f" (95 % interval {interval_words(overall.ratio)})"
    return (
        f"{METRIC_WORDS[overall.metric]} {change_words(overall.ratio)} over {plural(overall.cells, 'cell')}{interval}: "
        f"{overall.verdict.value}"
    )


def score_words(score: Score) -> str:
    """``98.7 = 100 × 1.013 (speed) × 38 of 39 cells``."""
    return f"{score.value:.1f} = 100 × {score.ratio:.3f} (speed) × {score.measured} of {plural(score.of, 'cell')}"


def pair_verdict(pair: Pair, metrics: Sequence[Metric]) -> list[str]:
    """What a reader takes away of a pair, in sentences."""
    name, reference = shortened(pair.other.name), shortened(pair.reference.name)
    wanted = [one for one in pair.overall if _headline(one, metrics)] or list(pair.overall[:1])
    if not wanted:
        return [f"{name} against {reference}: no cell was measured on both sides."]
    said = [f"{name} against {reference}: {'; '.join(overall_words(one) for one in wanted)}."]
    decided = pair.decided_by(metrics)
    for verdict in (Verdict.WORSE, Verdict.BETTER):
        found = [(cell, change) for cell, change in decided if change.verdict is verdict]
        if found:
            named = [f"{result_words(cell.cell)} ({change_words(change.ratio)})" for cell, change in found[:_MAX_NAMED]]
            more = [f"{len(found) - _MAX_NAMED} more"] if len(found) > _MAX_NAMED else []
            said.append(f"{verdict.value.capitalize()}: {listed([*named, *more])}.")
    lost = [cell for cell in pair.cells if cell.outcome is Outcome.LOST]
    if lost:
        named = [f"{result_words(cell.cell)} ({cell.after.state.value})" for cell in lost[:_MAX_NAMED] if cell.after]
        more = [f"{len(lost) - _MAX_NAMED} more"] if len(lost) > _MAX_NAMED else []
        said.append(f"Measured in {reference} and failed in {name}: {listed([*named, *more])}.")
    counts = {verdict: sum(change.verdict is verdict for _, change in decided) for verdict in Verdict}
    few = counts[Verdict.NOT_DECIDABLE]
    if few:
        said.append(
            f"{few} of {plural(len(decided), 'change')} not decidable: fewer than three launches on a side; "
            "measure with "
            "benchmark.repeats: 5."
        )
    if counts[Verdict.UNCLEAR]:
        said.append(f"{counts[Verdict.UNCLEAR]} of {plural(len(decided), 'change')} unclear: the noise could hide one.")
    return said


def _headline(overall: Overall, metrics: Sequence[Metric]) -> bool:
    return overall.metric in metrics if metrics else overall.metric is Metric.THROUGHPUT
