"""Records of rounds as rates of devices, links and the node."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.machine.test_collectives import MIB, rank, sample, sweep
from tests.factories import VERSIONS
from torchscale.features.validate.acceptance.figures import (
    RoundFigure,
    round_conditions,
    round_figures,
    series_of,
)
from torchscale.schema.cells.collectives import CollectivesResult, PairSample
from torchscale.schema.cells.hardware import (
    CopySample,
    DiskSample,
    HardwareCell,
    HardwareRank,
    HardwareResult,
    MatmulSample,
)
from torchscale.schema.cells.kinds import AnyPayload
from torchscale.schema.launch.rank import HostLoad
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.node.acceptance import Conditions
from torchscale.schema.node.environment import DeviceInfo
from torchscale.schema.state import State

CELL = HardwareCell(
    matmul_sizes=(64,),
    matmul_dtypes=("bf16",),
    seconds=0.1,
    copy_bytes=MIB,
    disk_bytes=MIB,
    world_size=2,
    device="auto",
)


def a_record(payload: AnyPayload, state: State = State.OK) -> LaunchRecord:
    return LaunchRecord(
        cell_id="c",
        launch=0,
        state=state,
        started_at="2026-01-02T03:04:05+00:00",
        seconds=1.0,
        payload=payload,
    )


def gpu(index: int) -> DeviceInfo:
    return DeviceInfo(kind="cuda", index=index, name="NVIDIA H100", uuid=f"u{index}")


def hardware(index: int, **changes: Any) -> HardwareRank:
    defaults: dict[str, Any] = {
        "rank": index,
        "local_rank": index,
        "world_size": 2,
        "pid": 1,
        "hostname": "node-1",
        "device": gpu(index),
        "backend": "nccl",
        "threads": 1,
        "cpus": (index,),
        "versions": VERSIONS,
        "matmuls": (
            MatmulSample(dtype="bf16", m=100, n=100, k=100, warm_seconds=(2e-6, 1e-6, 3e-6)),
            MatmulSample(dtype="bf16", m=10, n=10, k=10, warm_seconds=(1e-6,)),
        ),
        "copies": (CopySample(kind="device", payload_bytes=1000, seconds=(1e-6,)),),
    }
    return HardwareRank(**{**defaults, **changes})


def figures(ranks: tuple[HardwareRank, ...], **numbers: int) -> dict[tuple[str, str], RoundFigure]:
    found = round_figures(CELL, a_record(HardwareResult(ranks=ranks)), numbers)
    return {(each.figure, each.part): each for each in found}


def test_every_gpu_has_its_own_rates_under_the_number_that_nvidia_smi_shows() -> None:
    found = figures((hardware(0), hardware(1)), u0=4, u1=5)
    product = found["compute bf16", "GPU 4"]
    # the best shape: 2 · 100³ operations in a mean of 2 µs
    assert product.rate == pytest.approx(1e12)
    assert product.uuids == ("u0",)
    assert product.unit == "FLOP/s"
    # what is read and what is written both count
    assert found["memory bandwidth", "GPU 5"].rate == pytest.approx(2e9)


def test_time_in_which_a_device_was_held_back_counts() -> None:
    """Seven products of 1 µs, and one of 9 µs in which a quota held the process back: half the
    rate."""
    held = MatmulSample(dtype="bf16", m=100, n=100, k=100, warm_seconds=(*(1e-6,) * 7, 9e-6))
    found = figures((hardware(0, matmuls=(held,)),))
    assert found["compute bf16", "GPU 0"].rate == pytest.approx(1e12)


def test_a_copy_to_another_gpu_is_of_both() -> None:
    copy = CopySample(kind="device_to_device", payload_bytes=1000, seconds=(1e-6,), peer=1)
    found = figures((hardware(0, copies=(copy,)), hardware(1, copies=())))
    link = found["copy between devices", "GPU 0 → GPU 1"]
    assert link.rate == pytest.approx(1e9)
    assert link.uuids == ("u0", "u1")


def test_pinned_and_pageable_copies_are_different_figures() -> None:
    copies = tuple(
        CopySample(kind="host_to_device", payload_bytes=1000, seconds=(1e-6,), pinned=pinned)
        for pinned in (True, False)
    )
    found = figures((hardware(0, copies=copies),))
    assert ("copy to device (pinned)", "GPU 0") in found
    assert ("copy to device (pageable)", "GPU 0") in found


@pytest.mark.parametrize(("resident", "is_read"), [(0.0, True), (0.9, False), (None, False)])
def test_a_file_that_is_still_in_memory_tells_nothing_of_the_disk(
    resident: float | None, is_read: bool
) -> None:
    disk = DiskSample(
        path="/d", payload_bytes=1000, write_seconds=1.0, read_seconds=0.5, resident_share=resident
    )
    found = figures((hardware(0, disk=disk),))
    assert found["disk write", "node"].rate == pytest.approx(1000.0)
    assert (("disk read", "node") in found) is is_read


def test_ranks_on_cpus_are_called_by_their_cores() -> None:
    cpu = DeviceInfo(kind="cpu", index=0, name="Test Processor")
    found = figures((hardware(0, device=cpu, cpus=(0, 1, 2, 3)),))
    assert ("memory bandwidth", "cores 0-3") in found
    assert found["memory bandwidth", "cores 0-3"].uuids == ()


def test_a_launch_that_failed_has_no_figures() -> None:
    failed = a_record(HardwareResult(ranks=(hardware(0),)), State.CRASHED)
    assert not list(round_figures(CELL, failed, {}))


def test_links_between_every_two_devices_have_a_direction() -> None:
    pair = PairSample(
        source=0, target=1, payload_bytes=1000, seconds=1e-6, latency_seconds=1e-6, wrong_elements=0
    )
    ranks = tuple(
        rank(it, [sample(size=MIB), sample(size=8 * MIB, seconds=2e-3)], device=gpu(it))
        for it in range(2)
    )
    ranks = (ranks[0].model_copy(update={"pairs": (pair,)}), ranks[1])
    found = {
        each.figure: each
        for each in round_figures(sweep(), a_record(CollectivesResult(ranks=ranks)), {})
    }
    assert found["link"].part == "GPU 0 → GPU 1"
    assert found["link"].rate == pytest.approx(1e9)
    # at the largest size; the bus factor of two ranks is 1
    assert found["all-reduce"].rate == pytest.approx(8 * MIB / 2e-3)
    assert found["all-reduce"].part == "node"


def test_a_figure_that_a_round_lacks_is_none_in_its_place() -> None:
    def round_of(rate: float, *names: str) -> list[RoundFigure]:
        return [RoundFigure(name, "node", "B/s", rate) for name in names]

    found = series_of([round_of(1.0, "a"), round_of(2.0, "a", "b"), round_of(3.0, "b")])
    assert [(each.figure, each.values) for each in found] == [
        ("a", (1.0, 2.0, None)),
        ("b", (None, 2.0, 3.0)),
    ]


def test_the_foreign_share_is_that_of_the_worst_launch() -> None:
    def record(busy: float) -> LaunchRecord:
        load = HostLoad(
            wall_seconds=10.0, busy_seconds=busy, process_seconds=9.0, cores=1, pinned=True
        )
        return a_record(HardwareResult(ranks=(hardware(0, host_load=load),)))

    found = round_conditions([record(9.1), record(9.8)], Conditions(quota_cpus=1.5))
    assert found.foreign_share == pytest.approx(0.08)
    assert found.quota_cpus == 1.5
    assert found.cpus == 1


@pytest.mark.parametrize(
    ("used", "share"),
    [
        (3.96, 0.01),  # others used the half of the core that the quota leaves them
        (2.8, 0.3),  # others took what the ranks could have used
        (0.5, 0.55),  # the ranks waited: others had no more than what was busy
    ],
)
def test_under_a_quota_others_take_what_ranks_leave_of_it(used: float, share: float) -> None:
    load = HostLoad(
        wall_seconds=10.0, busy_seconds=used + 5.5, process_seconds=used, cores=1, pinned=True
    )
    record = a_record(HardwareResult(ranks=(hardware(0, host_load=load),)))
    found = round_conditions([record], Conditions(quota_cpus=0.4))
    assert found.foreign_share == pytest.approx(share)


def test_a_quota_above_the_cores_of_the_ranks_changes_nothing() -> None:
    load = HostLoad(wall_seconds=10.0, busy_seconds=9.8, process_seconds=9.0, cores=1, pinned=True)
    record = a_record(HardwareResult(ranks=(hardware(0, host_load=load),)))
    found = round_conditions([record], Conditions(quota_cpus=1.0))
    assert found.foreign_share == pytest.approx(0.08)


def test_unpinned_ranks_share_the_cores_that_a_quota_is_of() -> None:
    load = HostLoad(
        wall_seconds=10.0, busy_seconds=20.0, process_seconds=4.9, cores=2, pinned=False
    )
    ranks = (hardware(0, host_load=load), hardware(1, host_load=load))
    record = a_record(HardwareResult(ranks=ranks))
    found = round_conditions([record], Conditions(quota_cpus=1.0))
    # both used 9.8 of the 10 seconds that they may have together
    assert found.foreign_share == pytest.approx(0.02)
