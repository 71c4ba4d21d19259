"""The address of node 0: its name may begin to resolve after the nodes have started."""

from __future__ import annotations

import socket
import time
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests.features.cluster.nodes.test_leader import TOKEN
from tests.features.cluster.nodes.test_preflight import description
from torchscale.errors import ExitCode, MachineError, UsageError
from torchscale.features.cluster.cluster import Cluster
from torchscale.features.cluster.nodes import network
from torchscale.features.cluster.nodes.joining_follower import JoiningFollower
from torchscale.features.cluster.nodes.leader import Leader
from torchscale.features.cluster.nodes.network import (
    UnresolvedError,
    interface_in,
    listen_as_leader,
    networks,
    resolve,
)

HERE = "127.0.0.1"
LATER = "PET_*"


class Names:
    """A resolver whose answers change."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.asked = list(answers), 0

    def getaddrinfo(self, host: str, *rest: Any, **options: Any) -> list[Any]:
        self.asked += 1
        address = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if not address:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, 0))]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    """Resolves every name, to this machine from the third time on; loopback addresses are as good
    as others here."""
    names = Names("", "192.0.2.1", HERE)
    monkeypatch.setattr(socket, "getaddrinfo", names.getaddrinfo)
    monkeypatch.setattr(network, "is_loopback", lambda host: False)
    monkeypatch.setattr(network, "_RETRY_SECONDS", 0.01)
    return names


def free_port() -> int:
    with socket.create_server((HERE, 0)) as server:
        return int(server.getsockname()[1])


def test_the_name_of_a_pod_is_waited_for(names: Names) -> None:
    """At first it does not resolve, then to the address of the pod before it."""
    with listen_as_leader(
        Cluster(2, 0, "job-0.job", free_port(), LATER), 30, lambda: False
    ) as server:
        assert server.getsockname()[0] == HERE
    assert names.asked == 3


def test_a_name_on_the_command_line_is_not_waited_for(names: Names) -> None:
    with pytest.raises(UsageError, match="--master nowhere: the name does not resolve"):
        listen_as_leader(Cluster(2, 0, "nowhere", free_port()), 30, lambda: False)
    assert names.asked == 1


def test_the_wait_is_bounded_and_can_be_stopped(names: Names) -> None:
    names.answers = [""]
    cluster = Cluster(2, 0, "job-0.job", free_port(), LATER)
    started = time.monotonic()
    with pytest.raises(UnresolvedError) as caught:
        listen_as_leader(cluster, 0.05, lambda: False)
    assert caught.value.exit_code is ExitCode.USAGE
    with pytest.raises(UnresolvedError) as caught:
        listen_as_leader(cluster, 600, lambda: True)
    assert caught.value.exit_code is ExitCode.INTERRUPTED
    assert time.monotonic() - started < 60


def test_a_port_in_use_is_not_waited_for(names: Names) -> None:
    names.answers = [HERE]
    with (
        socket.create_server((HERE, 0)) as taken,
        pytest.raises(UsageError, match="cannot be used"),
    ):
        listen_as_leader(
            Cluster(2, 0, "job-0.job", int(taken.getsockname()[1]), LATER), 600, lambda: False
        )


def test_loopback_addresses_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", Names("127.0.1.1").getaddrinfo)
    with pytest.raises(UsageError, match=r"resolves to 127\.0\.1\.1 here, a loopback address"):
        resolve("n0")


def test_another_node_asks_for_the_name_until_it_leads_to_node_0(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchscale.features.cluster.nodes.joining_follower._RETRY_SECONDS", 0.01)
    names.answers = ["", "127.0.0.2", HERE]  # nothing listens on the second: the pod before had it
    server = network.listen(HERE, 0)
    leader = Leader(server, TOKEN, description(hostname="n0"), 2, silent_seconds=30)
    cluster = Cluster(2, 1, "job-0.job", int(server.getsockname()[1]), LATER)
    follower = JoiningFollower(cluster, TOKEN, silent_seconds=30)
    try:
        follower.join(description(hostname="n1"), 30, lambda: False)
        assert names.asked == 3
    finally:
        follower.close()
        leader.close(0)
    other = JoiningFollower(Cluster(2, 1, "nowhere", 1), TOKEN, silent_seconds=30)
    names.answers = [""]
    try:
        with pytest.raises(UsageError, match="does not resolve"):
            other.join(description(), 30, lambda: False)
    finally:
        other.close()


def test_networks_are_those_of_interfaces_that_are_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(address: str, netmask: str | None, family: int = socket.AF_INET) -> Any:
        return SimpleNamespace(family=family, address=address, netmask=netmask)

    entries = {
        "lo": [of(HERE, "255.0.0.0")],
        "eth0": [of("10.0.0.5", "255.255.0.0"), of("fe80::1", None, socket.AF_INET6)],
        "eth1": [of("10.1.0.5", "255.255.255.0")],
        "down0": [of("10.2.0.5", "255.255.255.0")],
        "tun0": [of("10.3.0.5", "255.255.255.255")],
        "usb0": [of("169.254.3.1", "255.255.255.0")],
    }
    states = {name: SimpleNamespace(isup=name != "down0") for name in entries}
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: entries)
    monkeypatch.setattr(psutil, "net_if_stats", lambda: states)
    assert {str(address): name for address, name in networks().items()} == {
        "10.0.0.5/16": "eth0",
        "10.1.0.5/24": "eth1",
    }
    assert interface_in("10.1.0.0/24") == ("10.1.0.5", "eth1")
    with pytest.raises(MachineError, match=r"no interface in the network 10\.9\.0\.0/24"):
        interface_in("10.9.0.0/24")
