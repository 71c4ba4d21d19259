"""The steps of a check over nodes: each node's checks, a collective over all, pairs of nodes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from ipaddress import IPv4Interface
from pathlib import Path

from torchscale.catalog.backends import NCCL, is_nccl
from torchscale.features.cluster.nodes.fleet import Fleet
from torchscale.features.cluster.nodes.messages import CheckStep
from torchscale.features.cluster.nodes.roles import Conclusion, show_notes
from torchscale.features.validate.fleet.checks import (
    StepResult,
    first_problem,
    pairs_seconds,
    read_sent,
    run_step,
)
from torchscale.features.validate.fleet.fleet import judge_fleet
from torchscale.features.validate.fleet.node_part import FleetOptions, NodePart
from torchscale.features.validate.fleet.pairwise_steps import PairwiseSteps
from torchscale.features.validate.fleet.rails import Rail, common_networks, usual_networks
from torchscale.features.validate.fleet.reports import Asked, fleet_node
from torchscale.features.validate.fleet.speeds import judge_speeds
from torchscale.features.validate.health.node import power_limits
from torchscale.features.validate.run.probe import collective_ranks
from torchscale.features.validate.run.validate import requirements_of
from torchscale.launch.control import StopRequest
from torchscale.observer import Observer
from torchscale.schema.launch.nodes import LaunchNode
from torchscale.schema.node.fleet import (
    FleetNode,
    FleetSpeeds,
    FleetValidation,
    NodeReport,
    Pairwise,
    SlowRail,
)
from torchscale.schema.node.policy import Policy
from torchscale.schema.node.probe import CollectiveFacts
from torchscale.util.words import plural

_PROBE_SECONDS = 600.0
"""Time limit for a node's own checks beside the collective and the burn-in: the probe has a bound
of 180 s, a disk may be slow."""
_ROUND_SECONDS = 600.0
"""Time limit for the round of an acceptance that runs when its budget is over."""


class FleetSteps:
    """Runs the steps of a check over the nodes that are there."""

    def __init__(
        self,
        fleet: Fleet,
        options: FleetOptions,
        stop: StopRequest,
        observer: Observer,
        directory: Path,
        *,
        conclusion: Conclusion,
    ) -> None:
        self._fleet, self._options = fleet, options
        self._stop, self._observer, self._directory = stop, observer, directory
        self._steps = 0
        self._addresses: dict[int, tuple[IPv4Interface, ...]] = {}
        self._pairs = PairwiseSteps(
            fleet, stop, observer, self._run_together, options.timeout_seconds
        )
        self.conclusion = conclusion

    def check(self) -> FleetValidation:
        """Every step, and what they say together."""
        nodes = self._check_nodes()
        collective = None
        rails: list[Pairwise] = []
        left_out: Sequence[Rail] = ()
        slow: tuple[SlowRail, ...] = ()
        backend, ranks = _common_ranks(nodes)
        if self._fleet.available > 1 and not self._stop.asked:
            collective = self._run_collective(backend, ranks)
        if self._options.pairwise and self._fleet.available > 1 and not self._stop.asked:
            names = {node.node_rank: node.hostname for node in nodes}
            asked = self._rails(backend, ranks)
            rails = self._pairs.run_rails(backend, names, asked)
            measured = {(each.rail or 0, each.network) for each in rails}
            left_out = [each for each in asked if (each.gpu, each.network) not in measured]
            slow = self._pairs.confirmed(backend, names, rails)
        show_notes(self._fleet, self._observer)
        speeds = policy = None
        if self._options.acceptance is not None:
            policy = self._options.acceptance.policy
            speeds = _speeds(nodes, policy)
        return judge_fleet(
            nodes,
            collective,
            rails,
            slow=slow,
            left_out=[each.gpu for each in left_out if not each.network],
            networks_left_out=[each.network for each in left_out if each.network],
            networks=usual_networks(self._addresses),
            speeds=speeds,
            policy=policy,
        )

    def _rails(self, backend: str, ranks: int) -> list[Rail]:
        """Over NCCL each GPU that every node has, over gloo each network that all nodes are in."""
        if is_nccl(backend):
            return [Rail(gpu=gpu) for gpu in range(ranks)]
        first = self._fleet.layout(1, 1)[0]
        shared = common_networks(list(self._addresses.values()), first.address)
        if len(shared) < 2:
            return [Rail()]
        return [Rail(network=network) for network in shared]

    def _check_nodes(self) -> list[FleetNode]:
        """The checks of every node, all at the same time."""
        layout = self._fleet.layout(self._fleet.available, 1)
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
        reports = {rank: read_sent(path, NodeReport) for rank, path in result.files.items()}
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
        for rank in range(self._fleet.nodes):
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
            policy=None if options.acceptance is None else options.acceptance.policy,
            nodes=nodes,
            began=began,
            ended=time.time(),
        )

    def _run_collective(self, backend: str, ranks: int) -> CollectiveFacts:
        layout = self._fleet.layout(self._fleet.available, ranks)
        step = CheckStep(
            order=0,
            kind="collective",
            node_rank=0,
            nodes=len(layout),
            backend=backend,
            ranks=ranks,
            master_port=self._fleet.free_port(layout),
        )
        with self._observer.status(f"Running a collective over {plural(len(layout), 'node')}"):
            result = self._run(
                layout,
                [step] * len(layout),
                seconds=pairs_seconds(1, self._options.timeout_seconds),
                together=True,
            )
        facts = None
        first = result.files.get(layout[0].node_rank)
        if first is not None and not result.problems:
            facts = read_sent(first, CollectiveFacts)
        if facts is not None:
            return facts
        return CollectiveFacts(
            backend=backend, world_size=len(layout) * ranks, error=first_problem(layout, result)
        )

    def _run_together(
        self, layout: Sequence[LaunchNode], steps: Sequence[CheckStep], seconds: float
    ) -> StepResult:
        return self._run(layout, steps, seconds=seconds, together=True)

    def _run(
        self,
        layout: Sequence[LaunchNode],
        steps: Sequence[CheckStep],
        *,
        seconds: float,
        together: bool,
    ) -> StepResult:
        own = self._fleet.here
        part = None
        if own is not None:
            part = NodePart(self._options, own.address, own.address, self._observer).run
        self._steps += 1
        directory = self._directory / str(self._steps)
        directory.mkdir()
        return run_step(
            self._fleet,
            layout,
            steps,
            part,
            directory=directory,
            seconds=seconds,
            stop=self._stop,
            together=together,
        )


def _speeds(nodes: Sequence[FleetNode], policy: Policy) -> FleetSpeeds:
    """The speeds of all nodes that sent theirs."""
    validations = {node.node_rank: node.validation for node in nodes if node.validation is not None}
    runs = {
        rank: validation.acceptance.run
        for rank, validation in validations.items()
        if validation.acceptance is not None
    }
    limits = {rank: power_limits(validation.facts) for rank, validation in validations.items()}
    return judge_speeds(runs, limits, policy.return_percent)


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
