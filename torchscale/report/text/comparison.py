"""Labels and sentences of comparisons, shared by all formats."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.comparison.compare import CellComparison, Outcome, Overall, Pair, Score, Verdict
from torchscale.analysis.stats.ratios import LogRatio
from torchscale.config.choices import Metric
from torchscale.report.document import shortened
from torchscale.report.text.labels import cell_label, format_days, listed, plural
from torchscale.schema.cells.kinds import as_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.run.result_set import ResultCell, ResultSet
from torchscale.util.units import (
    format_byte_rate,
    format_bytes,
    format_change,
    format_flops,
    format_rate,
    format_seconds,
)

_MAX_NAMED = 3
"""Cells named in a sentence; the rest is counted."""
METRIC_LABELS = {
    Metric.THROUGHPUT: "samples/s",
    Metric.STEP_P95: "step p95",
    Metric.MEMORY: "peak memory",
    Metric.ENERGY: "samples/joule",
    Metric.COST: "samples/$",
    Metric.BUSBW: "bus bandwidth",
    Metric.COMPUTE: "matmul rate",
    Metric.COPY: "copy bandwidth",
}
_UNITS = {
    Metric.STEP_P95: format_seconds,
    Metric.MEMORY: format_bytes,
    Metric.BUSBW: format_byte_rate,
    Metric.COPY: format_byte_rate,
    Metric.COMPUTE: format_flops,
}


def measured_days(side: ResultSet) -> str:
    """``2026-11-20``, or ``2026-11-20 to 2026-11-22``; empty where unknown."""
    launches = (launch.started_at for cell in side.cells for launch in cell.launches if launch.started_at)
    return format_days(launches) or side.created_at[:10]


def format_level(metric: Metric, value: float) -> str:
    """A value with its unit."""
    return _UNITS.get(metric, format_rate)(value)


def metric_label(metric: Metric, detail: str) -> str:
    """``samples/s``, or ``bus bandwidth all_reduce fp32``."""
    return f"{METRIC_LABELS[metric]} {detail}" if detail else METRIC_LABELS[metric]


def format_ratio_change(ratio: LogRatio) -> str:
    """``+1.3 %``."""
    return format_change(ratio.value - 1)


def format_interval(ratio: LogRatio) -> str:
    """``-0.4 to +2.9 %``; – where the spread is unknown."""
    if ratio.interval is None:
        return "–"
    low, high = (format_change(end - 1) for end in ratio.interval)
    return f"{low.removesuffix(' %') if high.endswith('%') else low} to {high}"


def result_label(cell: ResultCell) -> str:
    """Everything that distinguishes a cell from the others, in one line."""
    trained = as_kind(cell.cell, TrainingCell)
    if trained is not None:
        return cell_label(trained)
    return shortened(", ".join([cell.cell.title, *cell.cell.settings, f"n={cell.cell.world_size}"]))


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
    return cell.state.value + (f" ({cell.reason})" if cell.reason else "")


def format_overall(overall: Overall) -> str:
    """``samples/s +1.3 % over 4 cells (95 % interval -0.4 to +2.9 %): unclear``."""
    interval = "" if overall.ratio.interval is None else f" (95 % interval {format_interval(overall.ratio)})"
    change = f"{METRIC_LABELS[overall.metric]} {format_ratio_change(overall.ratio)}"
    return f"{change} over {plural(overall.cells, 'cell')}{interval}: {overall.verdict.value}"


def format_score(score: Score) -> str:
    """``98.7 = 100 × 1.013 (speed) × 38 of 39 cells``."""
    return f"{score.value:.1f} = 100 × {score.ratio:.3f} (speed) × {score.measured} of {plural(score.of, 'cell')}"


def pair_verdict(pair: Pair, metrics: Sequence[Metric]) -> list[str]:
    """The result of a pair in sentences: the overall change, which cells changed, which failed, which are undecided."""
    name, reference = shortened(pair.other.name), shortened(pair.reference.name)
    headline = [overall for overall in pair.overall if _headline(overall, metrics)] or list(pair.overall[:1])
    if not headline:
        return [f"{name} against {reference}: no cell was measured on both sides."]
    sentences = [f"{name} against {reference}: {'; '.join(format_overall(overall) for overall in headline)}."]
    decided = pair.decided_by(metrics)
    for verdict in (Verdict.WORSE, Verdict.BETTER):
        changed = [(cell, change) for cell, change in decided if change.verdict is verdict]
        if changed:
            named = [
                f"{result_label(cell.cell)} ({format_ratio_change(change.ratio)})"
                for cell, change in changed[:_MAX_NAMED]
            ]
            more = [f"{len(changed) - _MAX_NAMED} more"] if len(changed) > _MAX_NAMED else []
            sentences.append(f"{verdict.value.capitalize()}: {listed([*named, *more])}.")
    lost = [cell for cell in pair.cells if cell.outcome is Outcome.LOST]
    if lost:
        named = [f"{result_label(cell.cell)} ({cell.after.state.value})" for cell in lost[:_MAX_NAMED] if cell.after]
        more = [f"{len(lost) - _MAX_NAMED} more"] if len(lost) > _MAX_NAMED else []
        sentences.append(f"Measured in {reference} and failed in {name}: {listed([*named, *more])}.")
    counts = {verdict: sum(change.verdict is verdict for _, change in decided) for verdict in Verdict}
    few = counts[Verdict.NOT_DECIDABLE]
    if few:
        sentences.append(
            f"{few} of {plural(len(decided), 'change')} not decidable: fewer than three launches on a side; set "
            "benchmark.repeats: 5."
        )
    if counts[Verdict.UNCLEAR]:
        sentences.append(
            f"{counts[Verdict.UNCLEAR]} of {plural(len(decided), 'change')} unclear: a change could be hidden by noise."
        )
    return sentences


def _headline(overall: Overall, metrics: Sequence[Metric]) -> bool:
    return overall.metric in metrics if metrics else overall.metric is Metric.THROUGHPUT
