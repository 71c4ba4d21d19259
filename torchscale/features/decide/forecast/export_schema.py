"""The JSON of ``predict --json``."""

from __future__ import annotations

from typing import Literal

from torchscale.schema.exports.base import RESULTS_SCHEMA_VERSION, Export, PublishedDocument


class PredictionExport(Export):
    """One count of GPUs of one series. Nothing here was measured unless ``basis`` says so."""

    series: str
    """What was measured; empty where the source holds one unnamed series."""
    gpus: int
    nodes: int
    throughput: float
    """Per second, of all GPUs, in ``unit``."""
    low: float
    """The 90 % interval of what a launch there would measure."""
    high: float
    efficiency: float
    """Throughput per GPU over that of the smallest measured count."""
    basis: Literal["measured", "interpolated", "extrapolated"]
    law: str
    unit: str
    seconds_per_million: float
    """Time for a million samples or tokens."""
    cost_per_million: float | None
    """Price of a million samples or tokens; null without a price."""
    step_seconds: float | None
    """Null where the work of a step is not known."""


class MeasuredPointExport(Export):
    """A count that the predictions rest on."""

    series: str
    gpus: int
    nodes: int
    throughput: float
    """Median over launches."""
    launches: int


class ExposureExport(Export):
    """The smallest measured count from which on communication is exposed: by the measured gradient
    sync, else where a sample costs more GPU time than noise explains."""

    series: str
    gpus: int | None
    """Null where no measured count shows it."""
    latency_share: float | None
    """Share of latency, which grows with the number of nodes, in the time of the gradients'
    all-reduces at the largest measured count of nodes; null where it was not measured."""


class PredictionsExport(Export):
    """Predicted throughput, each with a 90 % interval."""

    schema_version: Literal[1] = RESULTS_SCHEMA_VERSION
    predictions: tuple[PredictionExport, ...]
    refused: str | None
    """Why some or all counts have no prediction, and what to measure; null where all have one."""
    measured: tuple[MeasuredPointExport, ...]
    exposure: tuple[ExposureExport, ...]
    price: float | None
    """Price of a GPU and hour."""
    notes: tuple[str, ...]
    """What was assumed."""


DOCUMENT = PublishedDocument(
    PredictionsExport,
    RESULTS_SCHEMA_VERSION,
    "torchscale predictions",
    "Predicted throughput with 90 % intervals: `torchscale predict --json`.",
)
