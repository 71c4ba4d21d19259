"""Two states of an environment: found where they are, and not in noise."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tests.campaign import cases
from tests.features.bisect.test_states import DRAWS
from torchscale.features.bisect.modes import (
    FALSE_ALARM,
    Modes,
    has_outlier,
    is_of_machine,
    two_modes,
)

ALTERNATING = [0.0, 0.3, 0.01, 0.31, -0.01, 0.29, 0.0, 0.3]


def test_two_clusters_that_alternate() -> None:
    modes = two_modes(ALTERNATING, 0.03)
    assert modes is not None
    assert (modes.slow, modes.launches) == (4, 8)
    assert modes.low == pytest.approx(0.0)
    assert modes.ratio == pytest.approx(0.35, abs=0.01)
    assert modes.threshold == pytest.approx(0.15)


def test_a_machine_that_was_slower_for_a_while_is_no_environment_with_two_states() -> None:
    assert two_modes(sorted(ALTERNATING), 0.03) is None


def test_clusters_that_differ_by_less_than_matters_are_one() -> None:
    assert two_modes([log / 20 for log in ALTERNATING], 0.03) is None
    assert two_modes([log / 20 for log in ALTERNATING], 0.01) is not None


@pytest.mark.parametrize("count", [0, 1, 5])
def test_few_launches_say_nothing(count: int) -> None:
    assert two_modes(ALTERNATING[:count], 0.03) is None


def test_a_single_late_launch_is_no_state_and_asks_for_more() -> None:
    logs = [0.0, 0.01, -0.01, 0.3, 0.0, 0.01, -0.01, 0.005]
    assert two_modes(logs, 0.03) is None
    assert has_outlier(logs, 0.03)
    assert not has_outlier(logs, 0.5)
    assert not has_outlier([0.0, 0.01, -0.01, 0.02, 0.0, 0.01, -0.01, 0.005], 0.01)


@pytest.mark.parametrize("count", cases([6, 24], [8, 12, 16]))
def test_false_alarms_on_noise(count: int) -> None:
    """Of 3,000 environments with normal noise; the rule allows one in a thousand."""
    random = np.random.default_rng(count)
    alarms = sum(
        two_modes(list(random.standard_normal(count)), 0.0) is not None for _ in range(3000)
    )
    assert alarms <= 3000 * FALSE_ALARM * 3


@pytest.mark.parametrize(("count", "least"), [(12, 0.9), (16, 0.97)])
def test_states_far_apart_are_found(count: int, least: float) -> None:
    random = np.random.default_rng(1)
    found = 0
    for _ in range(200):
        slow = random.random(count) < 0.5
        found += (
            two_modes(list(0.02 * random.standard_normal(count) + 0.2 * slow), 0.03) is not None
        )
    assert found >= least * 200


def test_states_five_noises_apart_are_found_beside_others_with_one() -> None:
    """Twenty-four launches; without the others' noise a mixture looks like wide noise."""
    random = np.random.default_rng(2)
    found = alone = 0
    for _ in range(200):
        slow = random.random(24) < 0.5
        logs = list(0.05 * random.standard_normal(24) + 0.25 * slow)
        others = [list(0.05 * random.standard_normal(8)) for _ in range(4)]
        found += two_modes(logs, 0.03, others) is not None
        alone += two_modes(logs, 0.03) is not None
    assert found >= 0.6 * 200
    assert alone < 0.3 * 200


@pytest.mark.parametrize("count", cases([8, 24], [6, 12, 16]))
@pytest.mark.parametrize("kind", ["normal", "heavy", "skewed"])
def test_false_alarms_beside_others_with_the_same_noise(count: int, kind: str) -> None:
    """Of 1,000 environments."""
    random = np.random.default_rng(count)
    draw = partial(DRAWS[kind], random)
    alarms = 0
    for _ in range(1000):
        others = [list(draw(8)) for _ in range(4)]
        modes = two_modes(list(draw(count)), 0.0, others)
        alarms += modes is not None and not is_of_machine(modes, others)
    assert alarms <= {"normal": 5, "heavy": 20, "skewed": 15}[kind]


def test_slow_launches_of_all_environments_are_the_machine() -> None:
    modes = Modes(0.0, 0.3, slow=5, launches=8)
    assert is_of_machine(modes, [ALTERNATING, ALTERNATING])
    assert not is_of_machine(modes, [[0.0, 0.01, -0.01] * 4])


def test_few_slow_launches_beside_few_others_prove_nothing() -> None:
    assert is_of_machine(Modes(0.0, 0.3, slow=2, launches=6), [[0.0, 0.01, -0.01]])
