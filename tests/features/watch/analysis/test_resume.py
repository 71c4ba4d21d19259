"""From which step an attempt goes on: right, or said to be unknown."""

from __future__ import annotations

from typing import Any

import pytest

from torchscale.features.watch.analysis.resume import AttemptStart, find_origin, repeated_steps
from torchscale.schema.watch.attempt import AttemptRecord, CheckpointCall, RankCheckpoints
from torchscale.schema.watch.report import WatchedAttempt

SECOND = 1_000_000_000
BEGAN = 1_000 * SECOND
"""When the first attempt began; its first step ends 10 s later."""


def _save(
    steps: int, path: str = "/job/last.pt", *, at: int | None = None, **known: Any
) -> CheckpointCall:
    """A save of one second, complete ``at`` seconds after the job's beginning."""
    ended = BEGAN + (20 + steps if at is None else at) * SECOND
    facts = {"call": "torch.save", "size": 100, "inode": 7, "modified_ns": ended, **known}
    return CheckpointCall(path=path, steps=steps, began_ns=ended - SECOND, ended_ns=ended, **facts)


def _load(path: str = "/job/last.pt", *, at: int = 500, **known: Any) -> CheckpointCall:
    facts = {"call": "torch.load", "size": 100, "inode": 99, "modified_ns": BEGAN, **known}
    began = BEGAN + at * SECOND
    return CheckpointCall(path=path, steps=0, began_ns=began, ended_ns=began + 1, **facts)


def _earlier(
    *saves: CheckpointCall, steps: int = 100, number: int = 0, first: int | None = 0
) -> AttemptRecord:
    attempt = WatchedAttempt(
        number=number, began=1_000.0, last_seen=1_400.0, steps=steps, first_step=first
    )
    return AttemptRecord(attempt=attempt, first_step_at=1_010.0, saves=saves)


def _origin(
    *loads: CheckpointCall, earlier: list[AttemptRecord], unseen: tuple[str, ...] = ()
) -> AttemptStart:
    ranks = [RankCheckpoints(loads=loads, unseen=unseen)]
    return find_origin(ranks, earlier, has_optimizer=True)


def test_the_first_attempt_repeats_nothing() -> None:
    origin = _origin(_load(), earlier=[])

    assert origin.step == 0
    assert repeated_steps(origin, 100, []) == 0


def test_a_checkpoint_by_its_path() -> None:
    earlier = [_earlier(_save(80))]
    origin = _origin(_load(), earlier=earlier)

    assert origin == AttemptStart(80, "from step 80: it loaded last.pt")
    assert repeated_steps(origin, 50, earlier) == 20
    assert repeated_steps(origin, 5, earlier) == 5


def test_nothing_loaded_repeats_all() -> None:
    earlier = [_earlier(_save(80))]
    origin = _origin(earlier=earlier)

    assert origin.step == 0
    assert "loaded no checkpoint" in origin.reason
    assert repeated_steps(origin, 150, earlier) == 100


def test_a_checkpoint_that_was_renamed_is_known_by_its_file() -> None:
    written = _save(80, "/job/part")
    load = _load("/job/step-80.pt", inode=7, modified_ns=written.modified_ns)

    assert _origin(load, earlier=[_earlier(written)]).step == 80


def test_an_inode_that_was_used_again_is_another_file() -> None:
    load = _load("/data/words.pt", inode=7, modified_ns=BEGAN - 9 * SECOND)

    assert _origin(load, earlier=[_earlier(_save(80))]).step == 0


def test_the_last_of_several_saves_to_a_path_that_was_complete() -> None:
    earlier = [_earlier(_save(40), number=0), _earlier(_save(60), number=1, first=40)]

    assert _origin(_load(), earlier=earlier).step == 100
    assert _origin(_load(at=65), earlier=earlier).step == 40  # the second was not complete yet


def test_an_earlier_checkpoint_is_not_the_last_one() -> None:
    earlier = [_earlier(_save(40, "/job/40.pt"), _save(80, "/job/80.pt", inode=8))]

    assert _origin(_load("/job/40.pt"), earlier=earlier).step == 40


def test_bytes_that_the_program_writes_itself() -> None:
    memory: dict[str, Any] = {"inode": None, "modified_ns": None}
    saves = [_save(40, "", size=900, **memory), _save(80, "", size=900, **memory)]
    earlier = [_earlier(*saves)]
    late = _load("/job/80.ckpt", size=900, modified_ns=BEGAN + 101 * SECOND)
    early = _load("/job/40.ckpt", size=900, modified_ns=BEGAN + 61 * SECOND)

    assert _origin(late, earlier=earlier).step == 80
    assert _origin(early, earlier=earlier).step == 40
    assert _origin(_load("", size=900, **memory), earlier=earlier).step == 80
    other = _load("/job/80.ckpt", size=901, modified_ns=BEGAN + 101 * SECOND)
    assert _origin(other, earlier=earlier).step is None


@pytest.mark.parametrize(
    "load",
    [
        _load("/data/words.pt", modified_ns=BEGAN - SECOND),
        _load("/cache/pretrained.pt", modified_ns=BEGAN + 5 * SECOND),  # fetched before step 1
        _load("", size=33, inode=None, modified_ns=None),  # a sample in memory
    ],
    ids=["data", "pretrained", "bytes"],
)
def test_a_data_set_or_a_pretrained_model_is_no_checkpoint(load: CheckpointCall) -> None:
    assert _origin(load, earlier=[_earlier(_save(80, "/job/80.pt"))]).step == 0
    beside = [load, _load("/job/80.pt")]
    assert _origin(*beside, earlier=[_earlier(_save(80, "/job/80.pt"))]).step == 80


def test_data_that_the_job_prepares_before_its_first_step_is_no_checkpoint() -> None:
    earlier = [_earlier(_save(0, "/job/cache.pt", at=5), _save(80, "/job/80.pt"))]

    assert _origin(_load("/job/cache.pt"), earlier=earlier).step == 0
    assert _origin(_load("/job/cache.pt"), _load("/job/80.pt"), earlier=earlier).step == 80


def test_a_file_of_unseen_calls_is_not_known_by_name() -> None:
    load = _load("/job/shard.bin", modified_ns=BEGAN + 200 * SECOND)
    earlier = [_earlier()]
    origin = _origin(load, earlier=earlier)

    assert origin.step is None
    assert "shard.bin" in origin.reason
    assert repeated_steps(origin, 50, earlier) is None


def test_a_key_of_a_store_without_a_save_is_not_known() -> None:
    load = _load("s3://bucket/step", size=None, inode=None, modified_ns=None)

    assert _origin(load, earlier=[_earlier()]).step is None
    saved = _save(80, "s3://bucket/step", size=None, inode=None, modified_ns=None)
    assert _origin(load, earlier=[_earlier(saved)]).step == 80


def test_a_module_that_saves_in_ways_of_its_own_is_named() -> None:
    origin = _origin(earlier=[_earlier()], unseen=("tensorizer",))

    assert origin.step is None
    assert "tensorizer" in origin.reason
    # Unless a checkpoint was seen.
    assert _origin(_load(), earlier=[_earlier(_save(80))], unseen=("tensorizer",)).step == 80


def test_checkpoints_of_several_steps_are_not_known() -> None:
    earlier = [_earlier(_save(40, "/job/40.pt"), _save(80, "/job/80.pt"))]
    origin = _origin(_load("/job/40.pt"), _load("/job/80.pt"), earlier=earlier)

    assert origin.step is None
    assert "40 and 80" in origin.reason


def test_shards_of_one_step_are_one_checkpoint() -> None:
    saves = [_save(80, f"/job/rank-{rank}.pt", inode=rank) for rank in range(2)]
    loads = [RankCheckpoints(loads=(_load(f"/job/rank-{rank}.pt"),)) for rank in range(2)]

    assert find_origin(loads, [_earlier(*saves)], has_optimizer=True).step == 80


def test_what_follows_an_unknown_beginning_is_unknown() -> None:
    unknown = _earlier(_save(10, "/job/next.pt"), number=1, first=None)
    earlier = [_earlier(_save(80)), unknown]
    origin = _origin(_load("/job/next.pt"), earlier=earlier)

    assert origin.step is None
    assert "attempt 1" in origin.reason
    assert repeated_steps(AttemptStart(80, ""), 50, earlier) is None


def test_rounds_of_collectives_have_no_step_of_a_checkpoint() -> None:
    ranks = [RankCheckpoints(loads=(_load(),))]

    assert find_origin(ranks, [_earlier(_save(80))], has_optimizer=False).step is None


def test_attempts_without_steps_say_nothing() -> None:
    assert _origin(_load(), earlier=[_earlier(steps=0)]).step == 0


def test_three_attempts_count_from_the_furthest() -> None:
    first = _earlier(_save(80), steps=100)
    second = _earlier(steps=5, number=1, first=80)  # it failed sooner than the first
    origin = _origin(_load(), earlier=[first, second])

    assert repeated_steps(origin, 50, [first, second]) == 20
