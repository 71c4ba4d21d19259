"""How often a gate that was calibrated from A/A runs raises a false alarm, and which slowdowns it
finds.

::

    PYTHONPATH=. python benchmarks/calibration.py results/aa/* [--metric throughput] [--figures FILE]

Every result is judged by the code that the command runs. First simulated: A/A runs and gates are
drawn from measured runs. A drawn run has the level of one run, of all its cells together, and the
deviations of launches of others. Then as measured: some runs calibrate, the others are gates; by
turns, so that both have the same hours, and in the order in which they were measured, so that what
changes with time is seen. ``--figures`` keeps the figures that all of this is drawn from.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from torchscale.config.choices import FailOn, Metric
from torchscale.features.compare.analysis.calibrate import calibrate
from torchscale.features.compare.analysis.compare import compare
from torchscale.features.compare.gate import gate
from torchscale.features.compare.inputs import load_source
from torchscale.features.compare.merged import calibrated_baseline
from torchscale.features.compare.rate import AlarmRate
from torchscale.features.compare.sections.document import ComparisonReport
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import ResultSet

SLOWDOWNS = (0.0, 0.05, 0.10, 0.20, 0.30, 0.50)
RATES = ("1/5", "1/20", "1/50", "1/year")


def rate_of(text: str) -> AlarmRate:
    """As the command reads it, of ten runs a day."""
    alarms, _, period = text.partition("/")
    return AlarmRate(text, 10.0, int(alarms) / (3650 if period == "year" else int(period)))


@dataclass(frozen=True)
class Measured:
    """A/A runs and one figure of their launches.

    Attributes:
        runs: The runs.
        logs: Logarithms of the figure: a row for each run, of a row for each cell, of launches.
    """

    runs: Sequence[ResultSet]
    key: MetricKey
    logs: np.ndarray

    @classmethod
    def read(cls, folders: Sequence[Path], metric: Metric) -> Measured:
        """Runs in which every cell has as many launches as in the first."""
        key = MetricKey(metric=metric)
        found = [load_source(str(folder)) for folder in folders]
        shape = [len(cell.launches) for cell in found[0].cells]
        runs = [one for one in found if [len(cell.launches) for cell in one.cells] == shape]
        logs = [
            [[math.log(launch.values[key]) for launch in cell.launches] for cell in run.cells]
            for run in runs
        ]
        return cls(runs, key, np.array(logs))

    def drawn(self, generator: np.random.Generator, slower: float = 0.0) -> ResultSet:
        """A run that was not measured, from the levels of one that was and deviations of launches
        of others; ``slower`` by a share."""
        levels = self.logs.mean(axis=2)
        launches = self.logs.shape[2]
        # deviations of a few launches from their own mean are too small by this
        deviations = (self.logs - levels[:, :, None]) * math.sqrt(launches / (launches - 1))
        noise = deviations.std() ** 2 / launches
        spread = levels.var()
        shrink = math.sqrt(max(0.0, 1 - noise / spread))  # of levels, which hold noise of launches
        place = int(generator.integers(len(self.runs)))
        level = levels.mean(axis=0) + shrink * (levels[place] - levels.mean(axis=0))
        shift = math.log1p(-slower) * (1 if self.key.metric.higher_is_better else -1)
        others = generator.integers(len(self.runs), size=launches)
        pieces = generator.integers(launches, size=launches)
        values = np.exp(level[:, None] + deviations[others, :, pieces].T + shift)
        return self._with(self.runs[place], values)

    def slower(self, place: int, by: float) -> ResultSet:
        """A measured run whose figures are worse by a share."""
        shift = math.log1p(-by) * (1 if self.key.metric.higher_is_better else -1)
        return self._with(self.runs[place], np.exp(self.logs[place] + shift))

    def _with(self, run: ResultSet, values: np.ndarray) -> ResultSet:
        cells = []
        for cell, of_cell in zip(run.cells, values, strict=True):
            launches = tuple(
                launch.model_copy(update={"values": {self.key: float(value)}})
                for launch, value in zip(cell.launches, of_cell, strict=True)
            )
            cells.append(cell.model_copy(update={"launches": launches}))
        return run.model_copy(update={"cells": tuple(cells)})


def is_alarm(baseline: ResultSet, run: ResultSet, metric: Metric) -> bool:
    """Whether the gate fails."""
    comparison = ComparisonReport((compare(baseline, run),), (), ("before", "after"), (metric,))
    return bool(gate(comparison, FailOn.REGRESSION).exit_code)


def simulated(measured: Measured, rate: AlarmRate, runs: int, gates: int, sets: int) -> list[float]:
    """Share of gates with an alarm at each of :data:`SLOWDOWNS`: ``gates`` for each of ``sets``
    calibrations from ``runs`` runs."""
    generator = np.random.default_rng(runs)
    metric = measured.key.metric
    alarms = dict.fromkeys(SLOWDOWNS, 0)
    for _ in range(sets):
        drawn = [measured.drawn(generator) for _ in range(runs)]
        baseline = calibrated_baseline(drawn, calibrate(drawn, (metric,), rate))
        for slower in SLOWDOWNS:
            alarms[slower] += sum(
                is_alarm(baseline, measured.drawn(generator, slower), metric) for _ in range(gates)
            )
    return [count / (gates * sets) for count in alarms.values()]


def held_out(measured: Measured, rate: AlarmRate, by: str, gates: int) -> Iterator[str]:
    """A line on calibration from some runs, with the others as gates at each of
    :data:`SLOWDOWNS`."""
    count, metric = len(measured.runs), measured.key.metric
    places = list(range(count - gates, count))
    if by == "turns":
        places = list(range(1, count, 2))[:gates]
    calibrating = [measured.slower(place, 0.0) for place in range(count) if place not in places]
    calibration = calibrate(calibrating, (metric,), rate)
    baseline = calibrated_baseline(calibrating, calibration)
    found = [
        sum(is_alarm(baseline, measured.slower(place, slower), metric) for place in places)
        for slower in SLOWDOWNS
    ]
    thresholds = ", ".join(f"{one.threshold:.1%}" for one in calibration.cells)
    yield (
        f"{rate.text} | {by} | {len(calibrating)} | {thresholds} | "
        + " | ".join(f"{alarms} of {len(places)}" for alarms in found)
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+", help="A/A runs")
    parser.add_argument("--metric", type=Metric, default=Metric.THROUGHPUT)
    parser.add_argument("--gates", type=int, default=10, help="simulated for each calibration")
    parser.add_argument("--sets", type=int, default=40, help="simulated calibrations")
    parser.add_argument("--held-out", type=int, default=20, help="measured runs that are gates")
    parser.add_argument("--figures", type=Path, help="where to write the figures of launches")
    options = parser.parse_args()
    measured = Measured.read(options.folders, options.metric)
    if options.figures is not None:
        options.figures.write_text(json.dumps(np.exp(measured.logs).round(3).tolist()))
    levels = measured.logs.mean(axis=2)
    spreads = ", ".join(f"{statistics.stdev(column):.1%}" for column in levels.T.tolist())
    print(f"{len(measured.runs)} runs x {measured.logs.shape[2]} launches; levels of runs of each "
          f"cell spread by {spreads}")  # fmt: skip
    heads = " | ".join(f"{slower:.0%} slower" if slower else "equal" for slower in SLOWDOWNS)
    print(f"\nsimulated: rate | A/A runs | {heads}")
    for text in RATES:
        for runs in (10, 20, 40):
            shares = simulated(measured, rate_of(text), runs, options.gates, options.sets)
            print(f"{text} | {runs} | " + " | ".join(f"{share:.2%}" for share in shares))
    print(f"\nmeasured: rate | held out | A/A runs | thresholds of cells | {heads}")
    for text in RATES:
        for by in ("turns", "the last"):
            for line in held_out(measured, rate_of(text), by, options.held_out):
                print(line)


if __name__ == "__main__":
    main()
