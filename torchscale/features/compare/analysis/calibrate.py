"""Thresholds of a gate from A/A runs: how far may a run lie below its baseline when nothing
changed?

Pure; definitions in ``docs/method.md``. The score of a run is how many standard deviations it lies
below the mean of the others, in the figure where that is most: the mean of the logarithms of its
launches, of each cell and of all together. So the scores know how cells scatter together. A further
run exceeds the k-th largest of N scores with a chance of k ÷ (N + 1), however scores are distributed
(Vovk, Gammerman and Shafer 2005, chapter 2). Rarer alarms need a tail: ``TAIL_DEGREES``.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from torchscale.analysis.stats.series import student_t_quantile
from torchscale.analysis.stats.sessions import Groups, session_noise
from torchscale.config.choices import Metric
from torchscale.errors import UsageError
from torchscale.features.compare.analysis.disturbances import any_conditions
from torchscale.features.compare.analysis.headlines import decides
from torchscale.features.compare.analysis.matching import workload_key
from torchscale.features.compare.rate import AlarmRate
from torchscale.schema.run.calibration import (
    MOST,
    Calibration,
    CellScatter,
    OverallScatter,
    Scatter,
)
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import ResultSet
from torchscale.schema.state import State
from torchscale.util.words import plural

MIN_RUNS = 10
"""Fewest A/A runs: with fewer even one alarm in ten runs lies beyond all that was seen."""
TAIL_DEGREES = 6.0
"""Tail of scores beyond the largest that was seen, as of Student's t with so many degrees of
freedom. Its kurtosis is 6; of 50 runs on a shared machine that of levels and of launches was 2.6 to
5.7, where a normal distribution has 3 (docs/tested-on.md)."""
LEAST = 0.001
"""Smallest standard deviation and threshold: a figure that does not scatter, such as peak memory,
would alarm at its last digit."""
Key = tuple[str, MetricKey]
"""A cell, by its workload, and a figure of it."""
ByRun = dict[int, list[float]]
"""Number of a run → a value for each of its launches."""


class _Figure:
    """What is judged: a figure of a cell, or a mean over cells.

    Attributes:
        losses: Number of a run → how many standard deviations it is worse than the mean of the
            others, by the deviation of these.
    """

    def __init__(self, metric: Metric, groups: ByRun) -> None:
        sign = 1.0 if metric.higher_is_better else -1.0
        levels = {run: sign * _level(values) for run, values in groups.items()}
        self.losses = {
            run: _loss(level, [other for place, other in levels.items() if place != run])
            for run, level in levels.items()
        }


def _loss(level: float, others: Sequence[float]) -> float:
    deviation = max(LEAST, statistics.stdev(others)) * math.sqrt(1 + 1 / len(others))
    return (statistics.fmean(others) - level) / deviation


def calibrate(runs: Sequence[ResultSet], metrics: Sequence[Metric], rate: AlarmRate) -> Calibration:
    """Thresholds for every figure that decides of every cell.

    Args:
        runs: A/A runs.
        metrics: What decides; empty for the headline of each cell.
        rate: Of false alarms, in all cells together.

    Raises:
        UsageError: no cell was measured in enough runs.
    """
    values = _values(runs, metrics)
    kept = {key: groups for key, groups in values.items() if len(groups) >= MIN_RUNS}
    if not kept:
        raise _too_few(len(runs), max(map(len, values.values()), default=0))
    means = _means(kept)
    figures = [
        *(_Figure(key[1].metric, groups) for key, groups in kept.items()),
        *(_Figure(metric, groups) for metric, groups in means.items()),
    ]
    deviations = _quantile(_scores(figures, len(runs)), rate.chance)
    ids = {workload_key(cell.cell): cell.cell.id for run in reversed(runs) for cell in run.cells}
    begun = sorted(run.created_at for run in runs if run.created_at)
    return Calibration(
        runs=len(runs),
        first_at=begun[0] if begun else "",
        last_at=begun[-1] if begun else "",
        hosts=_hosts(runs),
        conditions=dict(Counter(flag for run in runs for flag in _conditions(run))),
        false_alarms=rate.text,
        runs_per_day=rate.runs_per_day,
        chance=rate.chance,
        figures=len(figures),
        cells=tuple(
            CellScatter(cell=ids[cell], figure=key, **vars(_scatter(groups, deviations)))
            for (cell, key), groups in kept.items()
        ),
        overall=tuple(
            OverallScatter(metric=metric, **vars(_scatter(groups, deviations)))
            for metric, groups in means.items()
        ),
    )


def _too_few(runs: int, most: int) -> UsageError:
    which = plural(runs, "A/A run")
    if most < runs:
        which += f", of which {most} measured the same cell"
    return UsageError(
        f"--calibrate: {which}; expected {MIN_RUNS} or more: how far runs scatter is not known from "
        "fewer",
        hint=f"torchscale compare RUN --calibrate {2 * MIN_RUNS} --save NAME measures them",
    )


def _values(runs: Sequence[ResultSet], metrics: Sequence[Metric]) -> dict[Key, ByRun]:
    """Values of the launches of each figure."""
    values: dict[Key, ByRun] = {}
    for number, run in enumerate(runs):
        for cell in run.cells:
            if cell.state is not State.OK or not cell.launches:
                continue
            for key in cell.launches[0].values:
                if decides(cell, key.metric, metrics):
                    found = [one.values[key] for one in cell.launches if key in one.values]
                    values.setdefault((workload_key(cell.cell), key), {})[number] = found
    return values


def _means(figures: Mapping[Key, ByRun]) -> dict[Metric, ByRun]:
    """The geometric mean over the figures of a metric of their first, second, … launches, of each
    run that has all of them; of metrics with several."""
    by_metric: dict[Metric, list[ByRun]] = {}
    for (_, key), groups in figures.items():
        by_metric.setdefault(key.metric, []).append(groups)
    means = {metric: _mean(several) for metric, several in by_metric.items() if len(several) > 1}
    return {metric: groups for metric, groups in means.items() if len(groups) >= MIN_RUNS}


def _mean(figures: Sequence[ByRun]) -> ByRun:
    return {
        run: [
            statistics.geometric_mean(values)
            for values in zip(*(figure[run] for figure in figures), strict=False)
        ]
        for run in figures[0]
        if all(run in figure for figure in figures)
    }


def _scores(figures: Sequence[_Figure], runs: int) -> list[float]:
    """The score of each run, the largest first."""
    scores = [
        max((figure.losses[run] for figure in figures if run in figure.losses), default=-math.inf)
        for run in range(runs)
    ]
    return sorted((score for score in scores if score > -math.inf), reverse=True)


def _quantile(scores: Sequence[float], chance: float) -> float:
    """The score that a further run exceeds with that chance."""
    place = max(1, int(chance * (len(scores) + 1)))
    score = max(0.0, scores[place - 1])
    seen = place / (len(scores) + 1)
    if chance >= seen:
        return score
    rare, least = (student_t_quantile(1 - one, TAIL_DEGREES) for one in (chance, seen))
    return score * rare / least


def _scatter(groups: ByRun, deviations: float) -> Scatter:
    """The scatter of a figure, and the loss of so many standard deviations."""
    sides = list(groups.values())
    levels = [_level(values) for values in sides]
    noise, within = session_noise([sides]), _within(sides)
    between = statistics.stdev(levels)
    log = max(LEAST, between) * math.sqrt(1 + 1 / len(levels)) * deviations
    if noise is not None and within is not None:
        between = noise.spread
    return Scatter(
        runs=len(levels),
        launches=min(map(len, sides)),
        between=between,
        within=within,
        threshold=min(MOST, max(LEAST, -math.expm1(-log))),
    )


def _level(values: Sequence[float]) -> float:
    return statistics.fmean(map(math.log, values))


def _within(groups: Groups) -> float | None:
    """Standard deviation of a launch within its run; ``None`` where runs have one launch."""
    degrees = sum(len(group) - 1 for group in groups)
    if not degrees:
        return None
    squares = math.fsum(
        statistics.variance(map(math.log, group)) * (len(group) - 1)
        for group in groups
        if len(group) > 1
    )
    return math.sqrt(squares / degrees)


def _conditions(run: ResultSet) -> set[str]:
    return {flag for cell in run.cells for flag in any_conditions(cell)}


def _hosts(runs: Sequence[ResultSet]) -> tuple[str, ...]:
    names = (session.environment.hostname for run in runs for session in run.sessions)
    return tuple(dict.fromkeys(names))
