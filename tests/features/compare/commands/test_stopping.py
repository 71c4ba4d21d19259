"""When commands have been launched often enough."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.factories import cells
from torchscale.features.compare.analysis.compare import compare
from torchscale.features.compare.analysis.pair import Pair
from torchscale.features.compare.commands.stopping import is_clear, is_look
from torchscale.schema.run.result_set import LaunchFigures, ResultCell, ResultSet
from torchscale.schema.state import State

_CELLS = cells(batch_sizes=[1], gpu_counts=[1])


def pair(before: Sequence[float], after: Sequence[float]) -> Pair:
    return compare(side(before), side(after))


def side(rates: Sequence[float]) -> ResultSet:
    launches = tuple(LaunchFigures(values={"throughput": rate}) for rate in rates)
    cell = ResultCell(
        cell=_CELLS[0], state=State.OK, device="made up", torch="none", launches=launches
    )
    return ResultSet(name="made up", cells=(cell,))


def test_looks_are_few_and_the_last_launch_is_one() -> None:
    assert [count for count in range(1, 21) if is_look(count, 20)] == [3, 5, 8, 12, 20]
    assert [count for count in range(1, 8) if is_look(count, 7)] == [3, 5, 7]


@pytest.mark.parametrize(
    ("after", "clear"),
    [
        ((50.0, 50.1, 49.9), True),
        ((100.0, 100.1, 99.9), True),
        ((90.0, 92.0, 95.0), False),
        ((100.0, 110.0, 90.0), False),
        ((50.0, 50.1), False),
    ],
    ids=["worse", "same", "worse by chance, perhaps", "noise", "too few launches"],
)
def test_an_early_look_ends_it_only_where_chance_is_out_of_the_question(
    after: tuple[float, ...], clear: bool
) -> None:
    compared = pair((100.0, 100.2, 99.8), after)
    assert is_clear([compared]) is clear
    assert not is_clear([compared, pair((100.0, 101.0), (50.0, 51.0))]), "each pair has to be"


def test_what_a_comparison_calls_worse_may_not_end_an_early_look() -> None:
    compared = pair((100.0, 100.2, 99.8), (90.0, 92.0, 95.0))
    (change,) = compared.cells[0].changes
    assert change.verdict.decided
    assert not is_clear([compared])
