"""JSON Schemas of everything that other programs read, for validation and for code generators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from torchscale.config.choices import ResultSchema
from torchscale.door import Slot
from torchscale.schema.base import SCHEMA_VERSION
from torchscale.schema.exports.base import RESULTS_SCHEMA_VERSION, PublishedDocument
from torchscale.schema.exports.machine import AnyMachineExport
from torchscale.schema.exports.report import ReportExport
from torchscale.schema.exports.search import SearchExport
from torchscale.schema.launch.hang import Autopsy
from torchscale.schema.node.check import Validation
from torchscale.schema.node.fleet import FleetValidation
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.schema.run.result_set import ResultSet

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


_DOCUMENTS: Mapping[ResultSchema, PublishedDocument] = {
    ResultSchema.REPORT: PublishedDocument(
        TypeAdapter(ReportExport),
        RESULTS_SCHEMA_VERSION,
        "torchscale report",
        "A run with the figures of every cell: `torchscale report --format json`, `torchscale "
        "benchmark --json`.",
    ),
    ResultSchema.MACHINE: PublishedDocument(
        TypeAdapter(tuple[AnyMachineExport, ...]),
        RESULTS_SCHEMA_VERSION,
        "torchscale machine measurements",
        "Collectives, peak rates or memory, one entry a cell: `torchscale measure collectives "
        "--json`, `measure hardware --json`, `measure memory --json`.",
    ),
    ResultSchema.MAX_BATCH: PublishedDocument(
        TypeAdapter(SearchExport),
        RESULTS_SCHEMA_VERSION,
        "torchscale batch size search",
        "The largest batch size that fits: `torchscale measure memory --find-max-batch --json`.",
    ),
    ResultSchema.PROFILE: PublishedDocument(
        TypeAdapter(ProfileAnalysis),
        SCHEMA_VERSION,
        "torchscale profile",
        "A recording analyzed: `torchscale profile --json`, `torchscale profile analyze --json`, "
        "`analysis.json`.",
    ),
    ResultSchema.VALIDATE: PublishedDocument(
        TypeAdapter(Validation),
        SCHEMA_VERSION,
        "torchscale validation",
        "The checks of a node: `torchscale validate --json`.",
    ),
    ResultSchema.FLEET: PublishedDocument(
        TypeAdapter(FleetValidation),
        SCHEMA_VERSION,
        "torchscale validation of several nodes",
        "The checks of all nodes, and what is slow: `torchscale validate --nnodes N --json`.",
    ),
    ResultSchema.AUTOPSY: PublishedDocument(
        TypeAdapter(Autopsy),
        SCHEMA_VERSION,
        "torchscale autopsy",
        "Why a job made no progress: `torchscale autopsy --json`, `autopsy` in the cells of a "
        "report.",
    ),
    ResultSchema.BASELINE: PublishedDocument(
        TypeAdapter(ResultSet),
        SCHEMA_VERSION,
        "torchscale baseline",
        "One side of a comparison as a file: `torchscale compare --save`.",
    ),
}


_OF_FEATURES: Slot[PublishedDocument] = Slot("schemas")


def published_schema(name: ResultSchema) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a document; its ``$id`` ends in the version of the document.

    Keys beyond those described are allowed: a later torchscale may add some within a version.
    """
    document = _OF_FEATURES[name.value] if name.value in _OF_FEATURES else _DOCUMENTS[name]
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
