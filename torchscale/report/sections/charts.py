"""Charts of throughput, efficiency and step-time distributions, a panel per model and setting."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.scaling import Efficiency
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.charts import Chart, ChartSeries, chart_name
from torchscale.report.sections.selection import MAX_PANELS, shown_panels, spread_out
from torchscale.report.text.labels import batch_label
from torchscale.report.text.run_labels import device_noun, nodes_of
from torchscale.util.interval_text import Interval

_MAX_POINTS = 120
"""Maximum number of points of a distribution: a few pixels apart in a panel a third of the page
wide."""


def throughput_charts(summary: RunSummary) -> list[Chart]:
    """Samples per second against device count, with the ideal from each series' smallest count.
    Scripts whose samples are not known have no line."""
    charts = []
    for title, lines in shown_panels(summary):
        known = [line for line in lines if all(_rate(cell) for cell in line)]
        if known:
            charts.append(_throughput(title, known, summary))
    return charts


def efficiency_charts(summary: RunSummary) -> list[Chart]:
    """Efficiency against device count, for panels that have at least two counts."""
    charts = []
    for title, lines in shown_panels(summary):
        scaled = [line for line in lines if len(line) > 1]
        if scaled:
            charts.append(_efficiency(title, scaled, summary))
    return charts


def distribution_charts(summary: RunSummary) -> list[Chart]:
    """Step-time distributions: the share of steps up to each time, a panel per model, batch and
    setting."""
    charts = [
        _distribution(f"{title}, {batch_label(line[0].cell)}", line, summary)
        for title, lines in shown_panels(summary)
        for line in lines
    ]
    return charts[:MAX_PANELS]


def _throughput(
    title: str, lines: Sequence[Sequence[TrainingSummary]], summary: RunSummary
) -> Chart:
    series = []
    for line in lines:
        counts = tuple(float(cell.cell.world_size) for cell in line)
        rates = tuple(_rate(cell) for cell in line)
        low, high = _interval(line)
        series.append(
            ChartSeries(
                batch_label(line[0].cell), counts, rates, low, high, launches=_launches(line)
            )
        )
        if len(line) > 1:
            ideal = tuple(rates[0] * count / counts[0] for count in counts)
            named = not any(one.reference for one in series)
            series.append(
                ChartSeries("ideal", counts, ideal, reference=True, legend=named, follows=True)
            )
    series += node_boundary(lines, max((value for one in series for value in one.y), default=0.0))
    return Chart(
        name=chart_name("throughput", title),
        title=title,
        summary=f"Throughput against the number of {device_noun(summary)} for {title}.",
        x_label=device_noun(summary),
        y_label="samples/s",
        series=tuple(series),
        x_ticks=_counts(lines),
    )


def _interval(line: Sequence[TrainingSummary]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """95 % intervals of throughput at each point; of no length where a cell has none."""
    measured = [cell.figures for cell in line if cell.figures is not None]
    intervals = [figures.rate_interval(figures.samples_per_second) for figures in measured]
    return whiskers([_rate(cell) for cell in line], intervals)


def _rate(cell: TrainingSummary) -> float:
    """Samples per second; 0 where they are not known."""
    if cell.figures is None:
        return 0.0
    return cell.figures.samples_per_second or 0.0


def efficiency_ends(
    efficiencies: Sequence[Efficiency],
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """95 % intervals of efficiencies at each point, in percent."""
    low, high = whiskers(
        [one.value for one in efficiencies], [one.interval for one in efficiencies]
    )
    return tuple(end * 100 for end in low), tuple(end * 100 for end in high)


def whiskers(
    values: Sequence[float], intervals: Sequence[Interval | None]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Ends of the intervals of a line's points, as :class:`ChartSeries` takes them: a point without
    one has both ends at its value, and a line without any has none."""
    if not any(intervals):
        return (), ()
    ends = [interval or (value, value) for value, interval in zip(values, intervals, strict=True)]
    return tuple(low for low, _ in ends), tuple(high for _, high in ends)


def _launches(line: Sequence[TrainingSummary]) -> tuple[tuple[float, ...], ...]:
    """Throughput of each launch of each cell; empty where all cells have one."""
    launches = tuple(cell.figures.launch_samples_per_second for cell in line if cell.figures)
    if any(len(values) > 1 for values in launches):
        return launches
    return ()


def _efficiency(
    title: str, lines: Sequence[Sequence[TrainingSummary]], summary: RunSummary
) -> Chart:
    series = []
    for line in lines:
        points = [(cell.cell.world_size, cell.efficiency) for cell in line if cell.efficiency]
        low, high = efficiency_ends([efficiency for _, efficiency in points])
        series.append(
            ChartSeries(
                batch_label(line[0].cell),
                tuple(float(count) for count, _ in points),
                tuple(efficiency.value * 100 for _, efficiency in points),
                low,
                high,
            )
        )
    counts = _counts(lines)
    series.append(ChartSeries("ideal", counts, tuple(100.0 for _ in counts), reference=True))
    series += node_boundary(lines, 100.0)
    return Chart(
        name=chart_name("efficiency", title),
        title=title,
        summary=f"Scaling efficiency against the number of {device_noun(summary)} for {title}.",
        x_label=device_noun(summary),
        y_label="efficiency, %",
        series=tuple(series),
        x_ticks=counts,
    )


def _distribution(title: str, line: Sequence[TrainingSummary], summary: RunSummary) -> Chart:
    """Cumulative over all steps of all launches, so that narrow and wide distributions compare and
    a tail is seen."""
    series = []
    for cell in line:
        if cell.figures is None:
            continue
        values = spread_out(cell.figures.steps.values, _MAX_POINTS)
        count = cell.cell.world_size
        series.append(
            ChartSeries(
                f"{count} {device_noun(summary, count)}",
                tuple(seconds * 1e3 for seconds in values),
                tuple((place + 0.5) / len(values) * 100 for place in range(len(values))),
            )
        )
    return Chart(
        name=chart_name("steps", title),
        title=title,
        summary=f"Cumulative distribution of the steps of all launches for {title}.",
        x_label="step time, ms",
        y_label="share of steps, %",
        series=tuple(series),
        markers=False,
    )


def node_boundary(lines: Sequence[Sequence[TrainingSummary]], height: float) -> list[ChartSeries]:
    """A vertical line between the counts on one node and those on several; none where all are on
    one side."""
    cells = [cell for line in lines for cell in line]
    inside = [cell.cell.world_size for cell in cells if nodes_of(cell) <= 1]
    across = [cell.cell.world_size for cell in cells if nodes_of(cell) > 1]
    if not inside or not across or max(inside) >= min(across):
        return []
    place = (max(inside) + min(across)) / 2
    return [ChartSeries("one node | several", (place, place), (0.0, height), reference=True)]


def _counts(lines: Sequence[Sequence[TrainingSummary]]) -> tuple[float, ...]:
    return tuple(sorted({float(cell.cell.world_size) for line in lines for cell in line}))
