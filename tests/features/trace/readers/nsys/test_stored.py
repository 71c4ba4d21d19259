"""Exports read by other processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.trace.readers.builders import SHARED
from tests.features.trace.readers.test_reader_pool import columns
from tests.features.trace.readers.test_stored import rank
from torchscale.features.trace.readers import reader_pool
from torchscale.features.trace.readers.nsys.communicators import ExportedRank, NcclSpan
from torchscale.features.trace.readers.nsys.nccl import NcclCall
from torchscale.features.trace.readers.nsys.stored import load_process, store_process
from torchscale.features.trace.readers.recordings import ReadOptions, read_recordings
from torchscale.features.trace.readers.stored import Shelf

RECORDED = SHARED / "data" / "nsys"


def test_a_process_comes_back_as_it_was(tmp_path: Path) -> None:
    call = NcclCall("all_gather", communicator=1 << 70, message_bytes=5, is_part=True, number=9)
    spans = (
        NcclSpan(1, 2, "ncclDevKernel_AllGather", 7, 3, -1, call, True),
        NcclSpan(4, 6, "ncclDevKernel_AllGather", 7, 4, 2, call, True),
        NcclSpan(8, 9, "ncclDevKernel_SendRecv", 8, 5, 2, None, False),
    )
    store_process(ExportedRank(rank(), spans, lacks_payloads=True), tmp_path, 5)
    back = load_process(tmp_path, 5, Shelf(), {})
    assert back.communication == spans
    assert back.lacks_payloads
    assert columns(back.trace) == columns(rank())


@pytest.mark.slow
@pytest.mark.skipif(not RECORDED.is_dir(), reason="the recorded exports are not here")
def test_processes_read_what_one_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_pool, "_BYTES_PER_PROCESS", 1)
    paths = sorted(RECORDED.glob("*.sqlite"))
    alone = read_recordings(paths)
    together = read_recordings(paths, ReadOptions(directory=tmp_path))
    assert list(map(columns, together.ranks)) == list(map(columns, alone.ranks))
    assert together.notes == alone.notes
