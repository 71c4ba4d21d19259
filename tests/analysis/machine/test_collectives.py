from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from tests.factories import VERSIONS
from torchscale.analysis.machine.bus_factor import bus_factor
from torchscale.analysis.machine.collectives import collective_figures, fit_latency, sweep_flags
from torchscale.analysis.machine.link_ceiling import LinkTopology
from torchscale.analysis.machine.link_verdict import judge_link
from torchscale.analysis.training.flags import Flag
from torchscale.config.choices import Operation
from torchscale.config.sections.machine import HardwareSettings
from torchscale.schema.cells.collectives import (
    CollectiveSample,
    CollectivesCell,
    CollectivesRank,
    CollectivesResult,
    NcclLog,
    PairSample,
)
from torchscale.schema.exports.machine import Curve, LinkVerdict
from torchscale.schema.launch.rank import HostLoad
from torchscale.schema.node.environment import DeviceInfo
from torchscale.schema.node.probe import DriverFacts, GpuFacts, GpuPairFacts

MIB = 1 << 20


def sweep(world_size: int = 2, **changes: Any) -> CollectivesCell:
    defaults: dict[str, Any] = {
        "operations": ("all_reduce",),
        "dtypes": ("fp32",),
        "min_bytes": MIB,
        "max_bytes": 8 * MIB,
        "iterations": 3,
        "warmup": 1,
        "world_size": world_size,
        "device": "auto",
    }
    return CollectivesCell(**{**defaults, **changes})


def sample(
    operation: str = "all_reduce", size: int = MIB, seconds: float = 1e-3, **changes: Any
) -> CollectiveSample:
    defaults: dict[str, Any] = {
        "operation": operation,
        "dtype": "fp32",
        "payload_bytes": size,
        "elements": size // 4,
        "in_place": True,
        "mean_seconds": seconds,
        "call_seconds": (seconds,) * 3,
        "wrong_elements": 0,
    }
    return CollectiveSample(**{**defaults, **changes})


def rank(
    number: int, samples: list[CollectiveSample], world_size: int = 2, **changes: Any
) -> CollectivesRank:
    defaults: dict[str, Any] = {
        "rank": number,
        "local_rank": number,
        "world_size": world_size,
        "pid": 100 + number,
        "hostname": "node-1",
        "device": DeviceInfo(kind="cpu", index=number, name="Test Processor"),
        "backend": "gloo",
        "threads": 1,
        "cpus": (number,),
        "versions": VERSIONS,
        "samples": tuple(samples),
    }
    return CollectivesRank(**{**defaults, **changes})


def record(*ranks: CollectivesRank) -> CollectivesResult:
    return CollectivesResult(ranks=ranks)


# Worked by hand from nccl-tests' definitions: a ring of n moves 2(n-1)/n of the buffer over each
# link in an all-reduce, (n-1)/n in the operations that are half of one, and the whole buffer where
# one rank sends to all.
@pytest.mark.parametrize(
    ("operation", "factors"),
    [
        ("all_reduce", (1.0, 4 / 3, 1.75)),
        ("all_gather", (0.5, 2 / 3, 0.875)),
        ("reduce_scatter", (0.5, 2 / 3, 0.875)),
        ("all_to_all", (0.5, 2 / 3, 0.875)),
        ("broadcast", (1.0, 1.0, 1.0)),
        ("reduce", (1.0, 1.0, 1.0)),
        ("send_recv", (1.0, 1.0, 1.0)),
    ],
)
def test_bus_bandwidth_over_algorithm_bandwidth(
    operation: Operation, factors: tuple[float, ...]
) -> None:
    assert tuple(bus_factor(operation, ranks) for ranks in (2, 3, 8)) == pytest.approx(factors)


def test_no_bus_bandwidth_without_a_definition() -> None:
    assert bus_factor("all_reduce", 1) is None
    assert bus_factor("barrier", 2) is None
    assert bus_factor("scan", 2) is None


def test_a_point_is_worked_out_as_nccl_tests_does() -> None:
    slow = sample(seconds=3e-3, call_seconds=(1e-3, 5e-3, 3e-3))
    fast = sample(seconds=1e-3, call_seconds=(2e-3, 1e-3, 3e-3), wrong_elements=2)
    samples = [[slow], [fast], [fast], [fast]]
    figures = collective_figures(
        sweep(4), [record(*(rank(number, found, 4) for number, found in enumerate(samples)))]
    )
    (curve,) = figures.curves
    (point,) = curve.points
    assert point.seconds == pytest.approx(1.5e-3)  # the mean over ranks
    assert point.algbw == pytest.approx(MIB / 1.5e-3)
    assert point.busbw == pytest.approx(MIB / 1.5e-3 * 1.5)
    assert point.p50 == pytest.approx(3e-3)  # of 2, 5 and 3 ms: each call's slowest rank
    assert point.rank_spread == pytest.approx(2.0)
    assert point.wrong_elements == 6
    assert curve.fit is None  # one size makes no line


def test_launches_are_averaged_and_pairs_too() -> None:
    def pair(seconds: float) -> PairSample:
        return PairSample(
            source=0,
            target=1,
            payload_bytes=MIB,
            seconds=seconds,
            latency_seconds=seconds / 10,
            wrong_elements=0,
        )

    launches = [
        record(
            rank(0, [sample(seconds=seconds)]),
            rank(1, [sample(seconds=seconds)], pairs=(pair(seconds),)),
        )
        for seconds in (1e-3, 3e-3)
    ]
    figures = collective_figures(sweep(), launches)
    assert figures.curves[0].points[0].seconds == pytest.approx(2e-3)
    assert figures.pairs[0].seconds == pytest.approx(2e-3)
    assert figures.pairs[0].latency_seconds == pytest.approx(2e-4)


def test_latency_and_bandwidth_are_found_again() -> None:
    sizes = [1 << power for power in range(10, 27)]
    fit = fit_latency(sizes, [20e-6 + size / 3e9 for size in sizes])
    assert fit is not None
    assert fit.latency_seconds == pytest.approx(20e-6)
    assert fit.bytes_per_second == pytest.approx(3e9)
    assert fit.residual == pytest.approx(0, abs=1e-9)


def test_a_line_through_the_origin_has_no_latency_and_flat_times_no_bandwidth() -> None:
    below = fit_latency([1, 2, 4, 8], [0.9e-3, 1.9e-3, 3.9e-3, 7.9e-3])
    assert below is not None
    assert below.latency_seconds == 0
    assert fit_latency([1000, 2000, 4000, 8000], [4e-3, 3e-3, 2e-3, 1e-3]) is None
    assert fit_latency([1, 2, 4], [1, 2, 4]) is None


def judged(
    busbw: float,
    known: dict[str, Any] | None = None,
    *,
    driver: DriverFacts | None = None,
    log: NcclLog | None = None,
    choices: NcclLog | None = None,
    variables: dict[str, str] | None = None,
    backend: str = "nccl",
    uuids: Collection[str] = (),
    **cell: Any,
) -> LinkVerdict:
    """The verdict on an all-reduce over two H100 that reached this bus bandwidth."""
    asked = sweep(**cell)
    device = DeviceInfo(
        kind="cuda", index=0, name="NVIDIA H100 80GB HBM3", compute_capability="9.0"
    )
    one = sample(size=8 * MIB, seconds=8 * MIB / busbw)
    places = [
        rank(number, [one], backend=backend, device=device, driver=driver) for number in (0, 1)
    ]
    figures = collective_figures(asked, [record(*places)])
    declared = HardwareSettings.model_validate(known or {})
    machine = LinkTopology(declared, places[0], log, choices, variables or {}, frozenset(uuids))
    return judge_link(asked, figures, machine)


def gpus(*links: int, **facts: Any) -> DriverFacts:
    found = tuple(
        GpuFacts(index=index, name="NVIDIA H100 80GB HBM3", nvlinks_active=count, **facts)
        for index, count in enumerate(links)
    )
    return DriverFacts(gpus=found)


P2P = NcclLog(transports=("P2P/CUMEM",))


def test_nvlinks_that_are_up_make_the_ceiling() -> None:
    ring = NcclLog(choices=(("all_reduce", 8 * MIB, "Ring", "Simple"),))
    good = judged(360e9, driver=gpus(18, 18), log=P2P, choices=ring)
    assert good.fits is True
    assert good.share == pytest.approx(0.8)
    short = judged(100e9, driver=gpus(18, 17), log=P2P, choices=ring)
    assert short.fits is False
    assert short.share == pytest.approx(100 / 425)  # the GPU with fewer links holds all back
    assert [cause.check for cause in short.causes] == ["nvidia-smi nvlink --status"]


def test_an_unknown_link_or_algorithm_gives_no_verdict() -> None:
    assert judged(1e9).share is None
    unknown = judged(360e9, driver=gpus(18, 18), log=P2P)
    assert unknown.share is None
    assert "--algo" in unknown.text
    over_the_network = judged(480e9, {"link": "nvlink4"}, algorithm="CollNetChain")
    assert over_the_network.share is None
    assert "CollNetChain" in over_the_network.text
    between_machines = judged(
        40e9, driver=gpus(18, 18), log=NcclLog(transports=("NET/IB/0",)), algorithm="Ring"
    )
    assert between_machines.share is None


def test_reduction_in_the_switch_must_reach_what_a_ring_should_and_may_exceed_the_link() -> None:
    nvls = NcclLog(choices=(("all_reduce", 8 * MIB, "NVLS", "Simple"),))
    above = judged(480e9, driver=gpus(18, 18), log=P2P, choices=nvls)
    assert above.fits is True
    assert above.share == pytest.approx(480 / 450)
    assert "can exceed 100 %" in above.text
    assert judged(200e9, driver=gpus(18, 18), log=P2P, choices=nvls).fits is False


def test_an_algorithm_that_nccl_did_not_use_is_not_the_label_of_its_figures() -> None:
    ring = NcclLog(
        choices=(
            ("all_reduce", 8 * MIB, "Ring", "Simple"),
            ("all_gather", 8 * MIB, "Ring", "Simple"),
        )
    )
    verdict = judged(360e9, driver=gpus(18, 18), log=P2P, choices=ring, algorithm="CollnetChain")
    assert verdict.text.startswith(
        "NCCL did not use CollnetChain but Ring for all_reduce, all_gather. "
    )
    assert verdict.fits is True  # of the ring that it was
    assert (
        "did not use"
        not in judged(360e9, driver=gpus(18, 18), log=P2P, choices=ring, algorithm="RING").text
    )
    assert (
        "did not use"
        not in judged(360e9, driver=gpus(18, 18), log=P2P, choices=ring, algorithm="^NVLS").text
    )


def four(nvlink: bool | None, path: str, **facts: Any) -> DriverFacts:
    """Four GPUs with NVLinks, bridged in pairs: 0 with 1 and 2 with 3; between the pairs as
    said."""
    pairs = tuple(
        GpuPairFacts(
            first=first,
            second=second,
            p2p=True,
            path=path,
            nvlink=True if first // 2 == second // 2 else nvlink,
        )
        for first in range(4)
        for second in range(first + 1, 4)
    )
    return gpus(
        12, 12, 12, 12, pcie_generation=4, pcie_width=16, pcie_width_max=16, **facts
    ).model_copy(update={"pairs": pairs})


def test_a_ring_over_bridged_pairs_is_held_against_pci_express() -> None:
    ring = NcclLog(choices=(("all_reduce", 8 * MIB, "Ring", "Simple"),))
    switched = judged(
        22e9, driver=four(nvlink=False, path="one PCIe switch"), log=P2P, choices=ring
    )
    assert switched.fits is True
    assert "PCI Express" in switched.text
    across = judged(12e9, driver=four(nvlink=False, path="host bridge"), log=P2P, choices=ring)
    assert (across.share, across.fits) == (None, None)
    assert "across a host bridge" in across.text
    assert across.causes == ()
    joined = judged(200e9, driver=four(nvlink=True, path="system"), log=P2P, choices=ring)
    assert joined.share == pytest.approx(200 / 300)
    assert (
        judged(200e9, driver=four(nvlink=None, path="system"), log=P2P, choices=ring).ceiling
        is None
    )


def test_links_of_gpus_that_take_no_part_do_not_count() -> None:
    ring = NcclLog(choices=(("all_reduce", 8 * MIB, "Ring", "Simple"),))
    driver = gpus(18, 18, 4)
    named = tuple(gpu.model_copy(update={"uuid": f"GPU-{gpu.index}"}) for gpu in driver.gpus)
    verdict = judged(
        360e9,
        driver=driver.model_copy(update={"gpus": named}),
        log=P2P,
        choices=ring,
        uuids={"0", "1"},
    )
    assert verdict.share == pytest.approx(0.8)


def test_what_is_seen_to_be_amiss_is_named_with_a_command() -> None:
    blocked = GpuPairFacts(first=0, second=1, p2p=False)
    driver = gpus(0, 0, pcie_generation=4, pcie_width=8, pcie_width_max=16).model_copy(
        update={"pairs": (blocked,)}
    )
    verdict = judged(
        5e9,
        driver=driver,
        log=NcclLog(transports=("SHM/direct",)),
        algorithm="Ring",
        variables={"NCCL_P2P_DISABLE": "1"},
    )
    assert verdict.fits is False
    assert "PCI Express" in verdict.text
    causes = " ".join(cause.text for cause in verdict.causes)
    for sign in ("NCCL_P2P_DISABLE=1", "GPUs 0–1", "8 of 16 PCIe lanes", "host memory"):
        assert sign in causes
    assert all(cause.check for cause in verdict.causes)


def test_a_sweep_that_ends_too_early_is_not_held_against_the_link() -> None:
    def verdict(*rates: float) -> LinkVerdict:
        sizes = [MIB << power for power in range(len(rates))]
        found = [
            sample(size=size, seconds=size / rate) for size, rate in zip(sizes, rates, strict=True)
        ]
        places = [rank(number, found) for number in (0, 1)]
        machine = LinkTopology(
            HardwareSettings(link_bytes_per_second=10e9), places[0], None, None, {}
        )
        return judge_link(sweep(), collective_figures(sweep(), [record(*places)]), machine)

    rising = verdict(1e9, 2e9)
    assert rising.share is None
    assert "--max-bytes" in rising.text
    assert verdict(1e9, 1.05e9).fits is False
    assert verdict(5e9, 9e9).fits is True


def test_a_declared_link_is_judged_over_gloo_too() -> None:
    verdict = judged(1.1e9, {"link": "ethernet-10g"}, backend="gloo")
    assert verdict.fits is True
    assert judged(0.5e9, {"link_bytes_per_second": 1e9}, backend="gloo").share == pytest.approx(0.5)


def test_sizes_double_and_end_at_the_largest() -> None:
    assert sweep(min_bytes=8, max_bytes=100).sizes == (8, 16, 32, 64, 100)
    assert sweep(min_bytes=8, max_bytes=8).sizes == (8,)


def load(foreign: float, wall: float = 1.0) -> HostLoad:
    """A rank that worked half of the time on its own core, beside others."""
    return HostLoad(
        wall_seconds=wall,
        busy_seconds=(0.5 + foreign) * wall,
        process_seconds=0.5 * wall,
        cores=1,
        pinned=True,
    )


def sizes_of(*times: float, **changes: Any) -> Curve:
    """An all-reduce of two equal ranks, 1 KiB and doubling, with calls that scatter by 1 %."""
    samples = [
        sample(
            size=1024 << place,
            seconds=seconds,
            call_seconds=(seconds * 0.99, seconds * 1.01) * 5,
            **changes,
        )
        for place, seconds in enumerate(times)
    ]
    (curve,) = collective_figures(sweep(), [record(rank(0, samples), rank(1, samples))]).curves
    return curve


def flags_of(curve: Curve) -> list[tuple[str, ...]]:
    return [point.flags for point in curve.points]


def test_a_size_is_contended_where_others_took_its_cores_while_it_was_measured() -> None:
    assert flags_of(sizes_of(1e-3, host_load=load(0.05))) == [()]
    assert flags_of(sizes_of(1e-3, host_load=load(0.15))) == [("contended",)]
    assert flags_of(sizes_of(1e-3, host_load=load(0.15, wall=0.1))) == [()], (
        "too short to be read in ticks"
    )
    assert flags_of(sizes_of(1e-3)) == [()], "a record of a version that did not read it"


def test_time_in_interrupts_is_the_work_of_sending() -> None:
    busy = load(0.3).model_copy(update={"interrupted_seconds": 0.25})
    assert flags_of(sizes_of(1e-3, host_load=busy)) == [()]
    assert flags_of(
        sizes_of(1e-3, host_load=busy.model_copy(update={"interrupted_seconds": 0.1}))
    ) == [("contended",)]


def test_one_contended_rank_is_enough() -> None:
    alone, beside = (sample(host_load=load(foreign)) for foreign in (0.0, 0.3))
    (curve,) = collective_figures(sweep(), [record(rank(0, [alone]), rank(1, [beside]))]).curves
    assert flags_of(curve) == [("contended",)]


def test_a_smaller_message_that_takes_clearly_longer_is_noisy() -> None:
    assert flags_of(sizes_of(192e-6, 3150e-6, 180e-6, 185e-6, 189e-6)) == [
        (),
        ("noisy",),
        (),
        (),
        (),
    ]
    assert flags_of(sizes_of(250e-6, 192e-6, 189e-6)) == [(), (), ()], (
        "another algorithm may be somewhat faster"
    )
    assert flags_of(sizes_of(1e-3, 3e-3, 300e-6, 2e-3)) == [("noisy",), ("noisy",), (), ()]


def test_calls_that_scatter_are_noisy() -> None:
    spread = (1e-4,) * 9 + (2e-3,)
    (curve,) = collective_figures(
        sweep(),
        [record(*(rank(number, [sample(seconds=1e-4, call_seconds=spread)]) for number in (0, 1)))],
    ).curves
    assert flags_of(curve) == [("noisy",)]
    assert curve.points[0].half_width == pytest.approx(
        2.262 * 0.6008e-3 / 10**0.5 / 2.9e-4, rel=1e-3
    )
    few = [
        record(
            *(rank(number, [sample(seconds=1e-4, call_seconds=(1e-4, 2e-4))]) for number in (0, 1))
        )
    ]
    assert flags_of(collective_figures(sweep(), few).curves[0]) == [()], (
        "two calls always have a wide interval"
    )


def test_a_loop_that_was_interrupted_is_noisy() -> None:
    (curve,) = collective_figures(
        sweep(),
        [
            record(
                *(
                    rank(number, [sample(seconds=2.5e-4, call_seconds=(1e-4,) * 10)])
                    for number in (0, 1)
                )
            )
        ],
    ).curves
    assert flags_of(curve) == [("noisy",)]


def test_the_highest_bandwidth_is_of_sizes_without_a_flag() -> None:
    quiet = [sample(size=size, seconds=1e-3) for size in (MIB, 2 * MIB)]
    fastest = sample(size=4 * MIB, seconds=1e-3, host_load=load(0.5))
    samples = [*quiet, fastest]
    (curve,) = collective_figures(sweep(), [record(rank(0, samples), rank(1, samples))]).curves
    assert curve.peak.payload_bytes == 2 * MIB
    assert sweep_flags([curve]) == ()
    (dirty,) = collective_figures(sweep(), [record(rank(0, [fastest]), rank(1, [fastest]))]).curves
    assert dirty.peak.payload_bytes == 4 * MIB
    assert sweep_flags([dirty]) == (Flag.CONTENDED,)


def test_the_latency_is_fitted_without_flagged_sizes() -> None:
    times = [1e-4 + (1024 << place) / 1e9 for place in range(8)]
    assert sizes_of(*times).fit is not None
    disturbed = sizes_of(*times[:3], 40 * times[3], *times[4:])
    assert flags_of(disturbed)[3] == ("noisy",)
    assert disturbed.fit is not None
    assert disturbed.fit.latency_seconds == pytest.approx(1e-4, rel=1e-3)
    assert disturbed.fit.residual < 1e-3


def test_a_link_is_not_blamed_for_what_others_took() -> None:
    declared = HardwareSettings(link_bytes_per_second=10e9)

    def verdict(**changes: Any) -> LinkVerdict:
        samples = [
            sample(size=size, seconds=size / 1e9, **changes) for size in (MIB, 2 * MIB, 4 * MIB)
        ]
        launches = [record(rank(0, samples), rank(1, samples))]
        place = LinkTopology(declared, launches[0].ranks[0], None, None, {})
        return judge_link(sweep(), collective_figures(sweep(), launches), place)

    assert verdict().fits is False
    assert verdict(host_load=load(0.5)).fits is None
    assert "contended or noisy" in verdict(host_load=load(0.5)).text
