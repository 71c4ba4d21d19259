from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.factories import VERSIONS, cells, environment
from tests.features.compare.analysis.test_compare import result, side
from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.peers import PeerMachine, machine_places
from torchscale.features.compare.peers_schema import MachinePlace, PeersExport
from torchscale.schema.launch.transport import Transport, Way, WayKind

(CELL, OTHER_CELL, *_) = cells()
NVLINK = Transport(ways=(Way(kind=WayKind.P2P, name="P2P/CUMEM", link="NVLink"),))


def machine(
    name: str, rates: Sequence[float], driver: str = "550.54", **of_cell: Any
) -> PeerMachine:
    """A machine with a cell whose launches had these throughputs."""
    versions = VERSIONS.model_copy(update={"driver": driver})
    content = {"nodes": 1, "backend": "nccl", "transport": NVLINK, **of_cell}
    results = side(
        result(CELL, rates, **content),
        name=name,
        environment=environment(8, hostname=name, versions=versions),
    )
    return PeerMachine(name, results)


def fleet(levels: Sequence[float]) -> list[PeerMachine]:
    return [machine(f"node-{place}", [level]) for place, level in enumerate(levels)]


def place(report: PeersExport, metric: Metric = Metric.THROUGHPUT) -> MachinePlace:
    (found,) = (one for one in report.places if one.metric is metric)
    return found


def test_the_percentile_is_the_share_of_machines_that_are_worse_with_its_interval() -> None:
    others = fleet([90.0 + number for number in range(20)])
    found = place(machine_places(machine("new", [93.0, 94.0]), others, ()))
    assert (found.worse, found.equal, len(found.others)) == (4, 0, 20)
    assert found.value == pytest.approx(93.5, abs=0.01)
    assert found.percentile == pytest.approx(0.2)
    assert found.interval == pytest.approx((0.0573, 0.4366), abs=1e-4)
    assert found.spread == pytest.approx(0.0076, abs=1e-4)
    assert found.launches == 2


def test_few_machines_give_no_percentile_but_still_say_how_many_are_worse() -> None:
    found = place(machine_places(machine("new", [100.0]), fleet([90, 95, 105, 110]), ()))
    assert (found.worse, found.percentile, found.spread) == (2, None, None)
    assert found.interval is not None
    assert found.interval[1] - found.interval[0] > 0.5
    alone = place(machine_places(machine("new", [100.0]), [machine("x", [1], torch="2.0")], ()))
    assert (alone.others, alone.interval, alone.percentile) == ((), None, None)


def test_less_is_better_for_some_metrics() -> None:
    others = fleet([50.0] * 5 + [200.0] * 15)  # step p95 is ten over the rate
    found = place(
        machine_places(machine("new", [100.0]), others, [Metric.STEP_P95]), Metric.STEP_P95
    )
    assert found.worse == 5
    assert found.others[0] > found.others[-1], "the worst first"


def test_equal_figures_are_neither_worse_nor_better() -> None:
    found = place(machine_places(machine("new", [100.0]), fleet([100.0] * 20), ()))
    assert (found.worse, found.equal) == (0, 20)
    assert found.percentile is None, "it may be anywhere"


@pytest.mark.parametrize(
    ("other", "condition", "here", "there"),
    [
        (machine("b", [1], torch="2.12"), "torch", "2.13.0", "2.12"),
        (machine("b", [1], device="NVIDIA A100"), "device", "NVIDIA H100", "NVIDIA A100"),
        (machine("b", [1], transport=None), "transport", "P2P/CUMEM over NVLink", ""),
        (machine("b", [1], nodes=2), "nodes", "1", "2"),
        (machine("b", [1], backend="gloo"), "backend", "nccl", "gloo"),
        (machine("b", [1], driver="560.28"), "driver", "550.54", "560.28"),
    ],
)
def test_machines_under_other_conditions_are_left_out_by_name(
    other: PeerMachine, condition: str, here: str, there: str
) -> None:
    found = place(machine_places(machine("new", [100.0]), [machine("a", [90]), other], ()))
    assert len(found.others) == 1
    (left,) = found.left_out
    assert (left.name, left.condition, left.here, left.there) == ("b", condition, here, there)


def test_names_of_adapters_do_not_tell_machines_apart_and_ways_do() -> None:
    ways = {
        name: Transport(ways=(Way(kind=kind, name=text, devices=(device,)),))
        for name, kind, text, device in (
            ("new", WayKind.IB, "NET/IB", "mlx5_0"),
            ("alike", WayKind.IB, "NET/IB", "mlx5_7"),
            ("other", WayKind.SOCKET, "NET/Socket", "eth0"),
        )
    }
    new, *others = (machine(name, [100.0], transport=moved) for name, moved in ways.items())
    found = place(machine_places(new, others, ()))
    assert len(found.others) == 1
    assert [(one.name, one.condition) for one in found.left_out] == [("other", "transport")]


def test_a_cell_that_no_other_machine_has_is_told_without_a_place() -> None:
    here = PeerMachine("new", side(result(OTHER_CELL), environment=environment(8)))
    found = place(machine_places(here, fleet([1.0]), ()))
    assert (found.others, found.left_out, found.percentile) == ((), (), None)


def test_hosts_are_counted() -> None:
    report = machine_places(machine("new", [1]), [machine("a", [1]), machine("a", [2])], ())
    assert (len(report.machines), report.hosts) == (2, 1)
