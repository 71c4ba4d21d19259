"""What the JSON of every cell that measured the machine has in common."""

from __future__ import annotations

from typing import Literal

from pydantic import AliasPath, Field

from torchscale.schema.exports.base import RESULTS_SCHEMA_VERSION, Export
from torchscale.schema.launch.hang import Autopsy
from torchscale.schema.launch.transport import Transport
from torchscale.schema.state import State


class MachineCellExport(Export):
    """A cell that measured the machine: what was asked and how it ended."""

    schema_version: Literal[1] = RESULTS_SCHEMA_VERSION
    cell_id: str = Field(validation_alias=AliasPath("cell", "id"))
    state: State
    reason: str
    """Why it is not ``ok``; empty where it is."""
    launches: int
    """Completed launches."""
    hosts: tuple[str, ...] = Field(validation_alias=AliasPath("facts", "hosts"))
    """Machines that its ranks ran on, by name."""
    transport: Transport | None = Field(validation_alias=AliasPath("facts", "transport"))
    """By what data moved between ranks; null of a single rank."""
    autopsy: Autopsy | None = Field(validation_alias=AliasPath("facts", "autopsy"))
    """Autopsy of a launch that made no progress, or whose ranks called collectives that do not fit
    together."""
    flags: tuple[str, ...]
    """Cautions about its figures; of collectives about the highest bandwidths, as each size has its
    own."""
