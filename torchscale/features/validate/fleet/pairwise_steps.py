"""The pairs of nodes of a check, measured with each rail in turn, and again where something is
slow."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from torchscale.catalog.backends import is_nccl
from torchscale.features.cluster.nodes.fleet import Fleet
from torchscale.features.cluster.nodes.messages import CheckStep
from torchscale.features.validate.fleet.checks import (
    PAIR_BYTES,
    StepResult,
    first_problem,
    pairs_seconds,
    read_sent,
)
from torchscale.features.validate.fleet.fleet import judge_pairwise
from torchscale.features.validate.fleet.pair_regression import Pair
from torchscale.features.validate.fleet.pair_rounds import (
    MeasuredPairs,
    disjoint_rounds,
    partner_of,
    rounds,
)
from torchscale.features.validate.fleet.rails import Rail, slow_rails
from torchscale.launch.control import StopRequest
from torchscale.observer import Observer
from torchscale.schema.launch.nodes import LaunchNode
from torchscale.schema.node.fleet import PairTimes, Pairwise, PairwiseStatus, SlowRail
from torchscale.util.words import plural

REPEATS = 5
"""All-reduces of each pair: more than the median needs against one that was disturbed."""
ASKS = 2
"""How often pairs are measured again that are unclear, or that are slow and were measured once;
each time with twice as many all-reduces, so that times that one disturbance slowed are outvoted."""
RAILS_SECONDS = 600.0
"""Time limit for the pairs of all rails together. Each node makes a communicator for every pair and
rail, one after the other: of 16 nodes with eight GPUs 120. Rails that do not fit are named."""
RunTogether = Callable[[Sequence[LaunchNode], Sequence[CheckStep], float], StepResult]
"""Runs a step of all nodes at the same time, within so many seconds."""


class PairwiseSteps:
    """Measures all pairs of the nodes that are there."""

    def __init__(
        self,
        fleet: Fleet,
        stop: StopRequest,
        observer: Observer,
        run_step: RunTogether,
        timeout_seconds: float,
    ) -> None:
        self._fleet, self._stop, self._observer = fleet, stop, observer
        self._run_step, self._timeout_seconds = run_step, timeout_seconds

    def run_rails(
        self, backend: str, names: dict[int, str], asked: Sequence[Rail]
    ) -> list[Pairwise]:
        """All pairs with each of the rails in turn, as many as there is time for, until pairs cannot
        be measured at all or the user stops it. A further network that joins no two nodes is none of
        theirs."""
        started = time.monotonic()
        rails: list[Pairwise] = []
        for tried, rail in enumerate(asked, start=1):
            pairwise = self._run_pairwise(backend, names, rail, len(asked))
            if not (rails and rail.network and _joins_nobody(pairwise)):
                rails.append(pairwise)
            if not pairwise.pairs or self._stop.asked:
                break
            spent = time.monotonic() - started
            if spent / tried * (tried + 1) > RAILS_SECONDS:
                break
        return rails

    def confirmed(
        self, backend: str, names: dict[int, str], rails: list[Pairwise]
    ) -> tuple[SlowRail, ...]:
        """Rails that are slow between all nodes, and again a moment later; the second times
        replace the first ones in ``rails``."""
        first = slow_rails(rails)
        if not first or self._stop.asked:
            return ()
        for slow in first:
            rail = Rail(gpu=slow.rail)
            rails[slow.rail] = self._run_pairwise(backend, names, rail, len(rails))
        suspected = {slow.rail for slow in first}
        return tuple(slow for slow in slow_rails(rails) if slow.rail in suspected)

    def _run_pairwise(
        self, backend: str, names: dict[int, str], rail: Rail, rails: int
    ) -> Pairwise:
        """All pairs with one of the ``rails`` of each node, then those again that are unclear, or
        that a node or link is to be blamed for."""
        gpu, where = None, ""
        if is_nccl(backend):
            gpu, where = rail.gpu, f" with GPU {rail.gpu} of each"
        if rail.network:
            where = f" in network {rail.network}"
        layout = self._fleet.layout(self._fleet.available, 1)
        ranks = [node.node_rank for node in layout]
        times = MeasuredPairs()
        schedule, repeats = rounds(len(layout)), REPEATS
        for ask in range(1 + ASKS):
            pairs = sum(len(made) for made in schedule)
            again = "again " if ask else ""
            what = (
                f"Measuring {again}{plural(pairs, 'pair')} of nodes in "
                f"{plural(len(schedule), 'round')}{where}"
            )
            with self._observer.status(what):
                problem = self._measure_pairs(layout, backend, schedule, repeats, times, rail=rail)
            if problem:
                return Pairwise(
                    backend=backend,
                    message_bytes=PAIR_BYTES[backend],
                    rail=gpu,
                    network=rail.network,
                    status=PairwiseStatus.FAILED,
                    verdict=f"the pairs could not be measured: {problem}",
                    pairs=(),
                )
            pairwise, ask_again = judge_pairwise(
                ranks,
                names,
                times.seconds,
                times.errors,
                backend=backend,
                message_bytes=PAIR_BYTES[backend],
                repeated=times.repeated,
                rail=gpu,
                network=rail.network,
                rails=rails,
            )
            if not ask_again or self._stop.asked:
                break
            schedule, repeats = disjoint_rounds(ask_again), 2 * repeats
        return pairwise

    def _measure_pairs(
        self,
        layout: Sequence[LaunchNode],
        backend: str,
        schedule: Sequence[Sequence[Pair]],
        repeats: int,
        times: MeasuredPairs,
        *,
        rail: Rail,
    ) -> str:
        """Add the times of ``schedule`` to ``times``. Returns why there are none."""
        partners = [[partner_of(place, made) for made in schedule] for place in range(len(layout))]
        port = self._fleet.free_port(layout)
        steps = [
            CheckStep(
                order=0,
                kind="pairs",
                node_rank=place,
                nodes=len(layout),
                backend=backend,
                master_port=port,
                partners=tuple(partners[place]),
                repeats=repeats,
                gpu=rail.gpu,
                network=rail.network,
            )
            for place in range(len(layout))
        ]
        bound = pairs_seconds(len(schedule), self._timeout_seconds)
        result = self._run_step(layout, steps, bound)
        if result.problems:
            return first_problem(layout, result)
        files = {place: result.files.get(node.node_rank) for place, node in enumerate(layout)}
        sent = {
            place: read_sent(path, PairTimes) for place, path in files.items() if path is not None
        }
        times.add({pair for made in schedule for pair in made}, repeats, sent)
        return ""


def _joins_nobody(pairwise: Pairwise) -> bool:
    return bool(pairwise.pairs) and all(pair.error for pair in pairwise.pairs)
