"""``validate`` over several nodes: who takes part, what is put together, how it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from ipaddress import IPv4Interface
from pathlib import Path
from typing import cast

import pytest

from tests.features.validate.fleet.test_fleet import fleet_node
from torchscale.config.choices import Requirement
from torchscale.errors import ExitCode, UsageError
from torchscale.features.cluster.nodes.leader import Leader
from torchscale.features.cluster.nodes.roles import Conclusion
from torchscale.features.validate.fleet import pairwise_steps
from torchscale.features.validate.fleet.checks import read_sent
from torchscale.features.validate.fleet.fleet import judge_fleet
from torchscale.features.validate.fleet.node_part import FleetOptions
from torchscale.features.validate.fleet.pair_rounds import MeasuredPairs, partner_of
from torchscale.features.validate.fleet.pairwise_steps import PairwiseSteps
from torchscale.features.validate.fleet.rails import Rail
from torchscale.features.validate.fleet.run import FleetOutcome, join_fleet
from torchscale.features.validate.fleet.steps import FleetSteps
from torchscale.launch.control import StopRequest
from torchscale.measure.nodes import NodeOptions
from torchscale.observer import SILENT
from torchscale.schema.node.fleet import (
    FleetNode,
    MeasuredPair,
    NodeReport,
    PairTimes,
    Pairwise,
    PairwiseStatus,
    PartnerTimes,
)


def test_options_that_all_nodes_must_share_are_compared_by_their_names() -> None:
    options = FleetOptions(
        require=(Requirement.NCCL, Requirement.CUDA), timeout_seconds=90.0, pairwise=True
    )
    assert options.settings == {
        "--require": "cuda,nccl",
        "--min-gpus": "0",
        "--timeout": "90 s",
        "--burn-in": "none",
        "--pairwise": "true",
        "--acceptance": "none",
    }


def test_a_single_node_needs_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHSCALE_TOKEN", raising=False)
    assert join_fleet(NodeOptions()) is None
    with pytest.raises(UsageError, match="TORCHSCALE_TOKEN is not set"):
        join_fleet(NodeOptions(nodes=2, node_rank=0, master="10.0.0.1"))


def test_a_slurm_step_says_which_node_this_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    step = {
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_NODES": "4",
        "SLURM_STEP_NUM_TASKS": "4",
        "SLURM_NODEID": "2",
        "SLURM_STEP_NODELIST": "gpu[01-04]",
        "SLURM_JOB_ID": "7",
    }
    for name, value in step.items():
        monkeypatch.setenv(name, value)
    secret = tmp_path / "token"
    secret.write_text("correct horse battery staple")
    joined = join_fleet(NodeOptions(token_file=secret))
    assert joined is not None
    cluster = joined.cluster
    assert cluster is not None
    assert (cluster.nodes, cluster.node_rank, cluster.master) == (4, 2, "gpu01:20007")
    assert joined.token == b"correct horse battery staple"


def outcome(*nodes: FleetNode, interrupted: bool = False) -> ExitCode:
    """The exit code of a fleet."""
    return FleetOutcome(judge_fleet(nodes, None), interrupted).exit_code


def test_exit_codes() -> None:
    absent = FleetNode(node_rank=1, hostname="?", address="", error="it did not join")
    assert outcome(fleet_node(0), fleet_node(1)) == ExitCode.OK
    assert outcome(fleet_node(0), absent) == ExitCode.FAILED
    assert outcome(fleet_node(0), fleet_node(1, lacks_required=True)) == ExitCode.UNABLE
    assert outcome(fleet_node(0), absent, interrupted=True) == ExitCode.INTERRUPTED


def test_times_add_up_over_rounds_and_a_pair_that_is_not_complete_has_failed() -> None:
    times = MeasuredPairs()
    first = PairTimes(partners=(PartnerTimes(partner=1, seconds=(1.0, 2.0)),))
    times.add([(0, 1), (2, 3)], 2, {0: first, 2: None})
    assert times.seconds == {(0, 1): (1.0, 2.0)}
    assert times.repeated == set()
    assert times.errors == {(2, 3): "the node sent no times"}
    times.add([(0, 1)], 2, {0: first})
    assert times.seconds == {(0, 1): (1.0, 2.0, 1.0, 2.0)}
    assert times.repeated == {(0, 1)}
    times.add([(0, 1)], 2, {0: PairTimes(partners=(PartnerTimes(partner=1, error="timed out"),))})
    assert times.seconds == {}
    assert times.errors[0, 1] == "timed out"


def test_the_partner_of_a_round() -> None:
    assert [partner_of(place, ((0, 3), (1, 2))) for place in range(5)] == [3, 2, 1, 0, None]


def test_what_a_node_sends_is_parsed_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    for text in ("", "{}", '{"validation": 1}', "[" * 100_000, "\x00"):
        path.write_text(text)
        assert read_sent(path, NodeReport) is None
    assert read_sent(tmp_path / "absent", NodeReport) is None


def pairs_of_rail(rail: int | None, seconds: float = 0.010) -> Pairwise:
    """Two nodes: one pair."""
    times = (seconds, 1.01 * seconds, 0.99 * seconds, 1.02 * seconds, 0.98 * seconds)
    return Pairwise(
        backend="gloo" if rail is None else "nccl",
        message_bytes=4,
        rail=rail,
        status=PairwiseStatus.CANNOT_TELL,
        verdict="two nodes have one link",
        pairs=(MeasuredPair(nodes=(0, 1), seconds=times),),
    )


class Steps(PairwiseSteps):
    """Steps whose pairs are measured by ``answer``: how long they take on a rail, and how often
    that rail was asked before."""

    def __init__(self, answer: Callable[[int, int], float]) -> None:
        self._answer, self._stop = answer, StopRequest()
        self.asked: list[int] = []

    def _run_pairwise(
        self, backend: str, names: dict[int, str], rail: Rail, rails: int
    ) -> Pairwise:
        seconds = self._answer(rail.gpu, self.asked.count(rail.gpu))
        self.asked.append(rail.gpu)
        return pairs_of_rail(rail.gpu if backend == "nccl" else None, seconds)


def gpus(count: int) -> list[Rail]:
    return [Rail(gpu=gpu) for gpu in range(count)]


def test_every_gpu_of_the_nodes_is_measured_in_turn() -> None:
    steps = Steps(lambda rail, before: 0.010)
    rails = steps.run_rails("nccl", {}, gpus(8))
    assert steps.asked == [each.rail for each in rails] == list(range(8))
    assert steps.confirmed("nccl", {}, rails) == ()
    assert len(steps.asked) == 8, "nothing is measured again where nothing is slow"


def test_rails_are_left_out_where_the_time_does_not_suffice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter(range(0, 10_000, 100))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(pairwise_steps, "RAILS_SECONDS", 350.0)
    assert len(Steps(lambda rail, before: 0.010).run_rails("nccl", {}, gpus(8))) == 3


@pytest.mark.parametrize(("again", "named"), [(0.014, [5]), (0.010, [])])
def test_a_slow_rail_is_named_once_it_is_slow_again(again: float, named: list[int]) -> None:
    def answer(rail: int, before: int) -> float:
        if rail != 5:
            return 0.010
        return (0.014, again)[before]

    steps = Steps(answer)
    rails = steps.run_rails("nccl", {}, gpus(8))
    assert [slow.rail for slow in steps.confirmed("nccl", {}, rails)] == named
    assert steps.asked == [*range(8), 5]


def test_over_gloo_there_is_one_measurement_and_no_rail() -> None:
    steps = Steps(lambda rail, before: 0.010)
    (only,) = steps.run_rails("gloo", {}, [Rail()])
    assert only.rail is None
    assert steps.confirmed("gloo", {}, [only]) == ()


class Networks(Steps):
    """Steps over gloo, where no pair reaches each other in some networks."""

    def __init__(self, apart: str) -> None:
        super().__init__(lambda rail, before: 0.010)
        self._apart = apart

    def _run_pairwise(
        self, backend: str, names: dict[int, str], rail: Rail, rails: int
    ) -> Pairwise:
        pairwise = pairs_of_rail(None).model_copy(update={"network": rail.network})
        if rail.network != self._apart:
            return pairwise
        failed = MeasuredPair(nodes=(0, 1), error="timed out")
        return pairwise.model_copy(update={"status": PairwiseStatus.FAILED, "pairs": (failed,)})


def test_a_further_network_that_joins_no_nodes_is_none_of_theirs() -> None:
    asked = [Rail(network="a"), Rail(network="b"), Rail(network="c")]
    found = Networks(apart="b").run_rails("gloo", {}, asked)
    assert [each.network for each in found] == ["a", "c"]


def test_the_network_that_leads_to_node_0_fails_where_it_joins_nobody() -> None:
    found = Networks(apart="a").run_rails("gloo", {}, [Rail(network="a"), Rail(network="b")])
    assert [each.status for each in found] == [PairwiseStatus.FAILED, PairwiseStatus.CANNOT_TELL]


class Alone:
    """A leader that no other node has left to measure with."""

    available = 1

    def take_notes(self) -> list[str]:
        return []


class Checked(FleetSteps):
    """Three nodes that were checked, of which the last has one network less."""

    def _check_nodes(self) -> list[FleetNode]:
        self._addresses = {
            rank: tuple(
                IPv4Interface(f"10.{network}.0.{rank + 1}/24") for network in range(2 - rank // 2)
            )
            for rank in range(3)
        }
        return [fleet_node(rank) for rank in range(3)]


def test_a_node_with_a_network_less_than_the_others_is_said_to_differ(tmp_path: Path) -> None:
    steps = Checked(
        cast("Leader", Alone()),
        FleetOptions(),
        StopRequest(),
        SILENT,
        tmp_path,
        conclusion=cast("Conclusion", None),
    )
    (difference,) = steps.check().differences
    assert difference.title == "networks"
    both = "10.0.0.0/24, 10.1.0.0/24"
    assert difference.values == (both, both, "10.0.0.0/24")
