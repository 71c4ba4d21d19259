from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.factories import rank_identity
from torchscale.launch.transport import launch_transport
from torchscale.schema.node.environment import RankIdentity, RankSocket

LOOPBACK = RankSocket(interface="lo", family="IPv4", within_host=True)
INSIDE = RankSocket(interface="eth0", family="IPv4", within_host=True)
BETWEEN = RankSocket(interface="eth0", family="IPv6", within_host=False)


def rank(number: int = 0, world_size: int = 2, **changes: Any) -> RankIdentity:
    return RankIdentity(**{**rank_identity(number, world_size), **changes})


@pytest.mark.parametrize(
    ("sockets", "moved"),
    [
        (((LOOPBACK,), (LOOPBACK,)), "TCP over lo (IPv4)"),
        (
            ((INSIDE, BETWEEN), (BETWEEN,)),
            "TCP over eth0 (IPv4, within the machine) + TCP over eth0 (IPv6)",
        ),
        (((), ()), "not known: the ranks did not note gloo's sockets"),
    ],
)
def test_gloo_moves_data_by_its_sockets(
    tmp_path: Path, sockets: tuple[tuple[RankSocket, ...], ...], moved: str
) -> None:
    ranks = [rank(number, sockets=of_rank) for number, of_rank in enumerate(sockets)]
    found = launch_transport(tmp_path, ranks)
    assert found is not None
    assert found.text == moved


def test_a_rank_alone_moves_nothing(tmp_path: Path) -> None:
    assert launch_transport(tmp_path, []) is None
    assert launch_transport(tmp_path, [rank(world_size=1)]) is None


@pytest.mark.parametrize("backend", ["nccl", "nccl2", "cpu:gloo,cuda:nccl"])
def test_nccl_moves_data_as_its_log_says(tmp_path: Path, backend: str) -> None:
    (tmp_path / "rank-1.stdout.log").write_text(
        "n0:1:2 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/IPC\n"
    )
    ranks = [rank(number, backend=backend) for number in range(2)]
    found = launch_transport(tmp_path, ranks)
    assert found is not None
    assert found.text == "P2P/IPC"


def test_a_backend_whose_log_is_not_read_is_named(tmp_path: Path) -> None:
    ranks = [rank(backend="xccl")]
    found = launch_transport(tmp_path, ranks)
    assert found is not None
    assert found.text == "not known: the log of xccl is not read"
