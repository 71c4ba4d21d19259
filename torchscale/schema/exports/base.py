"""What everything that other programs read has in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter

from torchscale.schema.base import Frozen

RESULTS_SCHEMA_VERSION: Literal[1] = 1
"""Schema version of the JSON that commands print and write for other programs. It grows when a key
is removed, renamed or changes its meaning, and not when one is added. The records in a run folder
have a version of their own."""


class Export(Frozen):
    """Part of a published JSON document. Its keys are the fields here and nothing else.
    ``model_validate(summary)`` reads each from the attribute of its name or, where it has an
    alias, from there: when an attribute inside torchscale is renamed, the field gets an alias and
    nothing changes outside. The text under a field is its description in the published JSON
    Schema."""

    model_config = ConfigDict(strict=True, use_attribute_docstrings=True, from_attributes=True)


@dataclass(frozen=True)
class PublishedDocument:
    """What other programs read: its type, its version, what it is."""

    adapter: TypeAdapter[Any]
    version: int
    title: str
    description: str
