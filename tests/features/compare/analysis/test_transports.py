from __future__ import annotations

from typing import Any, Literal

import pytest

from tests.factories import cells
from tests.features.compare.analysis.test_compare import result, side
from torchscale.features.compare.analysis.compare import compare
from torchscale.features.compare.analysis.transports import moved_otherwise
from torchscale.schema.launch.transport import Transport, Way, WayKind

(CELL, *_) = cells()
NVLINK = Way(kind=WayKind.P2P, name="P2P/CUMEM", link="NVLink")
PCIE = NVLINK.model_copy(update={"link": "PCIe"})
UNSAID = NVLINK.model_copy(update={"link": None})
LEGACY = NVLINK.model_copy(update={"name": "P2P/IPC"})
SHM = Way(kind=WayKind.SHM, name="SHM")
NVLS = Way(kind=WayKind.NVLS, name="NVLS", link="NVLink")


def verbs(link: str | None = "InfiniBand", count: int = 4, **changes: Any) -> Way:
    devices = tuple(f"mlx5_{number}" for number in range(count))
    way = Way(kind=WayKind.IB, name="NET/IB", link=link, gdr=True, devices=devices)
    return way.model_copy(update=changes)


def sockets(*devices: str) -> Way:
    return Way(kind=WayKind.SOCKET, name="NET/Socket", devices=devices)


def tcp(device: str, *, within_host: bool) -> Way:
    return Way(
        kind=WayKind.TCP, name="TCP", devices=(device,), family="IPv4", within_host=within_host
    )


def plugin(name: str) -> Way:
    return Way(kind=WayKind.PLUGIN, name=name, gdr=True)


def moved(*ways: Way, nvls: Literal["used", "available", "absent"] | None = None) -> Transport:
    return Transport(ways=ways, nvls=nvls, unknown="" if ways else "no line")


def differs(before: Transport | None, after: Transport | None) -> bool:
    pair = compare(side(result(CELL, transport=before)), side(result(CELL, transport=after)))
    return bool(moved_otherwise(pair))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (moved(verbs()), moved(sockets("eth0"))),
        (moved(NVLINK, verbs()), moved(NVLINK, sockets("eth0"))),
        (moved(NVLINK), moved(SHM)),
        (moved(NVLINK), moved(NVLINK, SHM)),
        (moved(NVLINK), moved(PCIE)),
        (moved(verbs()), moved(verbs(gdr=False))),
        (moved(verbs()), moved(verbs(link="RoCE"))),
        (moved(verbs()), moved(verbs(count=3))),
        (moved(plugin("NET/AWS Libfabric")), moved(plugin("NET/UCX"))),
        (moved(sockets("ib0")), moved(sockets("eth0"))),
        (moved(tcp("ib0", within_host=False)), moved(tcp("eth0", within_host=False))),
        (moved(NVLINK, NVLS, nvls="used"), moved(NVLINK, nvls="absent")),
    ],
)
def test_another_way_is_seen_in_both_directions(before: Transport, after: Transport) -> None:
    assert differs(before, after)
    assert differs(after, before)
    assert not differs(before, before)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (moved(NVLINK), moved(UNSAID)),
        (moved(NVLINK), moved(LEGACY)),
        (moved(verbs()), moved(verbs(name="NET/IBext_v8"))),
        (moved(verbs()), moved(verbs(devices=(), link=None))),
        (moved(verbs()), moved(verbs(devices=("a", "b", "c", "d")))),
        (moved(sockets("eth0")), moved(sockets())),
        (moved(tcp("lo", within_host=True)), moved(tcp("eth0", within_host=True))),
        (moved(NVLINK, NVLS, nvls="used"), moved(NVLINK, nvls="available")),
        (moved(verbs()), moved()),
        (moved(verbs()), None),
        (None, None),
    ],
)
def test_what_one_side_does_not_say_and_names_alone_are_no_change(
    before: Transport | None, after: Transport | None
) -> None:
    assert not differs(before, after)
    assert not differs(after, before)


def test_cells_of_other_devices_may_move_data_as_they_can() -> None:
    before = result(CELL, transport=moved(verbs()), device="NVIDIA H100")
    after = result(CELL, transport=moved(sockets("eth0")), device="NVIDIA A100")
    assert moved_otherwise(compare(side(before), side(after))) == []
