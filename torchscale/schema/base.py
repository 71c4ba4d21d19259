"""What all data that crosses a process or reaches a disk has in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

SCHEMA_VERSION = 1
"""Of everything in a run folder. A reader refuses a newer one and says so; it never guesses."""


class Frozen(BaseModel):
    """An immutable record. Unknown fields and non-finite numbers are errors: absence is ``None``, never NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())
