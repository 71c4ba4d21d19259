"""Replies of NCCL's RAS service, in the format of its documentation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from torchscale.errors import TraceError
from torchscale.features.watch.hang.ras_status import ras_notes, read_ras, saved_ras_notes


def ras_rank(number: int, **changes: Any) -> dict[str, Any]:
    status = {
        "init_state": 0,
        "async_error": 0,
        "finalize_called": False,
        "destroy_flag": False,
        "abort_flag": False,
    }
    counts = {"Broadcast": 4, "Reduce": 0, "AllGather": 0, "ReduceScatter": 0, "AllReduce": 57}
    return {
        "rank": number,
        "host": "10.0.0.1",
        "pid": 100 + number,
        "cuda_dev": number,
        "nvml_dev": number,
        "status": status,
        "collective_counts": counts,
        **changes,
    }


def reply(ranks: list[dict[str, Any]], missing: list[dict[str, Any]]) -> bytes:
    communicator = {
        "hash": "0xae94",
        "secondary_hash": "0xb7e7:0xb824",
        "size": len(ranks) + len(missing),
        "ranks_count": len(ranks),
        "missing_ranks_count": len(missing),
        "ranks": ranks,
        "missing_ranks": missing,
    }
    status = {
        "nccl_version": "2.29.1",
        "cuda_runtime_version": 13000,
        "timestamp": "2025-12-19 13:06:53",
        "communicators_count": 1,
        "communicators": [communicator],
        "ras": {"collection_time_sec": 0.0, "timeouts_count": 0},
    }
    return json.dumps(status, indent=2).encode()


def test_a_rank_that_does_not_respond() -> None:
    lost = ras_rank(1, status={"unresponsive": True, "considered_dead": False})
    dead = ras_rank(2, status={"unresponsive": True, "considered_dead": True})
    del lost["collective_counts"], dead["collective_counts"]
    notes = ras_notes(read_ras(reply([ras_rank(0)], [lost, dead])), {100})
    assert notes == (
        "NCCL RAS, communicator 0xae94 of 3 ranks: rank 1 (pid 101 on 10.0.0.1) does not respond",
        "NCCL RAS, communicator 0xae94 of 3 ranks: rank 2 (pid 102 on 10.0.0.1) is considered dead",
    )


def test_a_rank_that_is_behind() -> None:
    behind = ras_rank(1, collective_counts={"Broadcast": 4, "AllReduce": 56})
    (note,) = ras_notes(read_ras(b"OK\n" + reply([ras_rank(0), behind], [])), {101})
    assert (
        note == "NCCL RAS, communicator 0xae94 of 2 ranks: AllReduce called 57 times, by rank 1 56"
    )


def test_another_jobs_communicators_are_left_out() -> None:
    lost = ras_rank(1, status={"unresponsive": True})
    assert ras_notes(read_ras(reply([ras_rank(0)], [lost])), {7}) == ()


def test_ranks_in_step_are_no_news() -> None:
    assert ras_notes(read_ras(reply([ras_rank(0), ras_rank(1)], [])), {100, 101}) == ()


def test_many_ranks_fit_a_line() -> None:
    ranks = [ras_rank(0), *(ras_rank(n, collective_counts={"AllReduce": 3}) for n in range(1, 40))]
    notes = ras_notes(read_ras(reply(ranks, [])), {100})
    assert any("and 31 more" in note for note in notes)


@pytest.mark.parametrize("data", [b"", b"Job summary\n===\n", b"{", b'{"communicators": 5}', b"[]"])
def test_a_reply_without_json_is_refused(data: bytes) -> None:
    with pytest.raises(TraceError, match="NCCL"):
        read_ras(data)


@pytest.mark.parametrize(("behind", "end"), [(8, "rank 8 3"), (9, "rank 8 3 and 1 more")])
def test_only_what_a_line_does_not_name_is_counted(behind: int, end: str) -> None:
    late = (ras_rank(n, collective_counts={"AllReduce": 3}) for n in range(1, behind + 1))
    first = ras_rank(0, collective_counts={"AllReduce": 4})
    (note,) = ras_notes(read_ras(reply([first, *late], [])), {100})
    assert note.endswith(end)


def test_a_job_that_lost_all_its_ranks_gets_eight_lines() -> None:
    """One for each of the first ranks of a communicator: the evidence of a hang has other lines
    too."""
    lost = [ras_rank(number, status={"unresponsive": True}) for number in range(1, 30)]
    status = read_ras(reply([ras_rank(0)], lost))
    assert len(ras_notes(status, {100})) == 8
    status.communicators *= 2
    assert len(ras_notes(status, {100})) == 8


def test_a_saved_reply_is_read_whoever_its_processes_are() -> None:
    status = {"unresponsive": True, "considered_dead": False}
    lost = ras_rank(1, status=status)
    saved = reply([ras_rank(0)], [lost])
    assert len(saved_ras_notes(saved)) == 1
    assert saved_ras_notes(b"no reply of any service\n=====\n# a title\n  text\n") == ()
