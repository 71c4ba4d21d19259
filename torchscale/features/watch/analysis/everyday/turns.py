"""Whether ranks take turns at being late, by what each does itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchscale.analysis.diagnosis.shared import medians_of_others
from torchscale.analysis.diagnosis.signals import MIN_COMPARED
from torchscale.analysis.exchanges.steps import JobSteps
from torchscale.features.watch.analysis.everyday.watched import Marks, Series

_EVEN_SHARE = 0.5
"""Of an even share of the late steps that a second rank must have."""
_SOLE_SHARE = 0.75
"""Share of the late time beyond which a single rank is late, as for slow spells."""
_OWN_SHARE = 0.5
"""Of what ranks wait in a step, that the late rank must be longer by itself than the others."""


@dataclass(frozen=True)
class Turns:
    """How late steps are shared out.

    Attributes:
        shares: Of each rank, of the time of all late steps.
        steps: Late steps that a rank's own time explains.
        seconds: Seconds a step that ranks wait in them.
    """

    shares: tuple[float, ...]
    steps: int
    seconds: float

    @property
    def are_taken(self) -> bool:
        """Whether at least two ranks are late in turn."""
        ordered = sorted(self.shares, reverse=True)
        if len(ordered) < 2 or self.steps < MIN_COMPARED:
            return False
        return ordered[0] <= _SOLE_SHARE and ordered[1] >= _EVEN_SHARE / len(ordered)


def late_turns(table: JobSteps, explained: Series) -> Turns:
    """Which rank is late in each step that is waited in, by its own time.

    Args:
        table: Steps of several ranks.
        explained: Seconds by column that other causes explain: such steps are left out.
    """
    own = table.busy
    beyond = own - medians_of_others(own)
    # A rank that is always longer is slow, and takes no turns.
    beyond = beyond - np.median(beyond, axis=1, keepdims=True)
    late = beyond.argmax(axis=0)
    longer = beyond.max(axis=0)
    waited = table.wait.mean(axis=0)
    typical = float(np.median(waited))
    is_late: Marks = (waited > 0) & (waited >= typical) & (longer >= _OWN_SHARE * waited)
    is_late &= explained < _OWN_SHARE * waited
    seconds = np.where(is_late, waited, 0.0)
    by_rank = np.bincount(late, seconds, minlength=len(own))
    total = float(by_rank.sum())
    shares = by_rank / total if total > 0 else by_rank
    return Turns(tuple(shares.tolist()), int(is_late.sum()), total / len(table))
