"""Where a step's time goes beyond the ideal: parts that add up to the measured step by
construction."""

from __future__ import annotations

from dataclasses import dataclass

from torchscale.analysis.diagnosis.signals import Signals
from torchscale.schema.cells.training import TrainingCell

UNEXPLAINED_LIMIT = 0.05
"""Share of a step: about twice the noise from launch to launch (2 to 3 %), since two cells are
compared."""


@dataclass(frozen=True)
class Parts:
    """Mean seconds of a step, over ranks and launches.

    ``transfer`` is exposed communication: gradient sync that no compute hides, once all ranks have
    arrived. Findings about it have the same figure. ``rest`` is what no phase accounts for.
    """

    compute: float
    data_wait: float
    straggler_wait: float
    transfer: float
    step: float

    @property
    def rest(self) -> float:
        """Measured step minus the parts."""
        return self.step - self.compute - self.data_wait - self.straggler_wait - self.transfer


@dataclass(frozen=True)
class Decomposition:
    """Parts of the time from the ideal step, which is that of the smallest count, to the measured
    one, in seconds. Parts may be negative (a cell can compute faster than its baseline).

    Attributes:
        baseline_world_size: Whose step is the ideal.
        ideal: The baseline's step; for strong scaling its share of it.
        compute: Forward, backward and optimizer take longer than there.
        data_wait: Waiting for data, beyond the baseline's.
        straggler_wait: Waiting for ranks that arrive later.
        exposed_communication: Gradient sync that no compute hides.
        unexplained: The rest.
        step: The measured step.
    """

    baseline_world_size: int
    ideal: float
    compute: float
    data_wait: float
    straggler_wait: float
    exposed_communication: float
    unexplained: float
    step: float


def step_parts(signals: Signals) -> Parts | None:
    """Parts of a cell's step, from its signals; ``None`` where phases were not measured, or several
    ranks lack exposed gradient sync."""
    if signals.compute is None or signals.data_wait is None:
        return None
    if len(signals.ranks) > 1 and (signals.wait is None or signals.transfer is None):
        return None
    wait = transfer = 0.0
    if signals.wait is not None:
        wait = float(signals.mean(signals.wait).mean())
    if signals.transfer is not None:
        transfer = float(signals.mean(signals.transfer))
    return Parts(
        compute=float(signals.mean(signals.compute).mean()),
        data_wait=float(signals.mean(signals.data_wait).mean()),
        straggler_wait=wait,
        transfer=transfer,
        step=signals.step_seconds,
    )


def decompose(
    cell: TrainingCell, parts: Parts, base: TrainingCell, base_parts: Parts
) -> Decomposition:
    """A cell against the smallest count of its series."""
    share = base.world_size / cell.world_size
    if cell.scaling == "weak":
        share = 1.0
    return Decomposition(
        baseline_world_size=base.world_size,
        ideal=base_parts.step * share,
        compute=parts.compute - base_parts.compute * share,
        data_wait=parts.data_wait - base_parts.data_wait * share,
        straggler_wait=parts.straggler_wait - base_parts.straggler_wait * share,
        exposed_communication=parts.transfer - base_parts.transfer * share,
        unexplained=parts.rest - base_parts.rest * share,
        step=parts.step,
    )
