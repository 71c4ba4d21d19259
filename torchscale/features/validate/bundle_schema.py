"""The archive that says what a node was when it was accepted."""

from __future__ import annotations

from typing import Literal

from torchscale.schema.base import (
    SCHEMA_VERSION,
    Count,
    Frozen,
    Moment,
    Name,
)
from torchscale.schema.node.validation import Validation


class BundledFile(Frozen):
    """A file of the archive."""

    name: str
    sha256: Name
    size_bytes: Count


class BundleManifest(Frozen):
    """What an archive holds, and where it was made. ``created_at`` is in UTC."""

    kind: Literal["validation"] = "validation"
    schema_version: Count = SCHEMA_VERSION
    tool_version: Name
    hostname: Name
    created_at: Moment
    files: tuple[BundledFile, ...]


class BundleCheck(Frozen):
    """What ``validate --verify`` found.

    Attributes:
        verified: Whether nothing was changed, and the verdict follows from the facts.
        every_byte: Whether that is said of every byte of the archive; else of its files alone.
        problems: What was changed, or does not follow.
        notes: What could not be checked.
        signer: The key that signed it; ``None`` where it is not signed, or not by its signature.
        manifest: As the archive has it; ``None`` where it cannot be read.
        validation: The same.
    """

    schema_version: Count = SCHEMA_VERSION
    verified: bool
    every_byte: bool = True
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    signer: str | None = None
    manifest: BundleManifest | None = None
    validation: Validation | None = None
