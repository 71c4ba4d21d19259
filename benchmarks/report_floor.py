"""The least that a report of training cells could take; run by ``floors.py``::

    python benchmarks/report_floor.py RESULTS PAGE OUT CHARTS

In as many processes as there are cores: every record is read and validated, and of its ranks,
batches and steps a bare numpy loop computes throughput with its interval, quantiles, and how much
longer each rank takes than the median of the others. Then as many charts as the page has are
drawn by bare matplotlib, and as many bytes as the page has are written. It tells no cause, makes no
table, and checks nothing beyond the form of the records.
"""

from __future__ import annotations

import io
import math
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from scipy.special import stdtrit

from torchscale.schema.launch.record import LaunchRecord, payload
from torchscale.schema.launch.training import TrainingResult
from torchscale.util.gc import gc_paused

POINTS = 20
"""Points of each line of a bare chart, and LINES lines."""
LINES = 4


def figures_of(paths: Sequence[str]) -> list[tuple[float, ...]]:
    """Throughput, half width of its interval, quantiles of the step, slowest rank and its excess, of
    each record."""
    found = []
    with gc_paused():
        for path in paths:
            record = LaunchRecord.model_validate_json(Path(path).read_bytes())
            found.append(_figures(payload(record, TrainingResult)))
    return found


def _figures(result: TrainingResult) -> tuple[float, ...]:
    seconds = np.array([rank.batches.seconds for rank in result.ranks])
    steps = np.array(result.ranks[0].batches.steps)
    group = seconds.max(axis=0)
    means = group / steps
    quantile = stdtrit(len(means) - 1, 0.975)
    half = float(quantile * means.std(ddof=1) / math.sqrt(len(means)) / means.mean())
    samples = sum(rank.samples_per_step or 0 for rank in result.ranks)
    rate = float(samples * steps.sum() / group.sum())
    assert result.steps is not None
    assert result.signals is not None
    quantiles = np.quantile(result.steps.seconds.values, (0.5, 0.95, 0.99))
    compute = np.array(result.signals.compute)
    excess = compute.mean(axis=1) - np.median(compute, axis=0).mean()
    slowest = int(excess.argmax())
    return (rate, half, *quantiles.tolist(), float(slowest), float(excess[slowest]))


def draw(count: int) -> int:
    """So many charts, as SVG; returns the bytes of all."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - imported where it is measured

    size = 0
    places = np.arange(POINTS)
    for number in range(count):
        figure = Figure(figsize=(3.5, 2.1), dpi=72)
        axes = figure.add_subplot()
        for line in range(LINES):
            axes.plot(places, np.sin(places + line + number), label=f"line {line}")
        axes.set_title("title")
        axes.set_xlabel("x")
        axes.set_ylabel("y")
        axes.legend(loc="upper left")
        output = io.StringIO()
        figure.savefig(output, format="svg")
        size += len(output.getvalue())
    return size


def main(results: Path, page: Path, out: Path, charts: int) -> None:
    """Read, compute, draw and write."""
    paths = [str(path) for path in results.glob("cells/*/launch-*/record.json")]
    cores = os.cpu_count() or 1
    with ProcessPoolExecutor(cores) as pool:
        figures = [one for part in pool.map(figures_of, [paths[start::cores] for start in range(cores)])
                   for one in part]  # fmt: skip
        shares = [charts // cores + (number < charts % cores) for number in range(cores)]
        sum(pool.map(draw, shares))
    assert len(figures) == len(paths)
    out.write_bytes(page.read_bytes())


if __name__ == "__main__":
    results, page, out = map(Path, sys.argv[1:4])
    main(results, page, out, int(sys.argv[4]))
