"""Which collectives of a step count, and by how much: of steps whose lateness is known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from torchscale.features.watch.analysis.chains import LEAST_STEPS, Chains

Values = NDArray[np.float64]
STEPS = 64


def scales(lengths: Values, *, late_host: float = 0.0, period: float = 100.0) -> Values:
    """By how much the places of the last step count; hosts issue them evenly, up to the end of the
    step. ``late_host``: of the last rank, in all of them."""
    steps, ranks, count = lengths.shape
    since = np.broadcast_to(period * np.arange(1, count + 1) / count, (steps, ranks, count)).copy()
    since[:, -1] += late_host
    found = Chains().scales(0, lengths, since, np.full(steps, period))
    return np.asarray(found[-1])


def under_work(slow: float, *, ranks: int = 8, noise: float = 0.01, steps: int = STEPS) -> Values:
    """Ten collectives on a stream of their own under work of 10 a place, which the last rank does
    slower by the share ``slow``; none waits for them before the step's end."""
    count, transfer = 10, 0.5
    random = np.random.default_rng(3)
    work = 10 * (1 + noise * random.standard_normal((steps, ranks, count)))
    work[:, -1] *= 1 + slow
    done = work.cumsum(axis=2)
    lengths = np.zeros((steps, ranks, count))
    end = np.zeros(steps)
    for place in range(count):
        ready = np.maximum(done[:, :, place], end[:, None])
        end = ready.max(axis=1) + transfer
        lengths[:, :, place] = end[:, None] - ready
    return lengths


def in_turn(lateness: Values, ranks: int = 8) -> Values:
    """Collectives that all ranks go on from together; how late the last one is at each place."""
    random = np.random.default_rng(4)
    late = 0.05 * random.standard_normal((STEPS, ranks, len(lateness)))
    late[:, -1] += lateness * (1 + 0.1 * random.standard_normal((STEPS, len(lateness))))
    return np.asarray(0.5 + late.max(axis=1, keepdims=True) - late)


def cost(lengths: Values, counted: Values) -> float:
    """What the middle rank waits in a step."""
    waits = lengths - lengths.min(axis=1, keepdims=True)
    return float((np.median(waits, axis=1) * counted).sum(axis=1).mean())


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_collectives_that_all_go_on_from_count_each(ranks: int) -> None:
    counted = scales(in_turn(np.array([1.0, 2.0, 1.5, 1.0]), ranks))
    assert counted.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("noise", [0.001, 0.01])
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_lateness_that_grows_under_work_counts_once(ranks: int, noise: float) -> None:
    lengths = under_work(0.03, ranks=ranks, noise=noise)
    counted = scales(lengths)
    assert np.count_nonzero(counted) == 1
    waits = lengths - lengths.min(axis=1, keepdims=True)
    late = (waits.max(axis=1) * counted).sum(axis=1).mean()
    assert late == pytest.approx(3, rel=0.2)


@pytest.mark.parametrize("noise", [0.001, 0.01, 0.03])
@pytest.mark.parametrize("slow", [0.15, 0.25, 0.5, 0.9])
def test_lateness_that_later_collectives_hide_is_continued(slow: float, noise: float) -> None:
    """Ranks that wait have queued the later ones, whose waits stay the same."""
    lengths = under_work(slow, noise=noise)
    counted = scales(lengths)
    assert cost(lengths, counted) == pytest.approx(100 * slow, rel=0.1)
    assert cost(lengths, np.ones(10)) > 1.4 * cost(lengths, counted)
    assert np.count_nonzero(counted) == 1


def test_a_host_that_is_late_is_as_late_at_the_end() -> None:
    lengths = under_work(0.0)
    random = np.random.default_rng(5)
    lengths[:, :-1, 0] += 15 + 0.1 * random.standard_normal((STEPS, 7))
    lengths[:, :-1, 1:] = lengths[:, -1:, 1:] + 9.5
    assert cost(lengths, scales(lengths, late_host=15.0)) == pytest.approx(15, rel=0.05)


def test_collectives_in_which_nobody_waits_leave_a_chain_whole() -> None:
    """Gathers and reductions of a layer take turns on one stream."""
    both = np.full((STEPS, 8, 20), 0.5)
    both[:, :, ::2] = under_work(0.05)
    counted = scales(both)
    assert np.count_nonzero(counted) == 1
    assert cost(both, counted) == pytest.approx(5, rel=0.1)


def test_ranks_that_only_scatter_are_not_late_by_more() -> None:
    lengths = under_work(0.0)
    waits = lengths - lengths.min(axis=1, keepdims=True)
    counted = scales(lengths)
    of_rank = (waits * counted).sum(axis=2).mean(axis=0)
    assert of_rank.max() - of_rank.min() < 1.0


def test_a_length_that_is_not_known_leaves_the_places_of_the_others() -> None:
    random = np.random.default_rng(6)
    lengths = under_work(0.25)
    whole = cost(lengths, scales(lengths))
    unknown = random.random(lengths.shape) < 0.02
    unknown[:, 3, 4] = True
    counted = scales(np.where(unknown, np.nan, lengths))
    assert counted[4] == 0
    assert cost(lengths, counted) == pytest.approx(whole, rel=0.1)


def test_nothing_is_known() -> None:
    assert scales(np.full((STEPS, 4, 3), np.nan)).sum() <= 1


def test_of_few_steps_one_collective_counts() -> None:
    lengths = in_turn(np.array([1.0, 2.0, 1.5]))
    assert scales(lengths[: LEAST_STEPS - 1]).tolist() == [0, 1, 0]
    assert scales(lengths[:LEAST_STEPS]).tolist() == [1, 1, 1]


def test_they_are_learned_over_several_readings() -> None:
    lengths = under_work(0.05)
    chains = Chains()
    for part in np.array_split(lengths, 10):
        since = np.broadcast_to(np.arange(1.0, 11.0), part.shape)
        found = chains.scales(0, part, since, np.full(len(part), 100.0))
    assert np.count_nonzero(found[-1]) == 1
    assert cost(lengths, found[-1]) == pytest.approx(5, rel=0.1)
    other = chains.scales(1, lengths[:2], lengths[:2], np.full(2, 100.0))
    assert np.count_nonzero(other[-1]) == 1


def test_a_rank_that_becomes_slow_is_as_late_soon_after() -> None:
    lengths = np.concatenate([under_work(0.0, steps=400), under_work(0.5, steps=96)])
    since = np.broadcast_to(10.0 * np.arange(1, 11), lengths.shape)
    counted = Chains().scales(0, lengths, since, np.full(len(lengths), 100.0))
    assert cost(lengths[-16:], counted[-16:]) == pytest.approx(50, rel=0.35)
