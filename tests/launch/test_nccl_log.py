from __future__ import annotations

from pathlib import Path

from torchscale.launch.nccl_log import parse_nccl_log, read_nccl_log

NEW = """\
node:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
node:1:2 [0] NCCL INFO Channel 01/0 : 3[1] -> 1[1] [send] via NET/IB/2/GDRDMA
node:1:2 [0] NCCL INFO AllReduce: 4096 Bytes -> Algo Tree proto LL channel{Lo..Hi}={0..1}
node:1:2 [0] NCCL INFO AllReduce: 268435456 Bytes -> Algo NVLS proto Simple channel{Lo..Hi}={0..15}
node:1:2 [0] NCCL INFO AllReduce: 1024 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..1}
"""
OLD = """\
node:1:2 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct
node:1:2 [0] NCCL INFO AllGather: 37756928 Bytes -> Algo 1 proto 2 time 2860.208008
"""


def test_transports_and_choices_of_newer_and_older_versions() -> None:
    found = parse_nccl_log(NEW.splitlines())
    assert found is not None
    assert found.transports == ("P2P/CUMEM", "NET/IB/2/GDRDMA")
    assert found.choices == (
        ("all_reduce", 4096, "Tree", "LL"),
        ("all_reduce", 268435456, "NVLS", "Simple"),
        ("all_reduce", 1024, "Ring", "Simple"),
    )
    old = parse_nccl_log(OLD.splitlines())
    assert old is not None
    assert old.transports == ("SHM/direct/direct",)
    assert old.choices == (("all_gather", 37756928, "Ring", "Simple"),)


def test_ranks_logs_are_read_and_silence_is_none(tmp_path: Path) -> None:
    assert read_nccl_log(tmp_path) is None
    (tmp_path / "rank-0.stdout.log").write_text("a line of the user's\n" + NEW)
    (tmp_path / "rank-1.stdout.log").write_text(OLD)
    found = read_nccl_log(tmp_path)
    assert found is not None
    assert found.transports == ("P2P/CUMEM", "NET/IB/2/GDRDMA", "SHM/direct/direct")
    (tmp_path / "rank-0.stdout.log").write_text("nothing of NCCL\n")
    (tmp_path / "rank-1.stdout.log").unlink()
    assert read_nccl_log(tmp_path) is None
