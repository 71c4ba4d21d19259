"""Lines as releases of NCCL print them (formats of src/enqueue.cc, src/transport and src/scheduler
at each tag)."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchscale.features.machine.collectives.nccl_log import parse_nccl_log, read_nccl_log
from torchscale.schema.cells.collectives import NcclLog

HEAD = "node:1:2 [0] NCCL INFO "
NEW = f"""\
{HEAD}Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
{HEAD}Channel 01/0 : 3[1] -> 1[1] [send] via NET/IB/2/GDRDMA
{HEAD}AllReduce: 4096 Bytes -> Algo TREE proto LL channel{{Lo..Hi}}={{0..1}}
{HEAD}AllReduce: 268435456 Bytes -> Algo NVLS proto SIMPLE channel{{Lo..Hi}}={{0..15}}
{HEAD}AllReduce: 536870912 Bytes -> Algo NVLS_TREE proto SIMPLE channel{{Lo..Hi}}={{0..15}}
{HEAD}AllGather: 9439232 Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..23}}
{HEAD}ReduceScatter: 1024 Bytes -> Algo PAT proto SIMPLE channel{{Lo..Hi}}={{0..0}}
{HEAD}Broadcast: 32768 Bytes -> Algo RING proto LL128 channel{{Lo..Hi}}={{0..1}}
"""
"""From 2.24."""
NAMED = f"{HEAD}AllGather: 37756928 Bytes -> Algo 1 proto 2 time 2860.208008\n"
"""2.23."""
UNNAMED = f"""\
{HEAD}Channel 00 : 0[0] -> 1[1] via SHM/direct/direct
{HEAD}AllGather: opCount 1606 sendbuff 0x93fd44a00 recvbuff 0x96d44e200 count 2359808 datatype 7 op 0 root 0 comm 0x55 \
[nranks=4] stream 0x55
{HEAD}37756928 Bytes -> Algo 1 proto 2 time 2860.208008
{HEAD}AllReduce: opCount 1607 sendbuff 0x93fd44a00 recvbuff 0x96d44e200 count 1024 datatype 7 op 0 root 0 comm 0x55 \
[nranks=4] stream 0x55
{HEAD}4096 Bytes -> Algo 0 proto 0 time 28.200001
"""
"""2.21 and 2.22, with the calls."""
REGISTERED = f"""\
{HEAD}AllReduce [Symmetric]: 4096 Bytes -> Kernel AllReduce_AGxLL_R nchannels 1 nthreads 512
{HEAD}AllGather [Copy Engine]: 1024 Bytes -> cudaMemcpy; CE synchronization with NVLS
"""
"""From 2.27 and 2.29, with registered buffers."""


def parsed(text: str, world_size: int = 4) -> NcclLog:
    log = parse_nccl_log(text.splitlines(), world_size)
    assert log is not None
    return log


def test_transports_and_choices_of_the_newest_form_are_scaled_to_the_payload() -> None:
    log = parsed(NEW)
    assert log.transports == ("P2P/CUMEM", "NET/IB/2/GDRDMA")
    assert log.choices == (
        ("all_reduce", 4096, "Tree", "LL"),
        ("all_reduce", 268435456, "NVLS", "Simple"),
        ("all_reduce", 536870912, "NVLSTree", "Simple"),
        ("all_gather", 4 * 9439232, "Ring", "Simple"),
        ("reduce_scatter", 4 * 1024, "PAT", "Simple"),
        ("broadcast", 32768, "Ring", "LL128"),
    )


def test_older_forms_have_numbers_and_the_whole_payload() -> None:
    assert parsed(NAMED).choices == (("all_gather", 37756928, "Ring", "Simple"),)
    log = parsed(UNNAMED)
    assert log.transports == ("SHM/direct/direct",)
    assert log.choices == (
        ("all_gather", 37756928, "Ring", "Simple"),
        ("all_reduce", 4096, "Tree", "LL"),
    )


def test_a_choice_without_its_operation_is_none() -> None:
    assert parsed(f"{HEAD}4096 Bytes -> Algo 0 proto 0 time 28.200001").choices == ()


def test_registered_buffers_are_an_algorithm_of_their_own() -> None:
    assert parsed(REGISTERED).choices == (
        ("all_reduce", 4096, "Symmetric", "AllReduce_AGxLL_R"),
        ("all_gather", 4096, "CopyEngine", "cudaMemcpy"),
    )


@pytest.mark.parametrize(
    ("line", "nvls"),
    [
        ("NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)", True),
        (
            "NVLS comm 0x55d3 headRank 0 nHeads 8 buffSize 1048576 nvlsPerRankSize 201326592 "
            "nvlsTotalSize 161061",
            True,
        ),
        ("Connected NVLS tree", True),
        ("NVLS multicast support is not available on dev 0", False),
        ("Connected all rings", False),
    ],
)
def test_multicast_in_the_switch_is_there_or_not(line: str, nvls: bool) -> None:
    assert parsed(HEAD + line).nvls is nvls


def test_ranks_logs_are_read_and_silence_is_none(tmp_path: Path) -> None:
    assert read_nccl_log(tmp_path, 4) is None
    (tmp_path / "rank-0.stdout.log").write_text("a line of the user's\n" + NEW)
    (tmp_path / "rank-1.stdout.log").write_text(UNNAMED)
    log = read_nccl_log(tmp_path, 4)
    assert log is not None
    assert log.transports == ("P2P/CUMEM", "NET/IB/2/GDRDMA", "SHM/direct/direct")
    (tmp_path / "rank-0.stdout.log").write_text("nothing of NCCL\n")
    (tmp_path / "rank-1.stdout.log").unlink()
    assert read_nccl_log(tmp_path, 4) is None
