"""Files of all ranks → steps, a stretch at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.features.watch.analysis.jobs import START_NS, job, steps_of
from tests.features.watch.job.folders import append, until, write_job
from torchscale.features.watch.job.follow import JobFollower


def _all(follower: JobFollower) -> list[int]:
    counts = []
    while (stretch := follower.advance()) is not None:
        counts.append(len(stretch.steps))
    return counts


def test_a_job_that_has_ended_is_read_whole(tmp_path: Path) -> None:
    follower = JobFollower(write_job(tmp_path, job(2, 40)))

    assert _all(follower) == [40]
    assert follower.ranks == (0, 1)


def test_stretches_of_a_running_job_join_to_the_same_steps(tmp_path: Path) -> None:
    events = job(2, 60, lambda rank, _: 3.0 * rank)
    cuts = [until(one, START_NS + 400_000_000, drained=True) for one in events]
    write_job(tmp_path, [first for first, _ in cuts], state="running")
    follower = JobFollower(tmp_path)
    early = follower.advance()
    assert early is not None
    assert 20 < len(early.steps) < 40
    for number, (_, rest) in enumerate(cuts):
        folder = tmp_path / "ranks" / f"{number}.0"
        append(folder, rest)
        text = (folder / "rank.json").read_text()
        (folder / "rank.json").write_text(text.replace('"running"', '"ended"'))
    late = follower.advance()
    assert late is not None

    whole = steps_of(events)
    joined = np.concatenate([early.steps.own, late.steps.own], axis=1)
    assert np.allclose(joined, whole.own, atol=1e-6)
    assert late.steps.first == len(early.steps)


def test_steps_count_once_their_collectives_were_read(tmp_path: Path) -> None:
    write_job(tmp_path, job(2, 40), state="running")

    assert JobFollower(tmp_path).advance() is None  # the recorder has not been read yet


def test_a_job_waits_for_its_last_rank(tmp_path: Path) -> None:
    write_job(tmp_path, job(2, 40), world_size=3, local_world_size=3)

    assert JobFollower(tmp_path).advance() is None


def test_ranks_of_other_hosts_that_write_elsewhere_are_not_waited_for(tmp_path: Path) -> None:
    write_job(tmp_path, job(2, 40), world_size=4)

    assert _all(JobFollower(tmp_path)) == [40]


def test_a_program_without_an_optimizer_has_rounds(tmp_path: Path) -> None:
    events = job(2, 100)
    without = [
        type(one)(
            type(one.moments)(
                one.moments.time[one.moments.kind > 1],
                one.moments.kind[one.moments.kind > 1],
                one.moments.detail[one.moments.kind > 1],
            ),
            one.calls,
            one.core_time,
        )
        for one in events
    ]
    follower = JobFollower(write_job(tmp_path, without))

    assert sum(_all(follower)) == 99
    assert follower.round is not None
