"""How fast the machine itself was, by work that is always the same."""

from __future__ import annotations

import pytest

from torchscale.features.compare.analysis.machine_speed import speed_gap
from torchscale.schema.run.result_set import LaunchFigures


def launches(*work: tuple[float, float] | None) -> list[LaunchFigures]:
    return [LaunchFigures(fixed_work=one) for one in work]


def test_a_side_is_slower_by_what_took_longest_on_it() -> None:
    gap = speed_gap(
        launches((1e-4, 2e-4), (1e-4, 2e-4)), launches((1.05e-4, 2e-4), (1.05e-4, 1.8e-4))
    )
    assert gap is not None
    assert gap.shares[1] == pytest.approx(0.05)
    assert gap.shares[0] == pytest.approx((2 / 1.8) ** 0.5 - 1)
    assert gap.is_unequal


def test_a_small_gap_is_the_scatter_of_the_work() -> None:
    gap = speed_gap(launches((1e-4, 2e-4)), launches((1.01e-4, 1.98e-4)))
    assert gap is not None
    assert not gap.is_unequal


def test_a_side_that_is_slower_in_nothing_is_not_slower() -> None:
    """Bounds are widened by how much slower a side was, and never narrowed by how much faster."""
    gap = speed_gap(launches((1e-4, 2e-4)), launches((1.2e-4, 2.2e-4)))
    assert gap is not None
    assert (gap.slower_before, gap.shares[0]) == (0.0, 0.0)
    other_way = speed_gap(launches((1.2e-4, 2.2e-4)), launches((1e-4, 2e-4)))
    assert other_way is not None
    assert (other_way.slower_after, other_way.shares[1]) == (0.0, 0.0)


def test_a_limit_holds_either_way() -> None:
    gap = speed_gap(launches((1e-4, 4e-4)), launches((2e-4, 2e-4)))
    assert gap is not None
    limited = gap.limited(1.06, 1.10)
    assert limited.shares == pytest.approx((0.10, 0.06))


def test_a_launch_without_the_work_leaves_it_unknown() -> None:
    work = (1e-4, 2e-4)
    for before, after in (((work, None), (work, work)), ((work, work), (work, None))):
        assert speed_gap(launches(*before), launches(*after)) is None
    assert speed_gap([], []) is None


@pytest.mark.parametrize("work", [(1.2e-4, 2e-4), (1e-4, 2.4e-4)])
def test_products_and_copies_are_told_apart(work: tuple[float, float]) -> None:
    """A machine may be slow in one of them alone: clocks that are throttled slow no copy."""
    gap = speed_gap(launches((1e-4, 2e-4)), launches(work))
    assert gap is not None
    assert (gap.products > 0.1, gap.copies > 0.1) == (work[0] > 1e-4, work[1] > 2e-4)
