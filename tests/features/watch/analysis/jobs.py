"""Jobs as the collectors of their ranks would have noted them, by simple physics: a collective ends
some time after its last rank has called it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from torchscale.analysis.exchanges.arrivals import find_arrivals
from torchscale.analysis.exchanges.events import Calls, CoreTime, MomentKind, Moments, RankEvents
from torchscale.analysis.exchanges.steps import JobSteps, step_edges, step_times
from torchscale.features.watch.analysis.step_log import StepLog

START_NS = 1_700_000_000_000_000_000
MS = 1_000_000

Extra = Callable[[int, int], float]
"""(Rank, step) → milliseconds that the rank takes longer by itself."""


def nothing(rank: int, step: int) -> float:
    """No rank is longer."""
    del rank, step
    return 0.0


class Rank:
    """Notes of one rank, and its clock in milliseconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self.moments: list[tuple[int, int, int]] = []
        self.calls: list[tuple[int, int, int, int]] = []

    def note(self, kind: MomentKind, detail: int = 0) -> None:
        self.moments.append((self._time, int(kind), detail))

    def call(self, sequence: int, what: int = 0) -> float:
        self.calls.append((self._time, sequence, 0, what))
        return self.now

    @property
    def _time(self) -> int:
        return START_NS + round(self.now * MS)

    def events(self) -> RankEvents:
        moments = np.array(self.moments, np.int64).reshape(-1, 3)
        calls = np.array(self.calls, np.int64).reshape(-1, 4)
        empty = np.zeros(0, np.int64)
        return RankEvents(
            Moments(moments[:, 0], moments[:, 1], moments[:, 2]),
            Calls(calls[:, 0], calls[:, 1], calls[:, 2], calls[:, 3]),
            CoreTime(empty, empty),
        )


def job(
    ranks: int = 2,
    steps: int = 200,
    extra: Extra = nothing,
    *,
    noted_waits: bool = True,
    compute: float = 10.0,
    transfer: float = 2.0,
    data: Extra = nothing,
    saving: Extra = nothing,
    noise: float = 0.2,
    seed: int = 0,
) -> list[RankEvents]:
    """A job of ranks that average gradients once a step.

    Args:
        ranks, steps: How many.
        extra: Milliseconds before the collective of a step.
        noted_waits: Whether waits are noted, or pass within DistributedDataParallel.
        compute, transfer: Milliseconds.
        data, saving: Milliseconds of waits for data, and of checkpoints after the step.
        noise: Standard deviation of compute, in milliseconds.
        seed: Of the noise.
    """
    random = np.random.default_rng(seed)
    made = [Rank() for _ in range(ranks)]
    for rank in made:
        rank.note(MomentKind.STEP)
    for step in range(steps):
        arrived = []
        for number, rank in enumerate(made):
            rank.note(MomentKind.DATA)
            rank.now += 0.1 + data(number, step)
            rank.note(MomentKind.DATA_END)
            if not noted_waits:
                rank.note(MomentKind.REPLICATED)
            rank.now += compute / 2
            rank.note(MomentKind.BACKWARD)
            rank.now += compute / 2 + abs(random.normal(0, noise)) + extra(number, step)
            arrived.append(rank.call(step))
        done = max(arrived) + transfer
        for number, rank in enumerate(made):
            if noted_waits:
                rank.note(MomentKind.WAIT)
            rank.now = done + abs(random.normal(0, noise / 10))
            if noted_waits:
                rank.note(MomentKind.WAIT_END)
            rank.note(MomentKind.BACKWARD_END)
            rank.note(MomentKind.OPTIMIZER)
            rank.now += 1.0
            rank.note(MomentKind.STEP)
            seconds = saving(number, step)
            if seconds:
                rank.note(MomentKind.SAVE)
                rank.now += seconds
                rank.note(MomentKind.SAVE_END)
    return [rank.events() for rank in made]


def steps_of(events: Sequence[RankEvents]) -> JobSteps:
    """The steps of a job whose ranks are all in group 0."""
    arrivals = find_arrivals([one.calls for one in events], [(0, range(len(events)))])
    edges = [step_edges(one.moments) for one in events]
    return step_times(events, arrivals, edges, 0)[0]


def log_of(events: Sequence[RankEvents]) -> StepLog:
    """The log of such a job."""
    log = StepLog(tuple(range(len(events))))
    log.add(steps_of(events))
    return log
