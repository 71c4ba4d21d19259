"""What all data that crosses a process or reaches a disk has in common."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

F = TypeVar("F", bound="Frozen")

SCHEMA_VERSION = 2
"""Schema version of everything in a run folder. A reader refuses any other and names both; it never
guesses."""


class Frozen(BaseModel):
    """An immutable record. Unknown fields and non-finite numbers are errors: absence is ``None``,
    never NaN."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=()
    )

    def __copy__(self: F) -> F:
        """Copies the record without what cached properties remembered: ``model_copy`` changes
        fields after this, and an identity that was computed from the old ones would stay."""
        copied = super().__copy__()
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied


# Strict: pydantic otherwise takes ``true`` for 1 and ``"12.5"`` for 12.5, and a damaged file would
# be compared as if it had been measured.
Real = Annotated[float, Field(strict=True)]
"""A figure that may be negative: a loss, a clock's offset."""
NotNegative = Annotated[float, Field(ge=0, strict=True)]
"""A time, a rate, a share."""
Count = Annotated[int, Field(ge=0, lt=1 << 63, strict=True)]
"""Count of anything: steps, bytes, ranks."""
PositiveCount = Annotated[int, Field(ge=1, lt=1 << 63, strict=True)]
"""Count of what there is at least one of: ranks of a launch, samples of a step."""
Positive = Annotated[float, Field(gt=0, strict=True)]
"""What something took, where nothing takes no time."""
