"""Two states against one, by likelihood: found where they are, and not in noise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from torchscale.features.bisect.modes import two_modes
from torchscale.features.bisect.states import Weighed, weigh

NOISE = 0.05
Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]
DRAWS: dict[str, Draw] = {
    "normal": lambda random, size: random.standard_normal(size),
    "heavy": lambda random, size: random.standard_t(3, size) / np.sqrt(3),
    "skewed": lambda random, size: random.standard_exponential(size),
}


def weighed(
    count: int, kind: str = "normal", *, apart: float = 0.0, wider: float = 1.0, games: int = 200
) -> list[Weighed]:
    """Environments with ``count`` launches beside five others; ``apart`` and ``wider`` in units of
    their noise."""
    random = np.random.default_rng(count)
    draw = DRAWS[kind]
    found = []
    for _ in range(games):
        others = [list(NOISE * draw(random, size)) for size in (8, 8, 4, 4, 3)]
        slow = random.random(count) < 0.5
        one = weigh(list(NOISE * (wider * draw(random, count) + apart * slow)), others)
        assert one is not None
        found.append(one)
    return found


def share(found: list[Weighed], is_so: Callable[[Weighed], bool]) -> float:
    return sum(map(is_so, found)) / len(found)


@pytest.mark.parametrize(("count", "least"), [(24, 0.55), (48, 0.8)])
def test_states_four_and_a_half_noises_apart(count: int, least: float) -> None:
    found = weighed(count, apart=4.5)
    assert share(found, lambda one: one.is_clear or one.is_unsteady) >= 0.95
    assert share(found, lambda one: one.is_open) >= 0.95
    assert share(found, lambda one: one.is_clear) >= least


def test_eight_launches_of_two_states_ask_for_more() -> None:
    assert share(weighed(8, apart=4.5), lambda one: one.is_open) >= 0.95


@pytest.mark.parametrize("kind", DRAWS)
@pytest.mark.parametrize("count", [8, 24, 48])
def test_one_state_with_the_noise_of_the_others(kind: str, count: int) -> None:
    found = weighed(count, kind)
    assert share(found, lambda one: one.is_clear) <= 0.04
    assert share(found, lambda one: one.is_unsteady) <= (0.12 if kind == "skewed" else 0.04)


@pytest.mark.parametrize("kind", DRAWS)
def test_more_noise_is_not_taken_for_two_states(kind: str) -> None:
    found = weighed(24, kind, wider=2)
    assert share(found, lambda one: one.is_clear) <= 0.05
    assert share(found, lambda one: one.is_open) >= 0.7


def test_disturbed_launches_neither_make_nor_hide_two_states() -> None:
    random = np.random.default_rng(1)
    others = [list(NOISE * random.standard_normal(8)) for _ in range(4)]
    others[1][3] += 1.0
    steady = list(NOISE * random.standard_normal(24))
    steady[5] += 1.0
    alone = weigh(steady, others)
    assert alone is not None
    assert alone.high > 0.9  # of the disturbed one, which is no state
    assert two_modes(steady, 0.03, others) is None
    two = [log + 0.4 * (place % 2) for place, log in enumerate(steady)]
    both = weigh(two, others)
    assert both is not None
    assert both.is_clear
    assert both.low == pytest.approx(0, abs=0.05)
    assert both.high == pytest.approx(0.4, abs=0.05)


def test_a_level_between_those_of_others_counts_with_scatter_alone() -> None:
    random = np.random.default_rng(2)
    others = [list(NOISE * random.standard_normal(8)) for _ in range(4)]
    steady = weigh(list(0.2 + NOISE * random.standard_normal(24)), others, others[0])
    assert steady is not None
    assert steady.misfit > 40
    assert not steady.is_unsteady
    states = [0.2 * (place % 2) + NOISE * log for place, log in enumerate(steady_noise(24))]
    scattered = weigh(states, others, others[0])
    assert scattered is not None
    assert scattered.misfit > 5
    assert scattered.is_unsteady


def steady_noise(count: int) -> list[float]:
    return list(np.random.default_rng(3).standard_normal(count))


@pytest.mark.parametrize("others", [[], [[1.0]], [[1.0, 1.1, 1.2], [1.0, 1.1, 1.2]]])
def test_too_few_others_say_nothing(others: list[list[float]]) -> None:
    assert weigh([1.0, 1.5] * 8, others) is None


def test_too_few_launches_say_nothing() -> None:
    assert weigh([1.0], [[1.0, 1.1] * 8]) is None


def test_launches_that_are_all_alike_have_one_state() -> None:
    one = weigh([1.0] * 24, [[1.0] * 8, [2.0] * 8])
    assert one is not None
    assert not one.is_open
