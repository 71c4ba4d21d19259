"""Jobs whose times are made: ranks that wait for the slowest of a step, noise, and samples of the
lines at which each was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.exchanges.steps import TIMES, JobSteps, WaitsBy
from torchscale.features.watch.analysis.everyday.watched import WatchedSteps
from torchscale.features.watch.analysis.evidence import (
    UNKNOWN,
    Compilation,
    MemorySeries,
    SeenLines,
    ShownByRank,
)
from torchscale.features.watch.analysis.step_log import StepLog
from torchscale.schema.watch.attempt import CheckpointCall
from torchscale.schema.watch.rank import ProgramLine

MS = 1e-3
START_NS = 1_700_000_000_000_000_000
FIRST = 10
"""Steps that are left out."""
_SAMPLES = 20.0
"""A second."""
_CHUNK = 500
"""Steps that come at a time."""

Times = NDArray[np.float64]
Where = Mapping[str, Times]


def line(place: str, called: str = "") -> ProgramLine:
    """``train.py:31 f``."""
    file, _, rest = place.partition(":")
    number, _, function = rest.partition(" ")
    return ProgramLine(
        file=f"/job/{file}", line=int(number), function=function, called=called, samples=0
    )


TRAIN = line("train.py:20 main")
"""Where ranks compute and wait."""


@dataclass
class Job:
    """A job of ranks that wait for each other once a step.

    Attributes:
        ranks, steps: How many.
        compute: Seconds of a step.
        noise: Share of ``compute``; now and then a host disturbs a step as well.
        seed: Of the noise.
    """

    ranks: int = 4
    steps: int = 600
    compute: float = 0.020
    noise: float = 0.03
    seed: int = 0
    parts: dict[str, Times] = field(default_factory=dict)
    places: dict[str, ProgramLine] = field(default_factory=dict)

    def add(self, part: str, row: int | slice, steps: object, seconds: float) -> Job:
        """Time of ranks in some steps.

        Args:
            part: ``data``, ``saving``, ``evaluating``, ``collection``, or a line of the program.
            row: Of the ranks.
            steps: An index.
            seconds: Each; it scatters by a tenth.
        """
        if part not in self.parts:
            self.parts[part] = np.zeros((self.ranks, self.steps))
        rng = np.random.default_rng(len(self.parts) + self.seed)
        scatter = np.clip(rng.normal(1.0, 0.1, (self.ranks, self.steps)), 0.7, 1.3)
        chosen = np.zeros((self.ranks, self.steps), bool)
        chosen[row, steps] = True  # type: ignore[index]
        self.parts[part] = self.parts[part] + np.where(chosen, seconds * scatter, 0.0)
        return self

    def at(self, part: str, place: ProgramLine) -> Job:
        """The line at which a part is seen."""
        self.places[part] = place
        return self

    def table(self) -> JobSteps:
        rng = np.random.default_rng(self.seed)
        shape = (self.ranks, self.steps)
        own = self.compute * (1 + np.abs(rng.normal(0, self.noise, shape)))
        disturbed = rng.random(shape) < 0.003
        own += disturbed * rng.exponential(0.3 * self.compute, shape)
        data = 0.0005 * (1 + np.abs(rng.normal(0, 0.2, shape))) + self.parts.get("data", 0.0)
        own = own + sum(
            (values for part, values in self.parts.items() if part != "data"), np.zeros(shape)
        )
        busy = own + data
        slowest = busy.max(axis=0)
        times = {name: np.zeros(shape) for name in TIMES}
        wait = slowest - busy
        times |= {
            "own": own,
            "quiet": own,
            "data": data,
            "wait": wait,
            "transfer": np.full(shape, 0.002),
            "wall": np.broadcast_to(slowest + 0.002, shape).copy(),
        }
        for part in ("saving", "evaluating", "collection"):
            times[part] = self.parts.get(part, np.zeros(shape))
        times["blame"][busy.argmax(axis=0), np.arange(self.steps)] = wait.sum(axis=0)
        end_ns = START_NS + np.cumsum((slowest + 0.002) * 1e9).astype(np.int64)
        return JobSteps(first=0, end_ns=end_ns, waits_by=WaitsBy.CALLS, **times)

    def log(self) -> StepLog:
        """Without the first steps."""
        table = self.table()
        log = StepLog(tuple(range(self.ranks)))
        for begin in range(0, self.steps, _CHUNK):
            cut = {name: getattr(table, name)[:, begin : begin + _CHUNK] for name in TIMES}
            end_ns = table.end_ns[begin : begin + _CHUNK]
            log.add(JobSteps(first=begin, end_ns=end_ns, waits_by=table.waits_by, **cut))
        settled = log.between(FIRST, log.steps)
        assert settled is not None
        return log.without(settled)

    def evidence(
        self,
        *,
        compilations: Mapping[int, Sequence[Compilation]] | None = None,
        saves: Mapping[int, Sequence[CheckpointCall]] | None = None,
        memory: Mapping[int, MemorySeries] | None = None,
    ) -> tuple[ShownByRank, ...]:
        table = self.table()
        return tuple(
            ShownByRank(
                self._lines(table, row),
                (memory or {}).get(row, NO_MEMORY),
                tuple((compilations or {}).get(row, ())),
                tuple((saves or {}).get(row, ())),
            )
            for row in range(self.ranks)
        )

    def _lines(self, table: JobSteps, row: int) -> SeenLines:
        """Samples at a steady rate: a part of a step with a line of its own is at its end."""
        rng = np.random.default_rng(100 + row + self.seed)
        wall = table.wall[row]
        end = np.cumsum(wall)
        at = np.arange(rng.random() / _SAMPLES, end[-1], 1 / _SAMPLES)
        step = np.searchsorted(end, at)
        left = end[step] - at
        place = np.zeros(len(at), np.int64)
        places = [TRAIN, *self.places.values()]
        begun = np.zeros(len(at))
        for number, part in enumerate(self.places, 1):
            length = self.parts[part][row][step]
            place[(left >= begun) & (left < begun + length)] = number
            begun += length
        nothing = np.zeros(len(at), np.int64)
        return SeenLines(step, place, tuple(places), nothing, nothing)

    def watched(self, *, on_device: bool = False, **evidence: object) -> WatchedSteps:
        log = self.log()
        assert log.table is not None
        return WatchedSteps(log, log.table, self.evidence(**evidence), on_device)  # type: ignore[arg-type]


_NONE = np.zeros(0, np.int64)
NO_MEMORY = MemorySeries(_NONE, _NONE, _NONE, _NONE, _NONE)


def memory(
    resident: Times | None = None,
    allocated: Times | None = None,
    reserved: Times | None = None,
    *,
    seconds: float = 600.0,
    steps: int = 600,
) -> MemorySeries:
    """Readings at equal distances."""
    count = next(len(one) for one in (resident, allocated, reserved) if one is not None)
    unknown = np.full(count, UNKNOWN)
    values = [
        unknown if one is None else one.astype(np.int64) for one in (resident, allocated, reserved)
    ]
    time_ns = START_NS + (np.linspace(0, seconds, count) * 1e9).astype(np.int64)
    return MemorySeries(np.linspace(0, steps - 1, count).astype(np.int64), time_ns, *values)
