"""Of which ranks logs are whose lines say the rank in a group alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.watch.hang.watchdog.test_logs import verdict, write
from tests.features.watch.hang.watchdog_text import timed_out


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
