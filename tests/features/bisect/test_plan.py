"""What a dry run expects: as many launches as a bisection takes."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from tests.features.bisect.games import play, step_costs
from torchscale.features.bisect.hypotheses import steps
from torchscale.features.bisect.launcher import LaunchMetric
from torchscale.features.bisect.outcome import BisectRequest
from torchscale.features.bisect.plan import ASSUMED_NOISE, expected_launches, plan_of
from torchscale.features.bisect.question import ask_versions
from torchscale.features.bisect.search import Limits
from torchscale.features.bisect.state import BisectState, LaunchEntry


def test_expected_launches_are_those_of_other_games() -> None:
    expected = expected_launches(steps(12), 12, Limits(), 0.03, 0.1)
    played = [
        len(play(steps(12), step_costs(12, first, 0.1), noise=0.03, seed=100 + first).launches)
        for first in range(1, 12)
    ]
    assert expected.launches == pytest.approx(statistics.median(played), rel=0.25)
    assert expected.answered == 1
    assert expected.most >= expected.launches
    assert expected.seconds is None


def test_more_noise_takes_more_launches() -> None:
    quiet, loud = (expected_launches(steps(4), 4, Limits(), noise, 0.1) for noise in (0.02, 0.08))
    assert loud.launches > 1.5 * quiet.launches


def test_a_limit_that_is_too_low_is_seen() -> None:
    expected = expected_launches(steps(4), 4, Limits(most_launches=10), 0.05, 0.05)
    assert (expected.launches, expected.answered) == (10, 0)


def request(directory: Path) -> BisectRequest:
    return BisectRequest(
        ask_versions("demo=1,2"),
        ("python",),
        LaunchMetric("step"),
        directory=directory,
        cache=directory,
    )


def test_noise_is_assumed_before_it_is_measured(tmp_path: Path) -> None:
    plan = plan_of(request(tmp_path))
    assert (plan.noise, plan.noise_measured) == (ASSUMED_NOISE, False)
    assert plan.environments == ("demo 1", "demo 2")
    assert plan.built == (False, False)
    assert [one.cost for one in plan.expected] == [0.05, 0.1, 0.3]
    assert list(tmp_path.iterdir()) == []


def test_noise_and_times_that_were_measured_count(tmp_path: Path) -> None:
    asked = request(tmp_path)
    launches = tuple(
        LaunchEntry(environment=place, state="ok", value=value, seconds=4.0, started_at="")
        for place, value in ((0, 1.0), (1, 1.1), (0, 1.02), (1, 1.122))
    )
    BisectState(
        question=asked.digest, command=("python",), environments=("1", "2"), launches=launches
    ).write(tmp_path)
    plan = plan_of(asked)
    assert plan.noise_measured
    assert plan.noise == pytest.approx(0.014, abs=0.001)
    assert plan.expected[2].seconds == 4.0 * plan.expected[2].launches
