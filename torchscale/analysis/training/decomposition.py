"""Where a step's time goes beyond the ideal: parts that add up to the measured step by
construction."""

from __future__ import annotations

from torchscale.analysis.diagnosis.signals import Signals
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.exports.training import Decomposition, Parts

UNEXPLAINED_LIMIT = 0.05
"""Share of a step: about twice the noise from launch to launch (2 to 3 %), since two cells are
compared."""


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
