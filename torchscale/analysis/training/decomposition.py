"""Where a step's time goes beyond the ideal: parts that add up to the measured step by construction."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.training import TrainingResult

UNEXPLAINED_LIMIT = 0.05
"""Of a step: about twice the noise from launch to launch (2 to 3 %), since two cells are compared."""


@dataclass(frozen=True)
class Parts:
    """Mean seconds of a step, over ranks and launches. ``rest`` is what no phase accounts for."""

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
    """From the ideal step, which is that of the smallest count, to the measured one; seconds. Parts may be negative
    (a cell can compute faster than its baseline).

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


def launch_parts(launches: Sequence[TrainingResult]) -> Parts | None:
    """Means over launches; ``None`` where a launch has no digest, or several ranks and no exposed gradient sync."""
    parts_of_launches = []
    for result in launches:
        digest = result.signals
        if digest is None or (len(result.ranks) > 1 and (digest.wait is None or digest.transfer is None)):
            return None
        steps = [batch.steps for batch in result.ranks[0].batches]
        parts_of_launches.append(
            Parts(
                compute=_mean(digest.compute, steps),
                data_wait=_mean(digest.data_wait, steps),
                straggler_wait=_mean(digest.wait, steps) if digest.wait else 0.0,
                transfer=_mean([digest.transfer], steps) if digest.transfer else 0.0,
                step=sum(result.batch_seconds) / result.measured_steps,
            )
        )
    if not parts_of_launches:
        return None
    return Parts(
        compute=statistics.fmean(parts.compute for parts in parts_of_launches),
        data_wait=statistics.fmean(parts.data_wait for parts in parts_of_launches),
        straggler_wait=statistics.fmean(parts.straggler_wait for parts in parts_of_launches),
        transfer=statistics.fmean(parts.transfer for parts in parts_of_launches),
        step=statistics.fmean(parts.step for parts in parts_of_launches),
    )


def decompose(cell: TrainingCell, parts: Parts, base: TrainingCell, base_parts: Parts) -> Decomposition:
    """A cell against the smallest count of its series."""
    share = 1.0 if cell.scaling == "weak" else base.world_size / cell.world_size
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


def _mean(rows: Sequence[Sequence[float]], steps: Sequence[int]) -> float:
    """Over ranks, and over steps: batches may differ by a step."""
    if any(len(row) != len(steps) for row in rows):
        raise ValueError(f"a series of another length than the {len(steps)} batches")
    total = sum(sum(map(mul, row, steps)) for row in rows)
    return total / (len(rows) * sum(steps))
