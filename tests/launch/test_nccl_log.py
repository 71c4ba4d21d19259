"""Lines in the formats of NCCL's releases (src/transport, src/init.cc, src/graph/search.cc at each
tag); each is written here, none is copied from anybody's log."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchscale.launch.nccl_log import parse_transport, read_transport
from torchscale.schema.launch.transport import Transport

RING = "Pattern 4, crossNic 0, nChannels 16, bw 30.000000/30.000000, type {}/PIX, sameChannels 1"
DONE = "comm {} rank 0 nranks 8 cudaDev 0 nvmlDev 0 busId 1b000 commId 0x7a - Init COMPLETE"
SWITCH = (
    "NVLS comm {} headRank 0 nHeads 8 buffSize 1048576 nvlsPerRankSize 201326592 nvlsTotalSize 1"
)
AVAILABLE = "NVLS multicast support is available on dev 0"


def parsed(*texts: str, version: str | None = "2.27.7", process: str = "n0:10") -> Transport:
    return parse_transport(log(*texts, process=process), version)


def log(*texts: str, process: str = "n0:10") -> list[str]:
    return [f"{process}:11 [0] NCCL INFO {text}" for text in texts]


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        # All releases from 2.18 to 2.30; /read by the receiver, /CE by copies.
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "P2P/CUMEM"),
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", "P2P/CUMEM"),
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/IPC/read/CE", "P2P/IPC"),
        ("Channel 00/1 : 0[0] -> 1[1] via P2P/direct pointer/read", "P2P/direct pointer"),
        ("Channel 00/0 : 0[0] -> 3[3] via P2P/indirect/2[2]", "P2P/indirect"),
        # From 2.20.
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/MNNVL", "P2P/MNNVL over NVLink"),
        # Up to 2.29, and from 2.30.
        ("Channel 00 : 0[0] -> 1[1] via SHM/direct/direct", "SHM"),
        ("Channel 00 : 0[0] -> 1[1] via SHM/CE/direct", "SHM"),
        ("Channel 00 : 0[0] -> 1[1] via SHM/direct", "SHM"),
        ("Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0", "NET/IB without GDR"),
        ("Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0(1)/GDRDMA/Shared", "NET/IB with GDR"),
        # From 2.26.
        ("Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA(PCI)", "NET/IB with GDR"),
        # Plugins: of HPC-X, of AWS, of others; a name may have a space.
        ("Channel 00/0 : 0[0] -> 8[0] [send] via NET/IBext_v8/3/GDRDMA", "NET/IBext_v8 with GDR"),
        (
            "Channel 00/0 : 0[0] -> 8[0] [send] via NET/AWS Libfabric/1/GDRDMA",
            "NET/AWS Libfabric with GDR",
        ),
        ("Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0", "NET/Socket"),
        ("CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA", "COLLNET/SHARP with GDR"),
        # RCCL.
        ("Channel 00/0 : 0[c1000] -> 1[c6000] via P2P/IPC comm 0x95cdeb0 nRanks 08", "P2P/IPC"),
    ],
)
def test_each_form_of_a_connection_says_its_way(text: str, moved: str) -> None:
    found = parsed(text)
    assert found.text == moved
    assert (found.source, found.unknown) == ("NCCL 2.27.7's log", "")


@pytest.mark.parametrize(
    "text",
    [
        "Channel 00/0 : 0[0] -> 1[1] via P2P/CU",
        "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB",
        "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDR",
        "Channel 00/0 : 0[0] -> 1[1] via P2P/IPCn1:7:8 [1] NCCL INFO Channel 00",
        "Channel 00/0 : 0[0] -> 1[1] via P2P/WORMHOLE",
        "Channel 00/16 : 0 1 2 3",
        "Using network IB",
        "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>",
    ],
)
def test_what_is_cut_off_mixed_up_or_only_available_says_nothing(text: str) -> None:
    found = parsed(text, version="2.99.1")
    assert (found.ways, found.text) == (
        (),
        "not known: NCCL 2.99.1's log has no line that says",
    )


@pytest.mark.parametrize(
    ("using", "device", "moved"),
    [
        # 2.18, 2.19 and from 2.23.
        (
            " [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
            1,
            "over RoCE with GDR (mlx5_1)",
        ),
        # A plugin that can use SHARP.
        (
            " [0]mlx5_0:1/IB/SHARP [1]mlx5_1:1/IB/SHARP [RO]; OOB ib0:10.0.0.1<0>",
            0,
            "over InfiniBand with GDR (mlx5_0)",
        ),
        # From 2.20 to 2.22: ports are merged, and a single one carries the number of its port.
        (
            " [0]={[0] mlx5_0:1/IB, [1] mlx5_1:1/IB} [2]mlx5_2:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
            1,
            "over RoCE with GDR (mlx5_2)",
        ),
        (
            " [0]={[0] mlx5_0:1/IB, [1] mlx5_1:1/IB} [RO]; OOB eth0:10.0.0.1<0>",
            0,
            "over InfiniBand with GDR (mlx5_0, mlx5_1)",
        ),
        # From 2.30: rail and plane.
        (" [0]mlx5_0:1:3:0/IB ; OOB eth0:10.0.0.1<0>", 0, "over InfiniBand with GDR (mlx5_0)"),
        # From 2.23: a device that NCCL made of several has a number beyond theirs.
        (
            " [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>",
            2,
            "over InfiniBand with GDR",
        ),
        (" [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>", 2, "with GDR"),
    ],
)
def test_adapters_are_those_of_the_connections(using: str, device: int, moved: str) -> None:
    channel = f"Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/{device}/GDRDMA"
    assert parsed(f"NET/IB : Using{using}", channel).text == f"NET/IB {moved}"


def test_adapters_are_those_of_each_host() -> None:
    using = "NET/IB : Using [0]{}:1/IB [RO]; OOB eth0:10.0.0.1<0>"
    channel = "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA"
    first, second = (
        log(using.format(name), channel, process=process)
        for name, process in (("mlx5_2", "n0:10"), ("mlx5_0", "n1:10"))
    )
    mixed = [line for lines in zip(first, second, strict=True) for line in lines]
    assert (
        parse_transport(mixed, "2.20.5").text == "NET/IB over InfiniBand with GDR (mlx5_0, mlx5_2)"
    )


def test_sockets_say_their_interface_and_family() -> None:
    found = parsed(
        "NET/Socket : Using [0]eth0:10.0.0.1<0> [1]eth1:fe80::1%eth1<0>",
        "Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/1",
    )
    assert (found.text, found.ways[0].family) == ("NET/Socket (eth1)", "IPv6")


def test_ways_within_and_between_machines_are_both_said() -> None:
    found = parsed(
        RING.format("NVL"),
        "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>",
        "Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA",
        "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
    )
    assert found.text == "P2P/CUMEM over NVLink + NET/IB over InfiniBand with GDR (mlx5_0)"


@pytest.mark.parametrize(
    ("paths", "link"),
    [
        (("NVL", "NVL"), " over NVLink"),
        (("PHB",), " over PCIe"),
        (("NVL", "SYS"), " over NVLink and PCIe"),
        (("C2C",), ""),
        (("NVL", "NEW"), ""),
        ((), ""),
    ],
)
def test_the_link_between_gpus_is_the_rings(paths: tuple[str, ...], link: str) -> None:
    rings = [RING.format(path) for path in paths]
    found = parsed(*rings, "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM")
    assert found.text == f"P2P/CUMEM{link}"


CHANNEL = "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"


@pytest.mark.parametrize(
    ("texts", "nvls"),
    [
        # From 2.22: the first collective on NVLS makes its buffers.
        ((AVAILABLE, DONE.format("0x5a"), SWITCH.format("0x5a")), "used"),
        # Up to 2.21, or with NCCL_RUNTIME_CONNECT=0: every communicator makes them.
        ((AVAILABLE, SWITCH.format("0x5a"), DONE.format("0x5a")), "available"),
        ((DONE.format("0x5a"), SWITCH.format("0x6b"), DONE.format("0x6b")), "available"),
        ((AVAILABLE, DONE.format("0x5a")), "available"),
        (("Connected NVLS tree",), "available"),
        (("NVLS multicast support is not available on dev 0",), "absent"),
        ((), None),
    ],
)
def test_nvls_is_used_only_where_a_collective_asked_for_it(
    texts: tuple[str, ...], nvls: str | None
) -> None:
    found = parsed(*texts, CHANNEL)
    assert found.nvls == nvls
    assert ("NVLS" in found.text) is (nvls == "used")


def test_a_communicator_of_nvls_alone_has_moved_data() -> None:
    assert parsed(DONE.format("0x5a"), SWITCH.format("0x5a")).text == "NVLS over NVLink"


def test_lines_with_times_and_without_a_host_are_read() -> None:
    lines = [
        f"[2026-01-02 03:04:05] n0:1:2 [0] NCCL INFO {CHANNEL}",
        ":1:2 [1] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct",
    ]
    assert parse_transport(lines, "2.26.2").text == "P2P/CUMEM + SHM"


def test_without_a_line_of_nccls_the_reason_names_the_setting() -> None:
    assert parse_transport([], "2.27.7").text == (
        "not known: no line of NCCL 2.27.7 is in the ranks' output (NCCL_DEBUG=INFO writes it there)"
    )


def test_the_log_says_its_version_where_the_rank_does_not() -> None:
    lines = ["NCCL version 2.18.6+cuda12.1", *log(CHANNEL)]
    assert parse_transport(lines, None).source == "NCCL 2.18.6's log"


def test_names_of_devices_that_an_earlier_launch_of_the_processes_printed_count(
    tmp_path: Path,
) -> None:
    whole = tmp_path / "stdout.log"
    using, channel = log(
        "NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
        "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0",
    )
    whole.write_text("\n".join([using, *log(CHANNEL), channel, ""]))
    directory = tmp_path / "launch-1"
    directory.mkdir()
    (directory / "rank-0.stdout.log").write_text(f"step 1\n{channel}\n")
    missing = tmp_path / "absent.log"
    assert (
        read_transport(directory, "2.27.7", [whole, missing]).text
        == "NET/IB over RoCE without GDR (mlx5_0)"
    )


def test_a_last_line_that_is_not_whole_says_nothing(tmp_path: Path) -> None:
    (line,) = log("Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0")
    (tmp_path / "rank-0.stdout.log").write_text(f"{log(CHANNEL)[0]}\n{line}")
    assert read_transport(tmp_path, "2.27.7").text == "P2P/CUMEM"


@pytest.mark.parametrize("end", ["Destroy COMPLETE", "Abort COMPLETE", "Init START"])
def test_buffers_of_a_communicator_at_the_address_of_another_are_those_of_its_start(
    end: str,
) -> None:
    gone = f"comm 0x5a rank 0 nranks 8 cudaDev 0 - {end}"
    found = parsed(DONE.format("0x5a"), gone, AVAILABLE, SWITCH.format("0x5a"), DONE.format("0x5a"))
    assert found.nvls == "available"
