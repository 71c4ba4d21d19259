"""The JSON of ``memory --find-max-batch --json``."""

from __future__ import annotations

from typing import Literal

from pydantic import AliasPath, Field

from torchscale.schema.exports.base import RESULTS_SCHEMA_VERSION, Export, PublishedDocument
from torchscale.schema.state import State


class TrialExport(Export):
    """One batch size and how it ended."""

    batch_size: int
    cell_id: str = Field(validation_alias=AliasPath("cell", "id"))
    state: State = Field(validation_alias=AliasPath("record", "state"))
    reason: str = Field(validation_alias=AliasPath("record", "reason"))
    peak_bytes: int | None
    """Peak memory of the fullest rank."""


class SearchExport(Export):
    """The largest batch size that fits, and every batch size that was tried."""

    schema_version: Literal[1] = RESULTS_SCHEMA_VERSION
    batch_size: int | None
    """Null where none fits, or the search was cut short."""
    problem: str
    """Why the search was cut short; empty where it was not."""
    trials: tuple[TrialExport, ...]
    """Trials in the order in which they ran."""


DOCUMENT = PublishedDocument(
    SearchExport,
    RESULTS_SCHEMA_VERSION,
    "torchscale batch size search",
    "The largest batch size that fits: `torchscale measure memory --find-max-batch --json`.",
)
