"""Of which ranks logs are whose lines say the rank in a group alone."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from tests.features.watch.hang.watchdog.test_logs import verdict, write
from tests.features.watch.hang.watchdog_text import timed_out
from torchscale.features.watch.hang.log_files import RankLog
from torchscale.features.watch.hang.watchdog.lines import SaidInLog
from torchscale.features.watch.hang.watchdog.ranks import watchdogs_of_run
from torchscale.features.watch.hang.watchdog.record import (
    DEFAULT_GROUP,
    UNNAMED_GROUP,
    FailedWork,
    GroupStatus,
    RankWatchdog,
)
from torchscale.schema.launch.hang import StackFrame


def hosts(directory: Path, name: str, *ranks: tuple[int, ...]) -> None:
    for host, of_host in enumerate(ranks):
        texts = [timed_out(rank, 54, 84, 53, version="2.1") for rank in of_host]
        write(directory / name.format(host), *texts)


@pytest.mark.parametrize(
    ("ranks", "missing"),
    [
        ([(0, 1), (3,)], 2),
        ([(1,), (2, 3)], 0),
        ([(0, 1), (3,), (4, 5)], 2),
        ([(0, 1, 2), (), (4,)], 3),
    ],
)
@pytest.mark.parametrize("name", ["host{}.log", "slurm-4711_{}.out"])
def test_a_log_of_a_machine_of_which_one_rank_writes(
    tmp_path: Path, name: str, ranks: list[tuple[int, ...]], missing: int
) -> None:
    hosts(tmp_path, name, *ranks)
    found = verdict(tmp_path)
    assert found.ranks == (missing,)
    assert len(found.positions) == 1 + max(rank for of_host in ranks for rank in of_host)


def test_a_log_of_a_rank_counts_by_its_name(tmp_path: Path) -> None:
    """The ranks in the lines are those in two groups, as both logs have one of them."""
    write(tmp_path / "err.0", timed_out(0, 54, 84, 53, version="2.1"))
    write(tmp_path / "err.1", timed_out(0, 30, 31, 29, version="2.1"))
    assert [position.rank for position in verdict(tmp_path).positions] == [0, 1]
    hosts(tmp_path / "named", "rank_{}.log", (0, 1), (3,))
    assert [position.rank for position in verdict(tmp_path / "named").positions] == [0, 1]


def log(
    rank: int | None, own: Collection[int], named: Collection[int] = (), *, is_sure: bool = False
) -> tuple[RankLog, SaidInLog]:
    """A log in which lines name ranks in a group, and ranks of the job."""
    return (
        RankLog(Path("x.log"), rank, is_sure),
        SaidInLog(
            {one: RankWatchdog(one) for one in named},
            {one: RankWatchdog(groups={UNNAMED_GROUP: GroupStatus(group_rank=one)}) for one in own},
        ),
    )


def machines() -> list[tuple[RankLog, SaidInLog]]:
    """Logs of two machines, in the second of which one rank writes."""
    return [log(0, (0, 1)), log(1, (3,))]


@pytest.mark.parametrize(
    ("logs", "ranks"),
    [
        (machines(), [[0, 1], [3]]),
        ([log(0, (0,)), log(1, (3,))], [[0], [1]]),
        ([log(0, (0, 1)), log(1, (0,))], [[0, 1], [1]]),
        ([*machines(), log(7, (0, 1), is_sure=True)], [[0, 1], [3], [7]]),
        ([*machines(), log(None, (0,))], [[0, 1], [3], []]),
        ([*machines(), log(2, (0,), (5,))], [[0, 1], [3], [5]]),
        ([*machines(), log(2, ())], [[0, 1], [3], []]),
        ([log(7, (0, 1), is_sure=True)], [[7]]),
        ([], []),
    ],
)
def test_logs_of_machines_are_those_of_different_ranks_of_which_one_has_several(
    logs: Collection[tuple[RankLog, SaidInLog]], ranks: list[list[int]]
) -> None:
    found = watchdogs_of_run([one for one, _ in logs], [said for _, said in logs])
    assert [sorted(of_log) for of_log in found] == ranks


@pytest.mark.parametrize(
    ("groups", "rank", "names"),
    [
        ({DEFAULT_GROUP: 9, "1": 0}, 9, [DEFAULT_GROUP, "1"]),
        ({DEFAULT_GROUP: None}, 4, [DEFAULT_GROUP]),
        ({UNNAMED_GROUP: 4}, 4, [DEFAULT_GROUP]),
        ({UNNAMED_GROUP: 3}, 4, [UNNAMED_GROUP]),
        ({"1": 0}, 4, ["1"]),
    ],
)
def test_the_place_in_the_default_group_is_the_rank_else_the_name_of_the_log_says_it(
    groups: dict[str, int | None], rank: int, names: list[str]
) -> None:
    own = RankWatchdog(
        groups={name: GroupStatus(group_rank=place) for name, place in groups.items()}
    )
    (found,) = watchdogs_of_run([RankLog(Path("rank_4.log"), 4)], [SaidInLog({}, {0: own})])
    assert {one: list(watchdog.groups) for one, watchdog in found.items()} == {rank: names}


def test_what_one_rank_says_under_several_numbers_is_joined_the_first_counting() -> None:
    first, second, third = (GroupStatus(enqueued=number) for number in (1, 2, 3))
    works = [FailedWork(number, "ALLREDUCE", elements) for number, elements in ((5, 1), (6, 2))]
    frames = [(StackFrame(file=name, line=1, function="f"),) for name in ("a.py", "b.py")]
    own = {
        0: RankWatchdog(groups={"1": first}, unplaced={5: works[0]}, exited_at=3.0),
        1: RankWatchdog(
            groups={"1": second, "2": third},
            unplaced={5: works[1], 6: works[1]},
            frames=frames[0],
            failed_at=0.0,
            exited_at=4.0,
        ),
        2: RankWatchdog(frames=frames[1], failed_at=9.0),
    }
    (found,) = watchdogs_of_run([RankLog(Path("rank_4.log"), 4)], [SaidInLog({}, own)])
    assert found == {
        4: RankWatchdog(
            groups={"1": first, "2": third},
            unplaced={5: works[0], 6: works[1]},
            frames=frames[0],
            failed_at=0.0,
            exited_at=3.0,
        )
    }
