"""Whether ranks take turns at being late, by what each does itself."""

from __future__ import annotations

import numpy as np

from torchscale.analysis.diagnosis.rules_ranks import IMBALANCE_FLOOR, take_turns
from torchscale.analysis.diagnosis.shared import EXPLAINED_SHARE
from torchscale.analysis.diagnosis.signals import MIN_COMPARED
from torchscale.analysis.exchanges.steps import JobSteps
from torchscale.analysis.stats.peers import medians_of_others
from torchscale.features.watch.analysis.everyday.watched import Series, WatchedSteps


def are_late_in_turn(watched: WatchedSteps, explained: Series) -> bool:
    """Whether at least two ranks are late, each by its own time, in steps that nothing else
    explains, and are waited for long enough there.

    Args:
        watched: A job of several ranks.
        explained: Seconds by column that other causes explain.
    """
    steps = watched.log.recent(watched.first)
    if steps is None:
        return True
    by_step = watched.by_step(explained)[steps.first : steps.first + len(steps)]
    known = np.zeros(len(steps))
    known[: len(by_step)] = by_step * watched.log.per_column
    return _late(steps, known)


def _late(steps: JobSteps, known: Series) -> bool:
    """The same, of single steps."""
    beyond = steps.busy - medians_of_others(steps.busy)
    waited = steps.wait.mean(axis=0)
    is_left = known < EXPLAINED_SHARE * waited
    if np.where(is_left, waited, 0.0).mean() < IMBALANCE_FLOOR * steps.wall.mean():
        return False
    is_late = is_left & (beyond.max(axis=0) >= EXPLAINED_SHARE * waited)
    if is_late.sum() < MIN_COMPARED:
        return False
    seconds = np.where(is_late, waited, 0.0)
    by_rank = np.bincount(beyond.argmax(axis=0), seconds, minlength=len(beyond))
    return take_turns(by_rank.astype(np.float64))
