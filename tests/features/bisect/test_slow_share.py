"""Where the bad end has two states: how often launches are slow."""

from __future__ import annotations

import math

import pytest

from torchscale.features.bisect.hypotheses import steps
from torchscale.features.bisect.slow_share import Judged, SlowShares


def judged(*counts: tuple[int, int]) -> list[Judged]:
    """Of each environment, so many launches and so many slow ones."""
    return [
        Judged(place, number < slow)
        for place, (count, slow) in enumerate(counts)
        for number in range(count)
    ]


def test_the_answer_has_slow_launches_on_one_side_alone() -> None:
    evidence = SlowShares(steps(4), judged((12, 0), (12, 0), (12, 6), (12, 7)), 0.05)
    assert [one.members for one in evidence.left] == [(2,)]
    assert evidence.is_slow(1) < 0.01
    assert evidence.is_slow(2) > 0.99


def test_few_launches_leave_several_answers() -> None:
    evidence = SlowShares(steps(4), judged((4, 0), (2, 0), (2, 1), (4, 2)), 0.05)
    assert len(evidence.left) > 1


def test_the_ends_differ_by_a_likelihood_against_the_best_of_one_probability() -> None:
    """Six of eight against none of eight. By hand: B(1, 27)/B(1, 19) · B(7, 3)/B(1, 1) against
    (6/16)^6 (10/16)^10."""
    evidence = SlowShares(steps(2), judged((8, 0), (8, 6)), 0.05)
    apart = math.log((1 / 27) / (1 / 19)) + math.log(1 / 252)
    together = 6 * math.log(6 / 16) + 10 * math.log(10 / 16)
    assert apart - together == pytest.approx(4.70, abs=0.01)
    assert evidence.differ()
    assert not SlowShares(steps(2), judged((8, 0), (8, 6)), 0.008).differ()
    assert not SlowShares(steps(2), judged((8, 4), (8, 5)), 0.05).differ()
    assert not SlowShares(steps(2), judged((8, 0), (8, 0)), 0.05).differ()
