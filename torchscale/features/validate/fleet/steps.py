"""The steps of a check over nodes: each node's checks, a collective over all, pairs of nodes; and what
one node does in each."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Interface
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from torchscale.catalog.backends import NCCL, is_nccl
from torchscale.config.choices import Requirement
from torchscale.errors import TorchscaleError
from torchscale.features.cluster.nodes.leader import Leader
from torchscale.features.cluster.nodes.messages import CheckStep
from torchscale.features.cluster.nodes.network import free_port, networks
from torchscale.features.cluster.nodes.roles import Conclusion, show_notes
from torchscale.features.validate.fleet.checks import (
    PAIR_BYTES,
    RESULT,
    IsOver,
    StepResult,
    node_place,
    pairs_seconds,
    run_collective,
    run_pairs,
    run_step,
)
from torchscale.features.validate.fleet.fleet import judge_fleet, judge_pairwise
from torchscale.features.validate.fleet.pairwise import Pair, disjoint_rounds, rounds
from torchscale.features.validate.fleet.rails import (
    Rail,
    common_networks,
    slow_rails,
    usual_networks,
)
from torchscale.features.validate.fleet.reports import Asked, fleet_node
from torchscale.features.validate.fleet.speeds import judge_speeds
from torchscale.features.validate.health.node import power_limits
from torchscale.features.validate.run.acceptance import AcceptanceOptions
from torchscale.features.validate.run.probe import collective_ranks
from torchscale.features.validate.run.validate import TIMEOUT_SECONDS, requirements_of, validate
from torchscale.launch.control import StopRequest
from torchscale.observer import SILENT, Observer
from torchscale.schema.launch.nodes import LaunchNode
from torchscale.schema.node.fleet import (
    FleetNode,
    FleetSpeeds,
    FleetValidation,
    NodeReport,
    PairTimes,
    Pairwise,
    PairwiseStatus,
    SlowRail,
)
from torchscale.schema.node.probe import CollectiveFacts
from torchscale.store.locations import RESULTS
from torchscale.util.files import atomic_write_model, read_bounded
from torchscale.util.words import plural

M = TypeVar("M", bound=BaseModel)

REPEATS = 5
"""All-reduces of each pair: more than the median needs against one that was disturbed."""
ASKS = 2
"""How often pairs are measured again that are unclear, or that are slow and were measured once;
each time with twice as many all-reduces, so that times that one disturbance slowed are outvoted."""
RAILS_SECONDS = 600.0
"""Time limit for the pairs of all rails together. Each node makes a communicator for every pair and
rail, one after the other: of 16 nodes with eight GPUs 120. Rails that do not fit are named."""
_NETWORK_SECONDS = 20.0
"""Time limit for the all-reduces of a pair in one of several networks, which may not join the nodes:
4 MiB at 2 Mbit/s."""
_PROBE_SECONDS = 600.0
"""Time limit for a node's own checks beside the collective and the burn-in: the probe has a bound
of 180 s, a disk may be slow."""
_ROUND_SECONDS = 600.0
"""Time limit for the round of an acceptance that runs when its budget is over."""
_MAX_RESULT_BYTES = 16 << 20
"""Largest size of a node's file: the checks and facts of 16 GPUs take 0.2 MB."""


@dataclass(frozen=True)
class FleetOptions:
    """What is checked on every node; see :func:`torchscale.features.validate.run.validate.validate`.
    ``pairwise``: also all pairs. ``acceptance``: also the speeds of each node."""

    require: Collection[Requirement] = ()
    min_gpus: int = 0
    output_dir: Path = RESULTS
    timeout_seconds: float = TIMEOUT_SECONDS
    burn_in_seconds: float | None = None
    pairwise: bool = False
    acceptance: AcceptanceOptions | None = None

    @property
    def settings(self) -> dict[str, str]:
        """What must be equal on all nodes."""
        return {
            "--require": ",".join(sorted(each.value for each in self.require)),
            "--min-gpus": str(self.min_gpus),
            "--timeout": f"{self.timeout_seconds:g} s",
            "--burn-in": "none" if self.burn_in_seconds is None else f"{self.burn_in_seconds:g} s",
            "--pairwise": str(self.pairwise).lower(),
            "--acceptance": self._acceptance,
        }

    @property
    def _acceptance(self) -> str:
        if self.acceptance is None:
            return "none"
        text = f"{self.acceptance.budget_seconds:g} s"
        if self.acceptance.baseline is not None:
            text += f", baseline {self.acceptance.baseline.source}"
        return text


@dataclass
class _Times:
    """Times of pairs of places: all that were measured so far, which pairs were measured more than
    once, and why a pair has none."""

    seconds: dict[Pair, tuple[float, ...]] = field(default_factory=dict)
    repeated: set[Pair] = field(default_factory=set)
    errors: dict[Pair, str] = field(default_factory=dict)

    def add(
        self, pairs: Collection[Pair], repeats: int, sent: Mapping[int, PairTimes | None]
    ) -> None:
        """What the nodes sent (place → times) of ``pairs``; a pair that is not complete has
        failed."""
        measured = {
            (place, entry.partner): entry
            for place, times in sent.items()
            if times is not None
            for entry in times.partners
        }
        for pair in pairs:
            entry = measured.get(pair)
            if entry is not None and len(entry.seconds) == repeats:
                if pair in self.seconds:
                    self.repeated.add(pair)
                self.seconds[pair] = (*self.seconds.get(pair, ()), *entry.seconds)
            else:
                self.seconds.pop(pair, None)
                self.errors[pair] = "the node sent no times"
                if entry is not None and entry.error:
                    self.errors[pair] = entry.error


class FleetSteps:
    """Runs the steps of a check over the nodes that are there."""

    def __init__(
        self,
        leader: Leader,
        options: FleetOptions,
        stop: StopRequest,
        observer: Observer,
        directory: Path,
        *,
        conclusion: Conclusion,
    ) -> None:
        self._leader, self._options = leader, options
        self._stop, self._observer, self._directory = stop, observer, directory
        self._steps = 0
        self._addresses: dict[int, tuple[IPv4Interface, ...]] = {}
        self.conclusion = conclusion

    def check(self) -> FleetValidation:
        """Every step, and what they say together."""
        nodes = self._check_nodes()
        collective = None
        rails: list[Pairwise] = []
        left_out: Sequence[Rail] = ()
        slow: tuple[SlowRail, ...] = ()
        backend, ranks = _common_ranks(nodes)
        if self._leader.available > 1 and not self._stop.asked:
            collective = self._run_collective(backend, ranks)
        if self._options.pairwise and self._leader.available > 1 and not self._stop.asked:
            names = {node.node_rank: node.hostname for node in nodes}
            asked = self._rails(backend, ranks)
            rails = self._run_rails(backend, names, asked)
            measured = {(each.rail or 0, each.network) for each in rails}
            left_out = [each for each in asked if (each.gpu, each.network) not in measured]
            slow = self._confirmed(backend, names, rails)
        show_notes(self._leader, self._observer)
        speeds = None
        if self._options.acceptance is not None:
            speeds = _speeds(nodes)
        return judge_fleet(
            nodes,
            collective,
            rails,
            slow=slow,
            left_out=[each.gpu for each in left_out if not each.network],
            networks_left_out=[each.network for each in left_out if each.network],
            networks=usual_networks(self._addresses),
            speeds=speeds,
        )

    def _rails(self, backend: str, ranks: int) -> list[Rail]:
        """Over NCCL each GPU that every node has, over gloo each network that all nodes are in."""
        if is_nccl(backend):
            return [Rail(gpu=gpu) for gpu in range(ranks)]
        shared = common_networks(list(self._addresses.values()), self._leader.address)
        if len(shared) < 2:
            return [Rail()]
        return [Rail(network=network) for network in shared]

    def _run_rails(
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

    def _confirmed(
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

    def _check_nodes(self) -> list[FleetNode]:
        """The checks of every node, all at the same time."""
        layout = self._leader.layout(self._leader.available, 1)
        options = self._options
        seconds = (
            _PROBE_SECONDS + 2 * options.timeout_seconds + 2 * (options.burn_in_seconds or 0.0)
        )
        if options.acceptance is not None:
            seconds += 2 * options.acceptance.budget_seconds + _ROUND_SECONDS
        steps = [CheckStep(order=0, kind="node", node_rank=0, nodes=len(layout))] * len(layout)
        began = time.time()
        with self._observer.status(f"Checking {plural(len(layout), 'node')}"):
            result = self._run(layout, steps, seconds=seconds, together=False)
        reports = {rank: _read(path, NodeReport) for rank, path in result.files.items()}
        self._addresses = {
            rank: report.addresses for rank, report in reports.items() if report is not None
        }
        asked = self._asked(len(layout), began)
        nodes = [
            fleet_node(
                node, reports.get(node.node_rank), result.problems.get(node.node_rank, ""), asked
            )
            for node in layout
        ]
        present = {node.node_rank for node in layout}
        for rank in range(self._leader.nodes):
            if rank not in present:
                reason = "it did not join"
                if self._stop.asked:
                    reason = "interrupted before it joined"
                nodes.append(FleetNode(node_rank=rank, hostname="?", address="", error=reason))
        return sorted(nodes, key=lambda node: node.node_rank)

    def _asked(self, nodes: int, began: float) -> Asked:
        """What each of so many nodes was asked for from ``began`` until now."""
        options = self._options
        return Asked(
            requirements=requirements_of(options.require, options.min_gpus),
            burn_in=options.burn_in_seconds is not None,
            acceptance=options.acceptance is not None,
            baseline=None if options.acceptance is None else options.acceptance.baseline,
            nodes=nodes,
            began=began,
            ended=time.time(),
        )

    def _run_collective(self, backend: str, ranks: int) -> CollectiveFacts:
        layout = self._leader.layout(self._leader.available, ranks)
        step = CheckStep(
            order=0,
            kind="collective",
            node_rank=0,
            nodes=len(layout),
            backend=backend,
            ranks=ranks,
            master_port=free_port(self._leader.address),
        )
        with self._observer.status(f"Running a collective over {plural(len(layout), 'node')}"):
            result = self._run(
                layout,
                [step] * len(layout),
                seconds=pairs_seconds(1, self._options.timeout_seconds),
                together=True,
            )
        facts = None
        if 0 in result.files and not result.problems:
            facts = _read(result.files[0], CollectiveFacts)
        if facts is not None:
            return facts
        return CollectiveFacts(
            backend=backend, world_size=len(layout) * ranks, error=_first_problem(layout, result)
        )

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
        layout = self._leader.layout(self._leader.available, 1)
        ranks = [node.node_rank for node in layout]
        times = _Times()
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
        times: _Times,
        *,
        rail: Rail,
    ) -> str:
        """Add the times of ``schedule`` to ``times``. Returns why there are none."""
        partners = [[_partner(place, made) for made in schedule] for place in range(len(layout))]
        port = free_port(self._leader.address)
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
        bound = pairs_seconds(len(schedule), self._options.timeout_seconds)
        result = self._run(layout, steps, seconds=bound, together=True)
        if result.problems:
            return _first_problem(layout, result)
        files = {place: result.files.get(node.node_rank) for place, node in enumerate(layout)}
        sent = {place: _read(path, PairTimes) for place, path in files.items() if path is not None}
        times.add({pair for made in schedule for pair in made}, repeats, sent)
        return ""

    def _run(
        self,
        layout: Sequence[LaunchNode],
        steps: Sequence[CheckStep],
        *,
        seconds: float,
        together: bool,
    ) -> StepResult:
        address = self._leader.address
        here = NodePart(self._options, address, address, self._observer)
        self._steps += 1
        directory = self._directory / str(self._steps)
        directory.mkdir()
        return run_step(
            self._leader,
            layout,
            steps,
            here.run,
            directory=directory,
            seconds=seconds,
            stop=self._stop,
            together=together,
        )


@dataclass(frozen=True)
class NodePart:
    """Runs this node's part of a step."""

    options: FleetOptions
    leader_address: str
    local_address: str
    observer: Observer

    def run(self, step: CheckStep, directory: Path, is_over: IsOver) -> str:
        """Returns why it failed; empty where it did not."""
        self.observer.detail(f"{step.kind} step, node {step.node_rank} of {step.nodes}")
        try:
            return self._run(step, directory, is_over)
        except TorchscaleError as error:
            return error.message

    def _of_fleet(self, nodes: int) -> AcceptanceOptions | None:
        """The acceptance of one of so many nodes, which share the false alarms."""
        if self.options.acceptance is None:
            return None
        return replace(self.options.acceptance, nodes=nodes)

    def _run(self, step: CheckStep, directory: Path, is_over: IsOver) -> str:
        options = self.options
        place = node_place(step, self.leader_address, self.local_address)
        seconds = options.timeout_seconds
        if step.kind == "collective":
            return run_collective(step, place, directory, timeout_seconds=seconds, is_over=is_over)
        if step.kind == "pairs":
            if step.network:
                seconds = min(seconds, _NETWORK_SECONDS)
            return run_pairs(step, place, directory, timeout_seconds=seconds, is_over=is_over)
        outcome = validate(
            require=options.require,
            min_gpus=options.min_gpus,
            output_dir=options.output_dir,
            timeout_seconds=seconds,
            burn_in_seconds=options.burn_in_seconds,
            acceptance=self._of_fleet(step.nodes),
            observer=self.observer if options.acceptance is not None else SILENT,
        )
        report = NodeReport(
            validation=outcome.validation,
            addresses=tuple(networks()),
        )
        atomic_write_model(directory / RESULT, report)
        return ""


def _speeds(nodes: Sequence[FleetNode]) -> FleetSpeeds:
    """The speeds of all nodes that sent theirs."""
    validations = {node.node_rank: node.validation for node in nodes if node.validation is not None}
    runs = {
        rank: validation.acceptance.run
        for rank, validation in validations.items()
        if validation.acceptance is not None
    }
    limits = {rank: power_limits(validation.facts) for rank, validation in validations.items()}
    return judge_speeds(runs, limits)


def _joins_nobody(pairwise: Pairwise) -> bool:
    return bool(pairwise.pairs) and all(pair.error for pair in pairwise.pairs)


def _read(path: Path, model: type[M]) -> M | None:
    """What a node sent; ``None`` where it is not what was asked for."""
    try:
        return model.model_validate_json(read_bounded(path, _MAX_RESULT_BYTES))
    except (OSError, ValidationError):
        return None


def _common_ranks(nodes: Sequence[FleetNode]) -> tuple[str, int]:
    """Backend and ranks on each node: NCCL on as many GPUs as every node has, or gloo where one has
    none."""
    checked = [
        collective_ranks(node.validation.facts) for node in nodes if node.validation is not None
    ]
    backends = {backend for backend, _ in checked}
    if backends == {NCCL}:
        return NCCL, min(ranks for _, ranks in checked)
    return "gloo", 1


def _partner(place: int, pairs: Sequence[Pair]) -> int | None:
    """The other node of the pair that ``place`` is in."""
    return next((sum(pair) - place for pair in pairs if place in pair), None)


def _first_problem(layout: Sequence[LaunchNode], result: StepResult) -> str:
    """The most telling failure: where one node fails, the others only lose it."""
    names = {node.node_rank: node.hostname for node in layout}
    if not result.problems:
        return "no result that this version understands"
    rank, reason = min(result.problems.items())
    return f"{reason} (node {rank}, {names[rank]})"
