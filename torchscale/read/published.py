"""JSON Schemas of everything that other programs read, for validation and for code generators."""

from __future__ import annotations

from typing import Any

from torchscale.config.choices import ResultSchema
from torchscale.door import Slot
from torchscale.schema.exports.base import PublishedDocument

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


_DOCUMENTS: Slot[PublishedDocument] = Slot("schemas")


def published_schema(name: ResultSchema) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a document; its ``$id`` ends in the version of the document.

    Keys beyond those described are allowed: a later torchscale may add some within a version.
    """
    document = _DOCUMENTS[name.value]
    schema = _open(document.json_schema())
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
