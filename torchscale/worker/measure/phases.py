"""The phases of a training step: the marks between them, and the seconds of each."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum

from torchscale.schema.base import LARGEST
from torchscale.schema.launch.steps import StepSample
from torchscale.worker.measure.clock import BatchClock
from torchscale.worker.measure.exchanges import ExchangeMeter, blocked_seconds


class Phase(Enum):
    """The phases of a step. A mark of the clock ends one and begins the next."""

    START = "start"
    DATA = "data_wait"
    BUFFERS = "buffer_sync"
    FORWARD = "forward"
    GRADIENTS = "backward"
    SYNC = "exposed_sync"
    BUBBLE = "bubble"
    BLOCKED = "blocked"
    OPTIMIZER = "optimizer"


class PhaseMarks:
    """Marks of a clock where phases end and others begin, and the waits in between.

    Attributes:
        clock: Takes the marks.
        on_phase: Called with each phase that begins; for recordings.
        has_watch: Whether a watch marks gradient sync, which is then a phase of its own.
    """

    def __init__(
        self, clock: BatchClock, exchanges: ExchangeMeter | None, *, pairs_syncs: bool
    ) -> None:
        """
        Args:
            clock: Takes the marks.
            exchanges: Notes the waits; ``None`` where they pass no Python.
            pairs_syncs: Whether gradient sync is one of the paired waits, as where each group of
                ranks has a last one.
        """
        self.clock = clock
        self.on_phase: Callable[[Phase], None] | None = None
        self.has_watch = False
        self._exchanges, self._pairs_syncs = exchanges, pairs_syncs
        self._marked: list[Phase] = []
        self._noted: list[int] = []

    def mark(self, ended: Phase, begun: Phase) -> None:
        """A phase ends, and another begins."""
        self.clock.mark()
        self._marked.append(ended)
        if self._exchanges is not None:
            self._noted.append(self._exchanges.count)
        if self.on_phase is not None:
            self.on_phase(begun)

    def mark_sync(self, ended: Phase, begun: Phase) -> None:
        """A mark around an exchange of gradients or buffers."""
        if self._exchanges is None or not self._pairs_syncs:
            self.mark(ended, begun)
            return
        self._exchanges.end_sync()
        self.mark(ended, begun)
        if self.has_watch and begun in (Phase.BUFFERS, Phase.SYNC):
            self._exchanges.begin_sync()

    def end_step(self) -> None:
        """Note the end of a step, or the start of a batch of them, among the waits."""
        if self._exchanges is not None:
            self._exchanges.end_step()

    def read(self) -> tuple[list[float], list[dict[Phase, float]], list[int]]:
        """Seconds of all marks since the first one, each step's seconds by phase, and the moments
        of the waits in them."""
        times, marked = self.clock.read(), self._marked
        noted, self._marked, self._noted = self._noted, [], []
        moments = [] if self._exchanges is None else self._exchanges.take()
        steps: list[dict[Phase, float]] = [{}]
        for number, (phase, since, until) in enumerate(
            zip(marked[1:], times, times[1:], strict=False)
        ):
            seconds = until - since
            if noted and phase in self._waiting_phases:
                waits = moments[noted[number] : noted[number + 1]]
                blocked = min(blocked_seconds(waits), seconds)
                steps[-1][Phase.BLOCKED] = steps[-1].get(Phase.BLOCKED, 0.0) + blocked
                seconds -= blocked
            steps[-1][phase] = steps[-1].get(phase, 0.0) + seconds
            if phase is Phase.OPTIMIZER:
                steps.append({})
        return times, steps[:-1], moments

    @property
    def _waiting_phases(self) -> tuple[Phase, ...]:
        """Phases from which waits are taken apart. What DistributedDataParallel waits for is a phase
        of its own."""
        phases = (Phase.FORWARD, Phase.GRADIENTS, Phase.OPTIMIZER)
        if self.has_watch:
            return phases
        return (*phases, Phase.SYNC)


def step_sample(step: int, part: dict[Phase, float], loss: float) -> StepSample:
    """A step from its seconds by phase."""
    sync: float | None = part.get(Phase.SYNC, 0.0)
    backward = part.get(Phase.GRADIENTS)
    if backward is None:  # no mark between the last gradient and gradient sync
        backward, sync = part.get(Phase.SYNC, 0.0), None
    return StepSample(
        step=step,
        seconds=math.fsum(part.values()),
        data_wait=part[Phase.DATA],
        forward=part.get(Phase.FORWARD, 0.0),
        backward=backward,
        optimizer=part[Phase.OPTIMIZER],
        bubble=part.get(Phase.BUBBLE),
        exposed_sync=sync,
        buffer_sync=part.get(Phase.BUFFERS),
        blocked=part.get(Phase.BLOCKED),
        loss=loss if abs(loss) <= LARGEST else None,  # not NaN either
    )


def compute_seconds(part: dict[Phase, float]) -> float:
    """Seconds of the passes of a step."""
    return math.fsum(part.get(phase, 0.0) for phase in (Phase.FORWARD, Phase.GRADIENTS, Phase.SYNC))
