"""JSON Schemas of everything that other programs read, for validation and for code generators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from torchscale.config.choices import ResultSchema
from torchscale.features.bisect.export_schema import BisectionExport
from torchscale.features.compare.export_schema import ComparisonExport
from torchscale.features.compare.history.export_schema import HistoryExport
from torchscale.features.decide.forecast.export_schema import PredictionsExport
from torchscale.features.decide.tune.export_schema import TuningExport
from torchscale.schema.base import SCHEMA_VERSION
from torchscale.schema.exports.base import RESULTS_SCHEMA_VERSION
from torchscale.schema.exports.machine import AnyMachineExport
from torchscale.schema.exports.report import ReportExport
from torchscale.schema.exports.search import SearchExport
from torchscale.schema.launch.hang import Autopsy
from torchscale.schema.node.check import Validation
from torchscale.schema.node.fleet import FleetValidation
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.schema.run.result_set import ResultSet

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True)
class _Document:
    """A published document: its type, its version, what it is."""

    adapter: TypeAdapter[Any]
    version: int
    title: str
    description: str


_DOCUMENTS = {
    ResultSchema.REPORT: _Document(
        TypeAdapter(ReportExport),
        RESULTS_SCHEMA_VERSION,
        "torchscale report",
        "A run with the figures of every cell: `torchscale report --format json`, `torchscale "
        "benchmark --json`.",
    ),
    ResultSchema.COMPARE: _Document(
        TypeAdapter(ComparisonExport),
        RESULTS_SCHEMA_VERSION,
        "torchscale comparison",
        "Result sets against a reference: `torchscale compare --format json`.",
    ),
    ResultSchema.MACHINE: _Document(
        TypeAdapter(tuple[AnyMachineExport, ...]),
        RESULTS_SCHEMA_VERSION,
        "torchscale machine measurements",
        "Collectives, peak rates or memory, one entry a cell: `torchscale measure collectives "
        "--json`, `measure hardware --json`, `measure memory --json`.",
    ),
    ResultSchema.MAX_BATCH: _Document(
        TypeAdapter(SearchExport),
        RESULTS_SCHEMA_VERSION,
        "torchscale batch size search",
        "The largest batch size that fits: `torchscale measure memory --find-max-batch --json`.",
    ),
    ResultSchema.PREDICT: _Document(
        TypeAdapter(PredictionsExport),
        RESULTS_SCHEMA_VERSION,
        "torchscale predictions",
        "Predicted throughput with 90 % intervals: `torchscale predict --json`.",
    ),
    ResultSchema.HISTORY: _Document(
        TypeAdapter(HistoryExport),
        RESULTS_SCHEMA_VERSION,
        "torchscale history",
        "Results over time with their change points: `torchscale history --json`.",
    ),
    ResultSchema.TUNE: _Document(
        TypeAdapter(TuningExport),
        RESULTS_SCHEMA_VERSION,
        "torchscale tuning",
        "The fastest setting of a config on this machine, and everything that was tried: "
        "`torchscale tune --json`.",
    ),
    ResultSchema.BISECT: _Document(
        TypeAdapter(BisectionExport),
        RESULTS_SCHEMA_VERSION,
        "torchscale bisection",
        "Which change made a command slower, and the evidence: `torchscale bisect --json`.",
    ),
    ResultSchema.PROFILE: _Document(
        TypeAdapter(ProfileAnalysis),
        SCHEMA_VERSION,
        "torchscale profile",
        "A recording analyzed: `torchscale profile --json`, `torchscale profile analyze --json`, "
        "`analysis.json`.",
    ),
    ResultSchema.VALIDATE: _Document(
        TypeAdapter(Validation),
        SCHEMA_VERSION,
        "torchscale validation",
        "The checks of a node: `torchscale validate --json`.",
    ),
    ResultSchema.FLEET: _Document(
        TypeAdapter(FleetValidation),
        SCHEMA_VERSION,
        "torchscale validation of several nodes",
        "The checks of all nodes, and what is slow: `torchscale validate --nnodes N --json`.",
    ),
    ResultSchema.AUTOPSY: _Document(
        TypeAdapter(Autopsy),
        SCHEMA_VERSION,
        "torchscale autopsy",
        "Why a job made no progress: `torchscale autopsy --json`, `autopsy` in the cells of a "
        "report.",
    ),
    ResultSchema.BASELINE: _Document(
        TypeAdapter(ResultSet),
        SCHEMA_VERSION,
        "torchscale baseline",
        "One side of a comparison as a file: `torchscale compare --save`.",
    ),
}


def published_schema(name: ResultSchema) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a document; its ``$id`` ends in the version of the document.

    Keys beyond those described are allowed: a later torchscale may add some within a version.
    """
    document = _DOCUMENTS[name]
    schema = _open(document.adapter.json_schema(mode="serialization"))
    return {
        "$schema": _DIALECT,
        "$id": f"torchscale/results/{name.value}-{document.version}",
        **schema,
        "title": document.title,
        "description": document.description,
    }


def _open(schema: Any) -> Any:  # noqa: ANN401 - any part of a JSON Schema
    """``schema`` without the refusal of unknown keys that our own strict models put into it."""
    if isinstance(schema, list):
        return [_open(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _open(value)
        for key, value in schema.items()
        if (key, value) != ("additionalProperties", False)
    }
