"""Ranks that called collectives of given lengths."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchscale.analysis.exchanges.events import (
    Calls,
    CollectiveDurations,
    CoreTime,
    Moments,
    RankEvents,
)
from torchscale.features.watch.analysis.chains import Chains
from torchscale.features.watch.analysis.lengths import (
    LengthWaits,
    waits_by_length,
)

MS = 1_000_000
EMPTY = np.zeros(0, np.int64)
COMPARED = np.array([True, False])


def rank(
    *calls: tuple[int, int, float | None], group: int = 0, what: int = 0, step_ms: int = 100
) -> RankEvents:
    """Collectives of a rank: (step, number, milliseconds that it took), in the order of calls."""
    time = [step * step_ms * MS + place for place, (step, _, _) in enumerate(calls)]
    numbers = np.array([number for _, number, _ in calls], np.int64)
    same = np.full(len(calls), group, np.int64)
    known = [(number, took) for _, number, took in calls if took is not None]
    return RankEvents(
        Moments(EMPTY, EMPTY, EMPTY),
        Calls(np.array(time, np.int64), numbers, same, np.full(len(calls), what, np.int64)),
        CoreTime(EMPTY, EMPTY),
        CollectiveDurations(
            np.array([number for number, _ in known], np.int64),
            np.full(len(known), group, np.int64),
            np.array([round(took * MS) for _, took in known], np.int64),
        ),
    )


def edges(steps: int, ranks: int, step_ms: int = 100) -> list[np.ndarray]:
    return [np.arange(steps + 1, dtype=np.int64) * step_ms * MS for _ in range(ranks)]


def waits(ranks: Sequence[RankEvents], steps: int = 1) -> tuple[LengthWaits, ...]:
    return waits_by_length(
        ranks, edges(steps, len(ranks)), [(0, range(len(ranks)))], COMPARED, Chains()
    )
