"""Follows a job while it runs: from the files of its ranks to its steps, a stretch at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from torchscale.analysis.exchanges.arrivals import find_arrivals
from torchscale.analysis.exchanges.events import RankEvents, Times
from torchscale.analysis.exchanges.steps import (
    JobSteps,
    Waited,
    WaitsBy,
    step_edges,
    step_times,
)
from torchscale.catalog.backends import runs_on_device
from torchscale.features.watch.analysis.chains import LEAST_STEPS, Chains
from torchscale.features.watch.analysis.device_steps import device_step_times
from torchscale.features.watch.analysis.lengths import is_compared, waits_by_length
from torchscale.features.watch.analysis.rounds import RoundStart, find_round
from torchscale.features.watch.analysis.stages import stages_of
from torchscale.features.watch.analysis.step_parts import PartBegins
from torchscale.features.watch.analysis.wall_time import MomentGaps, find_spans
from torchscale.features.watch.job.held_steps import HeldSteps
from torchscale.features.watch.job.rank_folders import rank_folders
from torchscale.features.watch.job.stream import Names, RankStream


@dataclass(frozen=True)
class NewSteps:
    """Steps that were complete on all ranks since the last look.

    Attributes:
        steps: Their times.
        waited: What each rank was blocked for.
        begin_ns: When the first of them began.
        edges: Of each rank: when they ended, the first one of the step before.
        spans: What of them was no step.
        parts: Of each rank: when parts of its steps began.
    """

    steps: JobSteps
    waited: tuple[Waited, ...]
    begin_ns: int
    edges: tuple[Times, ...]
    spans: MomentGaps
    parts: tuple[PartBegins, ...]


@dataclass(frozen=True)
class Remainder:
    """What was written of steps that are not complete on all ranks.

    Attributes:
        events: Of each rank.
        edges: When further steps ended, on the rank that has the most of them.
        last_seen: Last sign of life of any rank, in nanoseconds since the epoch.
        in_order: Whether all ranks left the program by themselves.
        is_torn: Whether a rank could not write what came then.
    """

    events: tuple[RankEvents, ...]
    edges: Times
    last_seen: int
    in_order: bool
    is_torn: bool


class JobFollower:
    """One attempt of a job whose ranks write below ``directory``. With ``has_optimizer`` nothing but
    steps of an optimizer counts.

    Attributes:
        names: Process groups and collectives, numbered.
        steps: Steps so far.
        moments: Moments and collectives so far, of all ranks.
        round: What steps are counted by in a program without an optimizer of torch.
        sends: Sends and receives in these steps, of all ranks.
        compared: Collectives in these steps whose lengths all ranks know, of all ranks.
    """

    def __init__(self, directory: Path, attempt: int = 0, *, has_optimizer: bool = False) -> None:
        self._directory, self._attempt = directory, attempt
        self._has_optimizer = has_optimizer
        self.names = Names()
        self.steps = 0
        self.moments = 0
        self.round: RoundStart | None = None
        self.sends = self.compared = 0
        self._chains = Chains()
        self._waits_by: WaitsBy | None = None
        self._held: dict[int, HeldSteps] = {}
        self._is_complete = False

    @property
    def streams(self) -> Mapping[int, RankStream]:
        """Rank → its files."""
        return {rank: held.stream for rank, held in sorted(self._held.items())}

    @property
    def ranks(self) -> tuple[int, ...]:
        """Global ranks, in the order of rows."""
        return tuple(sorted(self._held))

    @property
    def backend(self) -> str:
        """That carries out most collectives, of those that were recorded; else what the ranks say
        of themselves. Empty before a rank has reported."""
        if not self._held:
            return ""
        first = self._held[min(self._held)]
        counts = np.bincount(first.events.calls.group, minlength=1)
        backends: Counter[str] = Counter()
        for (_, backend, _), number in self.names.groups.items():
            backends[backend] += int(counts[number]) if number < len(counts) else 0
        most = backends.most_common(1)
        return most[0][0] if most and most[0][1] else first.stream.facts.backend

    @property
    def waits_by(self) -> WaitsBy:
        """What tells how long ranks wait for each other, as of its first steps."""
        if self._waits_by is not None:
            return self._waits_by
        if not runs_on_device(self.backend):
            return WaitsBy.CALLS
        facts = [held.stream.facts for held in self._held.values()]
        if all(one.is_timed and one.has_recorder for one in facts):
            return WaitsBy.LENGTHS
        return WaitsBy.NOTHING

    @property
    def stages(self) -> tuple[tuple[int, ...], ...] | None:
        """Rows of the ranks of each stage of a pipeline; ``None`` where the job is none, or which
        ranks belong together is not known."""
        rows = {rank: row for row, rank in enumerate(self.ranks)}
        return stages_of(
            {
                rows[rank]: frozenset(rows[peer] for peer in held.stream.peers if peer in rows)
                for rank, held in self._held.items()
            }
        )

    def advance(self) -> NewSteps | None:
        """Read what was written since the last call; the steps that are complete on all ranks.

        Raises:
            StoreError: a file of a rank is damaged.
        """
        self._find_ranks()
        if not self._held:
            return None
        self.moments += sum(held.read() for held in self._held.values())
        if not self._is_complete:
            return None
        return self._complete_steps()

    def remainder(self) -> Remainder | None:
        """What is left after the steps of all stretches; ``None`` where no rank has reported."""
        held = [self._held[rank] for rank in self.ranks]
        if not held:
            return None
        edges = max(self._edges(held), key=len)
        return Remainder(
            tuple(one.events for one in held),
            edges[1:] if self.steps else edges,  # the first one is that of the last complete step
            max(one.last_seen for one in held),
            all(one.stream.facts.state == "ended" for one in held),
            any(one.stream.facts.problem for one in held),
        )

    def _find_ranks(self) -> None:
        if self._is_complete:
            return
        for (rank, attempt), folder in rank_folders(self._directory).items():
            if attempt == self._attempt and rank not in self._held:
                self._held[rank] = HeldSteps(RankStream(folder, self.names))
        self._is_complete = bool(self._held) and self._has_all_local()

    def _has_all_local(self) -> bool:
        """Whether all ranks of each host that writes here do: those of other hosts may write
        elsewhere."""
        facts = [held.stream.facts for held in self._held.values()]
        counts = Counter(one.host for one in facts)
        return all(counts[one.host] >= one.local_world_size for one in facts)

    def _groups(self, held: Sequence[HeldSteps], *, by_host: bool) -> list[tuple[int, list[int]]]:
        """Rows of the ranks of each process group; by host, whose ranks share a clock."""
        rows = {rank: row for row, rank in enumerate(self.ranks)}
        groups = []
        for number, ranks in self.names.members.items():
            together: dict[str, list[int]] = {}
            for rank in ranks:
                if rank in rows:
                    host = held[rows[rank]].stream.facts.host if by_host else ""
                    together.setdefault(host, []).append(rows[rank])
            groups += [(number, members) for members in together.values()]
        return groups

    def _edges(self, held: Sequence[HeldSteps]) -> list[Times]:
        """When the steps of each rank ended; in a program without an optimizer of torch, when its
        rounds of collectives began."""
        if self.round is None:
            edges = [step_edges(one.events.moments) for one in held]
            if any(len(edge) for edge in edges) or self.steps or self._has_optimizer:
                return edges
            self.round = find_round(held[0].events.calls)
            if self.round is None:
                return edges
        return [self.round.edges(one.events.calls) for one in held]

    def _complete_steps(self) -> NewSteps | None:
        held = [self._held[rank] for rank in self.ranks]
        edges = self._edges(held)
        usable = [
            int(np.searchsorted(edge, one.read_until, side="right"))
            for edge, one in zip(edges, held, strict=True)
        ]
        count = min(usable)
        if count < 2 or (count <= LEAST_STEPS and self._waits_for_more(held)):
            return None
        edges = [edge[:count] for edge in edges]
        events = [one.events for one in held]
        steps, waited = self._times(held, events, edges)
        spans = find_spans(events, edges[0])
        on_host = steps.waits_by is WaitsBy.CALLS
        self.steps += len(steps)
        for one, edge in zip(held, edges, strict=True):
            one.drop_before(int(edge[-1]))
        parts = tuple(
            PartBegins.of(one.moments, blocked.start if on_host else blocked.start[:0])
            for one, blocked in zip(events, waited, strict=True)
        )
        return NewSteps(steps, waited, int(edges[0][0]), tuple(edges), spans, parts)

    def _waits_for_more(self, held: Sequence[HeldSteps]) -> bool:
        """Whether the first steps are too few to tell how their collectives hang together, and
        there will be more."""
        facts = [one.stream.facts for one in held]
        is_learning = not self.steps and self.waits_by is WaitsBy.LENGTHS
        return is_learning and all(one.state == "running" for one in facts)

    def _times(
        self, held: Sequence[HeldSteps], events: Sequence[RankEvents], edges: Sequence[Times]
    ) -> tuple[JobSteps, tuple[Waited, ...]]:
        """The steps between ``edges``, and all that ranks waited for."""
        known_by = self._waits_by = self.waits_by
        if known_by is WaitsBy.CALLS:
            arrivals = find_arrivals(
                [one.calls for one in events], self._groups(held, by_host=True)
            )
            return step_times(events, arrivals, edges, self.steps)
        groups: list[tuple[int, list[int]]] = []
        if known_by is WaitsBy.LENGTHS:
            groups = self._groups(held, by_host=False)
        compared = np.array([is_compared(operation) for operation, _ in self.names.calls], np.bool_)
        found = waits_by_length(events, edges, groups, compared, self._chains)
        steps, waited = device_step_times(events, found, edges, self.steps)
        self.compared += sum(len(one.start) for one in waited)
        direct = [number for (_, _, is_p2p), number in self.names.groups.items() if is_p2p]
        for one, edge in zip(events, edges, strict=True):
            inside = (one.calls.time >= edge[0]) & (one.calls.time < edge[-1])
            self.sends += int(np.isin(one.calls.group[inside], direct).sum())
        return replace(steps, waits_by=known_by), waited
