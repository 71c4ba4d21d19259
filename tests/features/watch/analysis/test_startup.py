"""Where the start of each rank goes, and what takes too much of it."""

from __future__ import annotations

import numpy as np
import pytest

from torchscale.features.watch.analysis.evidence import StartSamples
from torchscale.features.watch.analysis.startup import (
    StartPoints,
    differs,
    rank_start,
    slow_start,
)
from torchscale.schema.profiles.finding import Confidence, FindingKind
from torchscale.schema.watch.rank import ProgramLine, RankStartup
from torchscale.schema.watch.start import PARTS, RankStart

S = 1_000_000_000


def _points(**fields: int) -> RankStartup:
    return RankStartup.model_validate({f"{name}_ns": at * S for name, at in fields.items()})


def _start(points: StartPoints) -> dict[str, float]:
    found = rank_start(0, points)
    return {name: found.part(name) for name in PARTS if found.part(name)}


def test_parts_are_disjoint_and_add_up_to_the_start() -> None:
    points = StartPoints(
        began=100 * S,
        first_end=160 * S,
        startup=_points(python=101, imported=105, group=110, grouped=120),
        first_call=130 * S,
        loads=((122 * S, 125 * S), (123 * S, 126 * S)),
        compiles=((125 * S, 127 * S), (140 * S, 145 * S)),
    )
    found = rank_start(3, points)
    assert _start(points) == {
        "imports": 5.0,
        "before_group": 5.0,
        "group": 10.0,
        "before_collective": 5.0,
        "loading": 4.0,
        "compiling": 6.0,
        "first_step": 25.0,
    }
    assert (found.rank, found.total) == (3, 60.0)


def test_without_a_process_group_all_after_the_imports_is_the_first_step() -> None:
    points = StartPoints(100 * S, 160 * S, _points(imported=105), first_call=107 * S)
    assert _start(points) == {"imports": 5.0, "first_step": 55.0}


def test_a_group_that_is_made_after_the_first_step_is_no_part_of_the_start() -> None:
    points = StartPoints(100 * S, 160 * S, _points(imported=105, group=170, grouped=180))
    assert _start(points) == {"imports": 5.0, "first_step": 55.0}


def test_a_collective_after_the_first_step_ends_no_part_of_the_start() -> None:
    points = StartPoints(100 * S, 160 * S, _points(group=110, grouped=120), first_call=170 * S)
    assert _start(points) == {"before_group": 10.0, "group": 10.0, "first_step": 40.0}


def test_points_of_a_process_that_forked_it_leave_no_part() -> None:
    points = StartPoints(100 * S, 160 * S, _points(imported=90, group=110, grouped=120))
    assert _start(points) == {"before_group": 10.0, "group": 10.0, "first_step": 40.0}


def test_what_came_after_the_first_step_is_left_out() -> None:
    points = StartPoints(
        100 * S, 160 * S, RankStartup(), 170 * S, loads=((155 * S, 165 * S),), compiles=()
    )
    assert _start(points) == {"loading": 5.0, "first_step": 55.0}


LINES = tuple(
    ProgramLine(file="/home/me/train.py", line=line, function=name, called="", samples=0)
    for line, name in ((12, "prepare"), (30, "<module>"))
)


def test_a_part_has_the_line_that_it_is_mostly_at() -> None:
    every = np.arange(105 * S, 121 * S, S // 10)
    place = np.where((every >= 107 * S) & (every < 110 * S), 0, 1)
    samples = StartSamples(every, place, LINES)
    points = StartPoints(
        100 * S,
        121 * S,
        _points(imported=105, group=110, grouped=120),
        loads=((105 * S, 106 * S),),
        samples=samples,
    )
    found = rank_start(0, points)
    assert found.places == {"before_group": "train.py:12 (prepare)", "loading": "train.py:30"}


def test_a_part_that_is_short_or_at_many_lines_has_none() -> None:
    every = np.arange(100 * S, 110 * S, S // 2)
    samples = StartSamples(every, np.arange(len(every)) % 2, LINES)
    points = StartPoints(100 * S, 110 * S, _points(imported=103, group=109), samples=samples)
    assert rank_start(0, points).places == {}


def _ranks(count: int, late: dict[int, dict[str, float]], **usual: float) -> list[RankStart]:
    """Ranks whose first steps end together: who is not late waits in the process group."""
    known = {"imports": 3.0, "group": 0.1, "first_step": 1.0, **usual}
    starts = [RankStart(rank=rank, **{**known, **late.get(rank, {})}) for rank in range(count)]
    last = max(one.total for one in starts)
    return [one.model_copy(update={"group": one.group + last - one.total}) for one in starts]


@pytest.mark.parametrize(
    ("part", "advice"),
    [
        ("imports", "Python environment"),
        ("before_group", "before init_process_group"),
        ("before_collective", "after init_process_group"),
        ("loading", "load the checkpoint"),
        ("compiling", "compile cache"),
    ],
)
@pytest.mark.parametrize("count", [2, 8])
def test_the_rank_that_the_others_wait_for_is_named_with_its_part(
    part: str, advice: str, count: int
) -> None:
    found = slow_start(_ranks(count, {1: {part: 43.0}}, **{part: 3.0}))
    assert found is not None
    assert (found.kind, found.rank, found.cost_percent) == (FindingKind.SLOW_START, 1, 0.0)
    assert "wait 40 s for rank 1" in found.summary
    assert f"{PARTS[part]} takes 43 s there and 3.0 s on the others" in found.summary
    assert advice in found.advice
    assert found.confidence is Confidence.HIGH


def test_several_late_ranks_are_listed_and_none_is_blamed_alone() -> None:
    late = {rank: {"before_group": 40.0 + rank} for rank in (4, 5, 6)}
    found = slow_start(_ranks(8, late))
    assert found is not None
    assert found.rank is None
    assert "ranks 4, 5, 6" in found.summary


def test_a_rank_that_nobody_waits_for_is_not_named() -> None:
    """The others do work of their own meanwhile."""
    starts = [
        RankStart(rank=0, imports=3.0, before_group=30.0, group=1.0),
        RankStart(rank=1, imports=3.0, before_collective=30.0, group=1.0),
    ]
    assert slow_start(starts) is None


@pytest.mark.parametrize("seconds", [4.0, 4.9])
def test_some_seconds_are_chance(seconds: float) -> None:
    assert slow_start(_ranks(4, {2: {"imports": 3.0 + seconds}})) is None


SEEN = {"before_group": "train.py:12 (prepare)"}


def _late(seconds: float, usual: float = 0.1) -> list[RankStart]:
    """Rank 1 is late before the process group, at a line that was seen."""
    starts = _ranks(2, {1: {"before_group": usual + seconds}}, before_group=usual)
    return [one.model_copy(update={"places": SEEN}) if one.rank else one for one in starts]


def test_the_line_of_a_late_rank_comes_first() -> None:
    found = slow_start(_late(40.0))
    assert found is not None
    assert found.advice.startswith("look at train.py:12 (prepare) first; look at what this rank")


@pytest.mark.parametrize(
    ("seconds", "usual", "job", "is_told"),
    [(3.5, 0.1, 30.0, True), (3.5, 0.1, 3600.0, False), (3.5, 2.0, 30.0, False)],
    ids=["short job", "long job", "the others take seconds, too"],
)
def test_seconds_at_a_line_count_in_a_short_job(
    seconds: float, usual: float, job: float, *, is_told: bool
) -> None:
    assert (slow_start(_late(seconds, usual), job) is not None) is is_told


def test_a_part_that_takes_less_than_twice_the_others_time_is_their_disk() -> None:
    assert slow_start(_ranks(4, {2: {"loading": 39.0}}, loading=20.0)) is None


def test_a_part_that_takes_most_of_a_long_start_of_all_ranks_is_named() -> None:
    found = slow_start(_ranks(4, {}, loading=90.0))
    assert found is not None
    assert found.rank is None
    assert "1 min 30 s of it is one part: checkpoint load" in found.summary


@pytest.mark.parametrize("usual", [{"loading": 40.0}, {"loading": 40.0, "compiling": 40.0}])
def test_a_short_start_and_one_of_many_parts_are_sound(usual: dict[str, float]) -> None:
    assert slow_start(_ranks(4, {}, **usual)) is None


def test_a_start_of_one_rank_has_no_others_and_no_start_no_finding() -> None:
    assert slow_start([]) is None
    assert slow_start([RankStart(rank=0, imports=30.0)]) is None
    assert slow_start([RankStart(rank=0, imports=3.0, compiling=300.0)]) is not None


def test_starts_differ_by_any_part() -> None:
    assert differs(_ranks(2, {1: {"imports": 9.0}}))
    assert not differs(_ranks(2, {1: {"imports": 7.0}}))
