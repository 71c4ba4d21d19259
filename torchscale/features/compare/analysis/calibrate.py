"""Thresholds of a gate from A/A runs: how far may a run lie below its baseline when nothing
changed?

Pure; definitions in ``docs/method.md``. The statistic is the one that the gate judges: the mean of
the logarithms of a run's launches against that of all A/A runs.
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
from torchscale.features.compare.analysis.disturbances import flagged_conditions
from torchscale.features.compare.analysis.matching import workload_key
from torchscale.features.compare.analysis.pair import decides
from torchscale.features.compare.rate import Rate
from torchscale.schema.run.calibration import Calibration, CellScatter, OverallScatter, Scatter
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import ResultSet
from torchscale.schema.state import State
from torchscale.util.words import plural

MIN_RUNS = 10
"""Fewest A/A runs. From ten runs a standard deviation is known to a quarter; from five only to a
third, and the threshold for one alarm a year would be three times that of many runs."""
TAIL_DEGREES = 5.0
"""Tails of the scatter between runs, as of Student's t with so many degrees of freedom. Machines
that others use have heavier tails than a normal distribution (docs/tested-on.md), and a rate of one
alarm a year lies far beyond what tens of runs can show."""
LEAST = 0.001
"""Smallest threshold: a figure that does not scatter, such as peak memory, would alarm at its last
digit."""
Key = tuple[str, MetricKey]
"""A cell, by its workload, and a figure of it."""


def calibrate(runs: Sequence[ResultSet], metrics: Sequence[Metric], rate: Rate) -> Calibration:
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
    by_metric: dict[Metric, list[Key]] = {}
    for key in kept:
        by_metric.setdefault(key[1].metric, []).append(key)
    means = {
        metric: groups
        for metric, keys in by_metric.items()
        if len(keys) > 1 and len(groups := _means([kept[key] for key in keys])) >= MIN_RUNS
    }
    tests = len(kept) + len(means)
    chance = rate.chance / tests
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
        tests=tests,
        cells=tuple(
            CellScatter(cell=ids[cell], key=key, **vars(_scatter(list(groups.values()), chance)))
            for (cell, key), groups in kept.items()
        ),
        overall=tuple(
            OverallScatter(metric=metric, **vars(_scatter(groups, chance)))
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


def _values(
    runs: Sequence[ResultSet], metrics: Sequence[Metric]
) -> dict[Key, dict[int, list[float]]]:
    """Values of the launches of each figure, by the number of the run."""
    values: dict[Key, dict[int, list[float]]] = {}
    for number, run in enumerate(runs):
        for cell in run.cells:
            if cell.state is not State.OK or not cell.launches:
                continue
            for key in cell.launches[0].values:
                if decides(cell, key.metric, metrics):
                    found = [one.values[key] for one in cell.launches if key in one.values]
                    values.setdefault((workload_key(cell.cell), key), {})[number] = found
    return values


def _means(figures: Sequence[Mapping[int, Sequence[float]]]) -> list[list[float]]:
    """The geometric mean over figures of their first, second, … launches, of each run that has all
    of them."""
    runs = [run for run in figures[0] if all(run in figure for figure in figures)]
    return [
        [
            statistics.geometric_mean(values)
            for values in zip(*(figure[run] for figure in figures), strict=False)
        ]
        for run in runs
    ]


def _scatter(groups: Groups, chance: float) -> Scatter:
    """The scatter of a figure whose launches are given by run, and the loss that a further run
    exceeds with that chance."""
    levels = [statistics.fmean(map(math.log, group)) for group in groups]
    launches, runs = min(map(len, groups)), len(groups)
    noise, within = session_noise([groups]), _within(groups)
    between = statistics.stdev(levels)
    if noise is not None and within is not None:
        between = noise.spread
    scatter = Scatter(runs=runs, launches=launches, between=between, within=within, threshold=LEAST)
    log = scatter.spread(launches) * math.sqrt(1 + 1 / runs) * _deviations(chance, runs)
    return scatter.model_copy(update={"threshold": max(LEAST, -math.expm1(-log))})


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


def _deviations(chance: float, runs: int) -> float:
    """How many standard deviations a run exceeds on one side with that chance: of Student's t with
    ``TAIL_DEGREES``, times what it takes that the deviation is estimated from few runs."""
    tail = math.sqrt(1 - 2 / TAIL_DEGREES) * student_t_quantile(1 - chance, TAIL_DEGREES)
    few = student_t_quantile(1 - chance, runs - 1) / statistics.NormalDist().inv_cdf(1 - chance)
    return tail * few


def _conditions(run: ResultSet) -> set[str]:
    return {flag for cell in run.cells for flag in flagged_conditions(cell)}


def _hosts(runs: Sequence[ResultSet]) -> tuple[str, ...]:
    names = (session.environment.hostname for run in runs for session in run.sessions)
    return tuple(dict.fromkeys(names))
