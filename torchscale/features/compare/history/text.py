"""Labels and sentences of results over time, shared by all formats."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.stats.change_points import MIN_LENGTH
from torchscale.config.choices import Metric
from torchscale.features.compare.history.trends import ChangePoint, Trend
from torchscale.features.compare.text.comparison import format_interval, format_ratio_change
from torchscale.features.compare.text.result import cell_text, format_level, metric_label
from torchscale.report.values import shortened
from torchscale.util.words import by_count, plural

_MAX_DIFFERENCES = 8
"""Maximum number of differences of one change, in a line; JSON has all."""
_MAX_VALUE = 60
_COMMIT_DIGITS = 12
_FIRST = ("git commit", "driver", "torch", "NCCL", "host", "devices", "torchscale", "CUDA", "cuDNN")
"""What readers look for first."""
_SCALES = {
    Metric.STEP_P95: (1e3, "step p95, ms"),
    Metric.MEMORY: (2.0**-30, "peak memory, GiB"),
    Metric.BUSBW: (1e-9, "bus bandwidth, GB/s"),
    Metric.COPY: (1e-9, "copy bandwidth, GB/s"),
    Metric.SAVE: (1e-9, "checkpoint saved, GB/s"),
    Metric.LOAD: (1e-9, "checkpoint loaded, GB/s"),
    Metric.STOP: (1.0, "stop for a checkpoint, s"),
    Metric.STOP_ASYNC: (1.0, "stop for an asynchronous checkpoint, s"),
    Metric.COMPUTE: (1e-12, "matmul rate, TFLOP/s"),
    Metric.THROUGHPUT: (1.0, "samples/s"),
    Metric.STEPS: (1.0, "steps/s"),
    Metric.ENERGY: (1.0, "samples/joule"),
}


def trend_label(trend: Trend) -> str:
    """``tiny-decoder, fp32, batch 8, 2 devices: samples/s``."""
    return f"{cell_text(trend.cell)}: {metric_label(trend.metric.metric, trend.metric.detail)}"


def level_text(trend: Trend, level: float) -> str:
    """The level of a trend, with its unit."""
    return format_level(trend.metric.metric, level)


def unit_of(trend: Trend) -> tuple[float, str]:
    """Factor to the unit of a chart's axis, and the name of the axis."""
    scale, label = _SCALES.get(trend.metric.metric, (1.0, metric_label(trend.metric.metric, "")))
    return scale, label


def format_change_point(change: ChangePoint) -> str:
    """``-4.8 % (-5.7 to -3.9 %)``."""
    interval = ""
    if change.ratio.interval is not None:
        interval = f" ({format_interval(change.ratio)})"
    return f"{format_ratio_change(change.ratio)}{interval}"


def format_since(change: ChangePoint) -> str:
    """``2026-11-20 10:01``, in UTC."""
    return change.first.measured_at[:16].replace("T", " ")


def difference_texts(change: ChangePoint) -> list[str]:
    """``driver: 550.54 → 570.12``, what readers look for first at the beginning."""
    ranks = {name: rank for rank, name in enumerate(_FIRST)}
    ordered = sorted(
        change.differences, key=lambda difference: ranks.get(difference.what, len(ranks))
    )
    texts = [
        f"{difference.what}: "
        f"{' → '.join(_short(difference.what, value) for value in difference.values)}"
        for difference in ordered[:_MAX_DIFFERENCES]
    ]
    more = len(ordered) - len(texts)
    if more:
        return [*texts, f"and {more} more"]
    return texts


def _short(what: str, value: str) -> str:
    """The value, shortened for people: a commit's first digits identify it."""
    cut = value
    if what == "git commit":
        cut = f"{value[:_COMMIT_DIGITS]}{'-dirty' * value.endswith('-dirty')}"
    return shortened(cut, _MAX_VALUE) or "none"


def history_sentence(trends: Sequence[Trend], threshold: float) -> str:
    """The answer in one sentence."""
    if not trends:
        return "Nothing was measured."
    worse = [
        (trend, change) for trend in trends if (change := trend.regression(threshold)) is not None
    ]
    if worse:
        trend, change = min(
            worse,
            key=lambda one: (
                one[1].ratio.value if one[0].metric.metric.higher_is_better else -one[1].ratio.value
            ),
        )
        most = (
            f"{trend_label(trend)} {format_change_point(change)} since {format_since(change)} UTC"
        )
        are = by_count(len(worse), "is", "are")
        return f"{len(worse):,} of {len(trends):,} series {are} worse now; most: {most}."
    if all(len(trend.counted) < 2 * MIN_LENGTH for trend in trends):
        longest = max(len(trend.counted) for trend in trends)
        return (
            f"Too few runs to find a change: {plural(longest, 'run')} in the longest series; "
            f"{2 * MIN_LENGTH} are needed ({MIN_LENGTH} before and {MIN_LENGTH} after)."
        )
    changed = sum(bool(trend.changes) for trend in trends)
    return (
        f"No series is worse now. {changed:,} of {len(trends):,} changed their level at some time."
    )
