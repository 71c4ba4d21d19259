"""The parts of the time that a device count adds to the mean step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torchscale.report.table import Column
from torchscale.report.values import TableValue
from torchscale.schema.exports.training import Decomposition
from torchscale.util.units import format_percent, format_seconds


@dataclass(frozen=True)
class LostPart:
    """A part of the time that a device count adds to the mean step.

    Attributes:
        heading: Heading of the part's column and of its layer in charts; ``+`` marks what is added
            to the ideal step.
        phrase: What costs this time, as a sentence names it.
        seconds: Seconds of a step; negative where the larger count is faster.
    """

    heading: str
    phrase: str
    seconds: Callable[[Decomposition], float]

    @property
    def column(self) -> Column:
        """A column of it."""
        return Column(self.heading, numeric=True)

    def share(self, lost: Decomposition) -> float:
        """Share of the measured step."""
        return self.seconds(lost) / lost.step

    def of(self, lost: Decomposition) -> TableValue:
        """Seconds and share as a table shows them."""
        seconds = self.seconds(lost)
        return TableValue(
            f"{format_seconds(seconds)} ({format_percent(self.share(lost))})", seconds
        )


LOST_PARTS = (
    LostPart("+ compute", "slower compute", lambda lost: lost.compute),
    LostPart("+ data wait", "waiting for data", lambda lost: lost.data_wait),
    LostPart("+ straggler wait", "waiting for slower ranks", lambda lost: lost.straggler_wait),
    LostPart(
        "+ exposed communication", "exposed communication", lambda lost: lost.exposed_communication
    ),
    LostPart("unexplained", "unexplained time", lambda lost: lost.unexplained),
)
"""With the ideal step they add up to the mean step (``docs/diagnosis.md``, The loss
decomposition)."""
