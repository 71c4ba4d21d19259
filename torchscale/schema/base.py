"""What all data that crosses a process or reaches a disk has in common."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

F = TypeVar("F", bound="Frozen")

SCHEMA_VERSION = 2
"""Of everything in a run folder. A reader refuses any other and names both; it never guesses."""


class Frozen(BaseModel):
    """An immutable record. Unknown fields and non-finite numbers are errors: absence is ``None``,
    never NaN."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=()
    )

    def __copy__(self: F) -> F:
        """Without what cached properties remembered: ``model_copy`` changes fields after this, and
        an identity that was computed from the old ones would stay."""
        copied = super().__copy__()
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied


NotNegative = Annotated[float, Field(ge=0)]
"""A time, a rate, a share."""
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
"""Of anything: steps, bytes, ranks."""
Positive = Annotated[float, Field(gt=0)]
"""What something took, where nothing takes no time."""
