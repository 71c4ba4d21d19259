"""Predictions from a run or a table: throughput, efficiency, time and cost at counts of GPUs that
were not measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torchscale.analysis.summary.machine import CollectivesSummary
from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import Figures, TrainingSummary
from torchscale.catalog.links import LINKS
from torchscale.config.choices import ReportFormat
from torchscale.errors import ExitCode, UsageError
from torchscale.features.decide.forecast.export import prediction_json
from torchscale.features.decide.forecast.latency import gradient_latency
from torchscale.features.decide.forecast.measured_table import MAX_GPUS, read_table
from torchscale.features.decide.forecast.page import PredictionReport, prediction_document
from torchscale.features.decide.forecast.predict import predict_series
from torchscale.features.decide.forecast.series import (
    Latency,
    Measured,
    MeasuredSeries,
    make_series,
)
from torchscale.observer import SILENT, Observer
from torchscale.read.folders import chosen_run
from torchscale.read.rendering import render_document
from torchscale.report.text.labels import batch_label, panel_title
from torchscale.report.text.run_labels import on_cuda
from torchscale.results.reader import read_summary
from torchscale.schema.exports.machine import LatencyFit

_MAX_COUNTS = 100
"""Requested counts: more than a table or a chart can show."""
_RING_BACKEND = "gloo"
"""Its all-reduce is a ring whatever the size. NCCL uses trees between nodes where latency
counts."""


@dataclass(frozen=True)
class PredictOptions:
    """What is asked for.

    Attributes:
        counts: Counts of GPUs.
        gpus_per_node: GPUs of a full node; ``None`` for as many as the fullest measured node has.
        link: Catalogue name of the network between the nodes asked for; ``None`` for the measured
            one.
        price: Price of a GPU and hour.
    """

    counts: tuple[int, ...]
    gpus_per_node: int | None = None
    link: str | None = None
    price: float | None = None


def predict_run(
    source: Path | None, options: PredictOptions, observer: Observer = SILENT
) -> PredictionReport:
    """Predict every series of training cells of a run folder; ``None`` is the newest run in
    ``./results``.

    Raises:
        UsageError: the options are wrong, or the run measured no training.
        StoreError: the folder cannot be read.
    """
    _check(options)
    directory = chosen_run(source, observer)
    return predict_summaries({str(directory): read_summary(directory)}, options)


def predict_summaries(runs: Mapping[str, RunSummary], options: PredictOptions) -> PredictionReport:
    """Predict every series of runs that were read, by name; of several runs, the names of series
    begin with that of their run.

    Raises:
        UsageError: the options are wrong, or no run measured training.
    """
    _check(options)
    of_runs = {name: run_series(summary, options.gpus_per_node) for name, summary in runs.items()}
    series = [
        replace(one, name=f"{name}: {one.name}") if len(runs) > 1 else one
        for name, members in of_runs.items()
        for one in members
    ]
    source = ", ".join(runs)
    if not series:
        raise UsageError(
            f"{source}: no training cell has figures", hint="measure some: torchscale benchmark"
        )
    return _report(source, series, options, ())


def predict_table(table: Path, options: PredictOptions) -> PredictionReport:
    """Predict every series of a CSV file (:func:`~torchscale.features.decide.forecast.measured_table.read_table`).

    Raises:
        UsageError: the options or the table are wrong.
    """
    _check(options)
    series, notes = read_table(table, options.gpus_per_node)
    return _report(str(table), series, options, notes)


def run_series(summary: RunSummary, gpus_per_node: int | None = None) -> list[MeasuredSeries]:
    """The series of a run's training cells with figures.

    Raises:
        UsageError: a measured node had more GPUs than ``gpus_per_node``.
    """
    members: dict[str, list[TrainingSummary]] = {}
    for cell in summary.measured:
        if cell.figures is None or cell.figures.samples_per_second is None:
            continue  # a script whose samples are not known
        members.setdefault(cell.cell.series, []).append(cell)
    found = []
    for cells in members.values():
        points = [_measured(cell, gpus_per_node, summary.collectives) for cell in cells]
        crowded = next(
            (
                point
                for point in points
                if gpus_per_node is not None and point.local > gpus_per_node
            ),
            None,
        )
        if crowded is not None:
            raise UsageError(
                f"--gpus-per-node {gpus_per_node}: {crowded.gpus} GPUs were measured on "
                f"{crowded.nodes} nodes; raise it"
            )
        over_nodes = any(point.nodes > 1 for point in points)
        link = None
        if over_nodes:
            link = summary.experiment.config.hardware.link
        first = cells[0].cell
        name = f"{panel_title(first)}, {batch_label(first)}"
        environment = summary.experiment.environment
        if over_nodes:
            here = 1
        elif on_cuda(summary):
            here = len(environment.devices)
        else:
            here = environment.cores
        declared = gpus_per_node or summary.experiment.config.launch.devices_per_node
        full = declared or max(math.ceil(max(point.local for point in points)), here)
        found.append(make_series(name, points, gpus_per_node=full, link=link))
    return found


def _measured(
    cell: TrainingSummary, gpus_per_node: int | None, collectives: Sequence[CollectivesSummary]
) -> Measured:
    figures = cell.figures
    if figures is None or figures.samples_per_second is None:
        raise ValueError(f"{cell.cell.id} has no throughput")
    gpus, parts = cell.cell.world_size, figures.parts
    nodes = cell.facts.node_count
    if gpus_per_node is not None:
        nodes = max(nodes, -(-gpus // gpus_per_node))
    return Measured(
        gpus,
        nodes,
        figures.launch_samples_per_second,
        work=float(cell.cell.global_batch_size),
        straggler_share=None if parts is None or gpus == 1 else parts.straggler_wait / parts.step,
        exposed_share=None if parts is None else parts.transfer / parts.step,
        latency=_latency(figures, _all_reduce(collectives, gpus, cell.facts.node_count)),
    )


def _latency(figures: Figures, all_reduce: LatencyFit | None) -> Latency | None:
    if figures.link is None or figures.buckets is None:
        return None
    one = None
    if all_reduce is not None:
        one = all_reduce.latency_seconds
    return gradient_latency(
        figures.link, figures.buckets, one, of_ring=figures.backend == _RING_BACKEND
    )


def _all_reduce(
    collectives: Sequence[CollectivesSummary], gpus: int, nodes: int
) -> LatencyFit | None:
    """Latency fit of the all-reduce of a sweep over as many GPUs and nodes, as the backend does it
    without being forced. Of several element types the first counts: latency hardly depends on
    it."""
    for sweep in collectives:
        cell, count = sweep.cell, sweep.facts.node_count
        as_usual = cell.algorithm is None and cell.protocol is None and not cell.logs_choices
        if sweep.figures is not None and as_usual and (cell.world_size, count) == (gpus, nodes):
            return next(
                (curve.fit for curve in sweep.figures.curves if curve.operation == "all_reduce"),
                None,
            )
    return None


def render_predictions(report: PredictionReport, kind: ReportFormat) -> bytes:
    """The content of a file.

    Raises:
        ValueError: ``kind`` is CSV.
        MachineError: a system library that PDF needs is missing.
    """
    if kind is ReportFormat.JSON:
        return (predictions_json(report) + "\n").encode()
    return render_document(kind, prediction_document(report))


def predictions_json(report: PredictionReport) -> str:
    """The JSON of ``predict --json``."""
    return prediction_json(report)


def exit_code(report: PredictionReport) -> ExitCode:
    """3 where anything that was asked for has no prediction."""
    if report.refused is None:
        return ExitCode.OK
    return ExitCode.UNABLE


def _report(
    source: str, series: Sequence[MeasuredSeries], options: PredictOptions, notes: Sequence[str]
) -> PredictionReport:
    outcomes = tuple(
        predict_series(one, options.counts, price=options.price, link=options.link)
        for one in series
    )
    unknown = options.link is not None and any(one.link is None for one in series)
    assumed = []
    if unknown:
        assumed.append(f"the measured network is taken to be {options.link}")
    return PredictionReport(source, outcomes, options.price, (*notes, *assumed))


def _check(options: PredictOptions) -> None:
    if not options.counts:
        raise UsageError("no count of GPUs to predict", hint="--gpus 16,32,64")
    if len(options.counts) > _MAX_COUNTS:
        raise UsageError(f"--gpus: {len(options.counts)} counts; expected at most {_MAX_COUNTS}")
    for option, values in (
        ("--gpus", options.counts),
        ("--gpus-per-node", (options.gpus_per_node,)),
    ):
        for value in values:
            if value is not None and not 1 <= value <= MAX_GPUS:
                raise UsageError(
                    f"{option} {value}: expected a whole number from 1 to {MAX_GPUS:,}"
                )
    if options.link is not None and options.link not in LINKS:
        raise UsageError(f"--link {options.link}: unknown link; expected one of {', '.join(LINKS)}")
    if options.price is not None and not 0 < options.price < math.inf:
        raise UsageError(
            f"--cost {options.price:g}: expected a price above 0 of a GPU and hour, such as 2.50"
        )
