"""What one node of a fleet does in each step of a check."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from torchscale.config.choices import Requirement
from torchscale.errors import TorchscaleError
from torchscale.features.cluster.nodes.messages import CheckStep
from torchscale.features.cluster.nodes.network import networks
from torchscale.features.validate.fleet.checks import (
    RESULT,
    IsOver,
    node_place,
    run_collective,
    run_pairs,
)
from torchscale.features.validate.run.acceptance import AcceptanceOptions
from torchscale.features.validate.run.validate import TIMEOUT_SECONDS, validate
from torchscale.observer import SILENT, Observer
from torchscale.schema.ident import content_hash
from torchscale.schema.node.fleet import NodeReport
from torchscale.schema.node.policy import Policy
from torchscale.store.locations import RESULTS
from torchscale.util.files import atomic_write_model

_NETWORK_SECONDS = 20.0
"""Time limit for the all-reduces of a pair in one of several networks, which may not join the nodes:
4 MiB at 2 Mbit/s."""


@dataclass(frozen=True)
class FleetOptions:
    """What is checked on every node; see :func:`torchscale.features.validate.run.validate.validate`.
    ``pairwise``: also all pairs. ``acceptance``: also the speeds of each node."""

    require: tuple[Requirement, ...] = ()
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
        if self.acceptance.policy != Policy():
            text += f", policy {content_hash(self.acceptance.policy.model_dump(mode='json'))}"
        return text


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
        master = step.master_address or self.leader_address
        place = node_place(step, master, self.local_address)
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
