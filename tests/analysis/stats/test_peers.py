"""Slow peers, and false alarms among equal ones."""

from __future__ import annotations

import numpy as np
import pytest

from torchscale.analysis.stats.peers import (
    FAMILY_ERROR,
    Values,
    _are_even,
    low_peers,
    medians_of_others,
    outliers_among_peers,
)

SAMPLES = 12


def peers(
    rng: np.random.Generator, count: int, *, noise: float = 0.02, spread: float = 0.0
) -> Values:
    """Of equal peers, or of sound ones that differ by ``spread`` for as long as a run lasts."""
    values = 1 + rng.normal(0, noise, (count, SAMPLES)) + rng.normal(0, spread, (count, 1))
    return np.asarray(values)


def named(values: Values, least: float = 0.0) -> list[int]:
    """The peers that are slow in every quarter."""
    return [peer.row for peer in outliers_among_peers(values, least) if peer.is_steady]


def allowed(jobs: int) -> float:
    """What the nominal error and chance give, once in a thousand times."""
    from scipy import stats

    return float(stats.binom.ppf(0.999, jobs, FAMILY_ERROR))


@pytest.mark.parametrize("noise", [0.002, 0.02, 0.2])
@pytest.mark.parametrize("count", [2, 3, 8, 9, 64])
def test_equal_peers_are_called_slow_in_no_more_jobs_than_is_promised(
    count: int, noise: float
) -> None:
    rng = np.random.default_rng(count)
    jobs = 1_000
    assert sum(bool(named(peers(rng, count, noise=noise))) for _ in range(jobs)) <= allowed(jobs)


def test_a_thousand_equal_peers_are_called_slow_as_rarely() -> None:
    rng = np.random.default_rng(0)
    jobs = 1_000
    assert sum(bool(named(peers(rng, 1_000))) for _ in range(jobs)) <= allowed(jobs)


@pytest.mark.parametrize("count", [16, 64, 1_000])
def test_many_sound_peers_that_differ_by_a_few_per_cent_name_nobody(count: int) -> None:
    """Devices of one name lie within some 8 % of each other, for as long as a run lasts: of a
    thousand, one is slower than the others by more than noise in every job."""
    rng = np.random.default_rng(count)
    jobs = 100
    slow = sum(bool(named(peers(rng, count, spread=0.02), 0.03)) for _ in range(jobs))
    assert slow <= allowed(jobs)


@pytest.mark.parametrize(
    ("count", "slower", "found"),
    [
        (2, 0.05, 0.75),
        (3, 0.05, 0.8),
        (4, 0.05, 0.85),
        (8, 0.05, 0.85),
        (9, 0.05, 0.85),
        (64, 0.05, 0.85),
        (1_000, 0.05, 0.6),
        (2, 0.08, 0.95),
        (8, 0.08, 0.95),
        (64, 0.08, 0.95),
        (1_000, 0.08, 0.95),
    ],
)
def test_a_peer_that_is_slower_by_two_and_four_times_the_noise_of_a_sample_is_found(
    count: int, slower: float, found: float
) -> None:
    rng = np.random.default_rng(count)
    jobs, hits = 100, 0
    for _ in range(jobs):
        values = peers(rng, count)
        values[1] += slower
        hits += named(values, 0.03)[:1] == [1]
    assert hits >= found * jobs


def test_two_peers_are_held_to_the_interval_alone() -> None:
    """Of two there is one difference: 95 % on both sides are 2.5 % for each."""
    excess = np.array([0.0, 0.1, 0.2])  # mean 0.1, error 0.1 ÷ √3: t = 1.73 of 4.30
    assert not outliers_among_peers(np.stack([1 + excess, np.ones(3)]))
    excess = np.array([0.06, 0.1, 0.14])  # t = 4.33
    (slow,) = outliers_among_peers(np.stack([1 + excess, np.ones(3)]))
    assert (slow.row, slow.others) == (0, 1.0)
    assert slow.mine == pytest.approx(1.1)
    assert slow.excess.value == pytest.approx(0.1)
    assert slow.excess.bounds[0] > 0


def test_ranks_of_other_groups_count_among_those_that_are_judged() -> None:
    excess = np.array([0.06, 0.1, 0.14])
    values = np.stack([1 + excess, np.ones(3)])
    assert outliers_among_peers(values, tests=8)
    assert not outliers_among_peers(values, tests=9)


def test_what_counts_is_a_share_of_the_others() -> None:
    values = np.ones((3, 4))
    values[1] = 1.03
    assert [slow.row for slow in outliers_among_peers(values, 0.03)] == [1]
    assert not outliers_among_peers(values, 0.031)


@pytest.mark.parametrize("least", [0.01, 0.03])
def test_peers_that_are_told_even_at_a_glance_have_no_slow_one(
    least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(7)
    jobs = [peers(rng, count, noise=noise) for count in (2, 3, 9) for noise in (1e-4, 2e-3, 2e-2)
            for _ in range(40)]  # fmt: skip
    for number, values in enumerate(jobs):
        values[0] *= 1 + rng.choice([0, 0.5, 0.999999, 1, 1.000001, 2]) * least * (number % 3 > 0)
    told = [named(values, least) for values in jobs]
    even = sum(_are_even(values, least) for values in jobs)
    monkeypatch.setattr("torchscale.analysis.stats.peers._are_even", lambda *_: False)
    assert told == [named(values, least) for values in jobs]
    assert 0 < even < len(jobs) - sum(map(bool, told))
    assert any(told)


def test_the_slowest_is_first_and_a_noisy_one_hides_nobody() -> None:
    values = np.ones((5, 6))
    values[1], values[3], values[4] = 1.1, 1.2, [9.0, 1, 1, 1, 1, 1]
    assert [slow.row for slow in outliers_among_peers(values)] == [3, 1]


def test_a_peer_that_was_slow_for_half_of_the_time_is_not_steady() -> None:
    values = np.ones((2, 12))
    values[0, 6:] = 1.1
    (slow,) = outliers_among_peers(values)
    assert not slow.is_steady


@pytest.mark.parametrize("shape", [(1, 5), (4, 1), (4, 0), (0, 4)])
def test_one_peer_or_one_sample_tells_nothing(shape: tuple[int, int]) -> None:
    assert outliers_among_peers(np.ones(shape)) == []


def test_low_levels_do_not_hide_each_other_but_half_of_them_are_nobody() -> None:
    sound = np.random.default_rng(5).normal(0, 0.006, 13)
    found = low_peers([*sound, -0.2, -0.21, -0.15], 0.001)
    assert found.low == (14, 13, 15)
    assert found.limit < sound.min()
    assert low_peers([0.0, 0.001, 0.002, -0.2, -0.201, -0.202], 0.001).low == ()


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 64])
def test_the_medians_of_the_others_at_once_are_those_of_each_row(ranks: int) -> None:
    values = np.random.default_rng(ranks).normal(size=(ranks, 30))
    values[:, 3] = 1.0
    values[0, 4] = values[1, 4]
    each = [np.median(np.delete(values, row, axis=0), axis=0) for row in range(ranks)]
    assert np.array_equal(medians_of_others(values), np.stack(each))
