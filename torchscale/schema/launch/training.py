"""What a training launch measured: the payload of its record."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Literal

from torchscale.schema.base import Frozen
from torchscale.schema.launch.rank import RankRecord
from torchscale.schema.launch.signals import SignalDigest
from torchscale.schema.launch.steps import EpochSample, RankSteps, StepDigest


class TrainingResult(Frozen):
    """Raw samples of the ranks, and digests of their steps.

    Attributes:
        ranks: Records of the ranks that left one, by rank.
        steps: Digest of the group's steps; ``None`` unless every rank left its steps.
        rank_steps: Digests of each rank's steps, in the order of ``ranks``.
        signals: Digest of the steps for the diagnosis; ``None`` unless every rank left its steps.
        epochs: Where epochs bound the run.
    """

    kind: Literal["training"] = "training"
    ranks: tuple[RankRecord, ...] = ()
    steps: StepDigest | None = None
    rank_steps: RankSteps = RankSteps()
    signals: SignalDigest | None = None
    epochs: tuple[EpochSample, ...] = ()

    @cached_property
    def batch_seconds(self) -> tuple[float, ...]:
        """Wall time of each batch for the group, the slowest rank's: ranks decide together when one
        ends."""
        return tuple(map(max, zip(*(rank.batches.seconds for rank in self.ranks), strict=False)))

    @cached_property
    def measured_seconds(self) -> float:
        """Wall time of all batches together, for the group."""
        return math.fsum(self.batch_seconds)

    @cached_property
    def measured_steps(self) -> int:
        """Steps of the measurement.

        Raises:
            IndexError: no rank left a record.
        """
        return sum(self.ranks[0].batches.steps[: len(self.batch_seconds)])
