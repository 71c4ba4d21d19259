"""Where a step's time goes beyond the ideal: parts that add up to the measured step by construction."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

from torchscale.schema.cell import Cell
from torchscale.schema.record import LaunchRecord

UNEXPLAINED_LIMIT = 0.05


@dataclass(frozen=True)
class Parts:
    """Mean seconds of a step, over ranks and launches. ``rest`` is what no phase accounts for."""

    own: float
    data_wait: float
    straggler_wait: float
    transfer: float
    step: float

    @property
    def rest(self) -> float:
        """Measured step minus the parts."""
        return self.step - self.own - self.data_wait - self.straggler_wait - self.transfer


@dataclass(frozen=True)
class Decomposition:
    """From the ideal step, which is that of the smallest count, to the measured one; seconds. Parts may be negative
    (a cell can compute faster than its baseline).

    Attributes:
        baseline_world_size: Whose step is the ideal.
        ideal: The baseline's step; for strong scaling its share of it.
        own_compute: Forward, backward and optimizer take longer than there.
        data_wait: Waiting for data, beyond the baseline's.
        straggler_wait: Waiting for ranks that arrive later.
        exposed_communication: Exchange that no compute hides.
        unexplained: The rest.
        step: The measured step.
    """

    baseline_world_size: int
    ideal: float
    own_compute: float
    data_wait: float
    straggler_wait: float
    exposed_communication: float
    unexplained: float
    step: float


def launch_parts(records: Sequence[LaunchRecord]) -> Parts | None:
    """Means over launches; ``None`` where a launch lacks its digest, or exposed exchange with several ranks."""
    found = []
    for record in records:
        digest = record.signals
        if digest is None or (len(record.ranks) > 1 and (digest.wait is None or digest.transfer is None)):
            return None
        steps = [batch.steps for batch in record.ranks[0].batches]
        found.append(
            Parts(
                own=_mean(digest.own, steps),
                data_wait=_mean(digest.data_wait, steps),
                straggler_wait=_mean(digest.wait, steps) if digest.wait else 0.0,
                transfer=_mean([digest.transfer], steps) if digest.transfer else 0.0,
                step=sum(record.batch_seconds) / record.measured_steps,
            )
        )
    if not found:
        return None
    return Parts(**{name: statistics.fmean([getattr(parts, name) for parts in found]) for name in vars(found[0])})


def decompose(cell: Cell, parts: Parts, base: Cell, base_parts: Parts) -> Decomposition:
    """A cell against the smallest count of its series."""
    share = 1.0 if cell.scaling == "weak" else base.world_size / cell.world_size
    return Decomposition(
        baseline_world_size=base.world_size,
        ideal=base_parts.step * share,
        own_compute=parts.own - base_parts.own * share,
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
