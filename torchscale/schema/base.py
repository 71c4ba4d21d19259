"""What all data that crosses a process or reaches a disk has in common."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from torchscale.util.units import parse_moment

F = TypeVar("F", bound="Frozen")

SCHEMA_VERSION = 2
"""Schema version of everything in a run folder. A reader refuses any other and names both; it never
guesses."""

# Numbers and texts of all records are of these types, so that what was read from a file can be used
# without a further check: sums, ratios and logarithms stay finite, whole numbers fit into eight
# bytes, moments into a datetime.
#
# Strict: pydantic otherwise takes ``true`` for 1 and ``"12.5"`` for 12.5, and a damaged file would
# be compared as if it had been measured.
SMALLEST, LARGEST = 1e-30, 1e30
"""Bounds on every figure, whatever its unit: the largest unit prefix of a rate is 1e18, the
shortest time 1e-9 s, so anything beyond is a damaged file, and logarithms and ratios of figures
inside stay finite."""
MOST = (1 << 63) - 1
"""Largest whole number: what the kernel's interfaces give as "without a limit" is this or more."""
LEAST_SECONDS = 1e-12
"""A thousandth of what the finest clock tells apart."""
MOST_SECONDS = 1e11
"""Three thousand years: what takes longer is a damaged file. The last moment and three thousand
years are still a year that a datetime has."""
LAST_MOMENT = 32_503_680_000.0
"""The year 3000, in seconds since the epoch."""
MAX_TEXT = 1 << 20
"""Characters of a text in a record: a traceback, a command line or the end of a log has less than
128 Ki."""
MAX_NAME = 1000
"""Characters of a name: hosts have up to 253, files 255, and a model is named by its path."""


class Frozen(BaseModel):
    """An immutable record. Unknown fields, non-finite numbers and texts beyond :data:`MAX_TEXT` are
    errors: absence is ``None``, never NaN."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        str_max_length=MAX_TEXT,
        protected_namespaces=(),
    )

    def __copy__(self: F) -> F:
        """Copies the record without what cached properties remembered: ``model_copy`` changes
        fields after this, and an identity that was computed from the old ones would stay."""
        copied = super().__copy__()
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied


Real = Annotated[float, Field(ge=-LARGEST, le=LARGEST, strict=True)]
"""A figure that may be negative: a loss, a clock's offset."""
NotNegative = Annotated[float, Field(ge=0, le=LARGEST, strict=True)]
"""A rate, an amount."""
Positive = Annotated[float, Field(ge=SMALLEST, le=LARGEST, strict=True)]
"""A rate, where nothing has none."""
IntervalEnd = Annotated[float, Field(ge=-1e305, le=1e305, strict=True)]
"""An end of an interval, which is nearly as wide as floats are where few values scatter much: up to
``exp(700)``."""
Share = Annotated[float, Field(ge=0, le=1, strict=True)]
"""A part of 1."""
RoundedShare = Annotated[float, Field(ge=-1e-6, le=1 + 1e-6, strict=True)]
"""A part of 1 from sums of many floats, with their rounding."""
Seconds = Annotated[float, Field(ge=0, le=MOST_SECONDS, strict=True)]
"""How long something took; it can be added to a moment."""
PositiveSeconds = Annotated[float, Field(ge=LEAST_SECONDS, le=MOST_SECONDS, strict=True)]
"""How long something took that takes time, and by which rates are divided."""
EpochSeconds = Annotated[float, Field(ge=0, le=LAST_MOMENT, strict=True)]
"""A moment, in seconds since the epoch: ``datetime.fromtimestamp`` takes it."""
Integer = Annotated[int, Field(ge=-MOST - 1, lt=MOST + 1, strict=True)]
"""A whole number that may be negative: an exit status, a limit of which -1 is none."""
Count = Annotated[int, Field(ge=0, lt=MOST + 1, strict=True)]
"""Count of anything: steps, bytes, ranks."""
PositiveCount = Annotated[int, Field(ge=1, lt=MOST + 1, strict=True)]
"""Count of what there is at least one of: ranks of a launch, samples of a step."""
Name = Annotated[str, Field(max_length=MAX_NAME)]
"""Name of a host, a device, a version; it stands in tables."""


def _is_moment(text: str) -> str:
    moment = parse_moment(text)
    if text and (moment is None or not 0 <= moment.timestamp() <= LAST_MOMENT):
        raise ValueError("expected a moment in ISO 8601, such as 2026-01-02T03:04:05+00:00")
    return text


Moment = Annotated[str, Field(max_length=40), AfterValidator(_is_moment)]
"""A moment in ISO 8601, UTC; empty where it is not known."""
