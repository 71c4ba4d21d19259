"""What is known of a rank before a line of its watchdog is read."""

from __future__ import annotations

from dataclasses import asdict

from torchscale.features.watch.hang.watchdog.record import FailedWork, GroupStatus, RankWatchdog


def test_what_no_line_says_is_unknown() -> None:
    assert asdict(GroupStatus()) == {
        "description": "",
        "group_rank": None,
        "enqueued": None,
        "completed": None,
        "started": -1,
        "failed": None,
        "is_assumed": False,
    }
    assert asdict(RankWatchdog()) == {
        "rank": None,
        "groups": {},
        "unplaced": {},
        "frames": (),
        "failed_at": None,
        "exited_at": None,
        "is_ended": False,
    }
    failed = FailedWork(5, "ALLREDUCE", None)
    assert (failed.group_rank, failed.limit_ms, failed.error, failed.called) == (
        None,
        None,
        "",
        None,
    )
