"""The answer in a sentence, as data, and as a table."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from tests.features.bisect.games import play, step_costs
from torchscale.features.bisect.export_schema import (
    BisectionExport,
    BisectionPlanExport,
    ExpectedExport,
)
from torchscale.features.bisect.hypotheses import AnswerKind
from torchscale.features.bisect.launcher import LaunchMetric
from torchscale.features.bisect.question import Question, ask, ask_versions
from torchscale.features.bisect.search import BisectionSearch, Limits
from torchscale.features.bisect.tables import print_bisection, print_plan
from torchscale.features.bisect.verdict import describe

SIX = ask_versions("demo=1.0,1.1,1.2,1.3,1.4,1.5")
FACTORS = ask("a==1,b==1", "a==2,b==2", directory=Path())
WALL = LaunchMetric("wall")


def told(
    question: Question, search: BisectionSearch, *, interrupted: bool = False
) -> BisectionExport:
    return describe(
        question, search, WALL, interrupted=interrupted, launches=(), command="torchscale bisect …"
    )


def found(question: Question, costs: Sequence[float]) -> BisectionExport:
    return told(question, play(question.hypotheses, costs, noise=0.01))


def bisection_export() -> BisectionExport:
    """One with everything in it: a step, an environment with two states and one without a build."""
    search = BisectionSearch(SIX.hypotheses, 6, Limits())
    search.set_unusable(1, "could not be built: no wheel")
    states = iter([1.0, 1.5] * 20)
    for _ in range(12):
        search.add(2, next(states))
        for place in (0, 5, 3):
            search.add(place, 1.0 if place < 3 else 1.2)
    return told(SIX, search)


def test_a_step() -> None:
    result = found(SIX, step_costs(6, 3, 0.2))
    assert result.verdict.startswith("Slower since demo 1.3, against demo 1.2: +")
    assert (result.kind, result.answers) == ("step", (("demo 1.3",),))
    (cost,) = result.costs
    assert cost.low < 0.2 < cost.high
    assert result.difference is not None
    assert result.difference.low < 0.2 < result.difference.high
    assert [one.slow for one in result.environments] == pytest.approx([0, 0, 0, 1, 1, 1], abs=0.01)


@pytest.mark.parametrize(
    ("costs", "sentence"),
    [
        ((0, 0, 0.2, 0.2), "A 1 → 2 makes it slower, whatever the other changes are: +"),
        ((0, 0, 0, 0.2), "Slower only with all of a 1 → 2, b 1 → 2 together: +"),
        ((0, 0.2, 0.2, 0.2), "Each of a 1 → 2, b 1 → 2 makes it slower, and several no more than"),
        ((0, 0.2, 0.1, 0.32), "Each makes it slower, and their costs add up: a 1 → 2 +"),
    ],
)
def test_which_factors(costs: tuple[float, ...], sentence: str) -> None:
    assert found(FACTORS, costs).verdict.startswith(sentence)


def test_answers_that_launches_do_not_tell_apart_are_all_named() -> None:
    costs, states = (0, 0, 0, 0.3), {1: (0.5, 0.6)}
    result = told(FACTORS, play(FACTORS.hypotheses, costs, noise=0.02, states=states, seed=1))
    assert "No environment whose launches count tells apart: " in result.verdict
    assert "b 1 → 2 makes it slower" in result.verdict
    assert "slower only with all of a 1 → 2, b 1 → 2 together" in result.verdict
    assert any("Its launches do not count." in note for note in result.notes)


def test_two_costs_are_named_apart() -> None:
    result = found(FACTORS, (0, 0.2, 0.1, 0.32))
    assert [one.what for one in result.costs] == ["a 1 → 2", "b 1 → 2"]
    assert [one.ratio for one in result.costs] == pytest.approx([0.1, 0.2], abs=0.02)


def test_a_single_change_is_named() -> None:
    question = ask("env:A=1", "env:A=2", directory=Path())
    assert found(question, (0, 0.2)).verdict.startswith("Slower with A=1 → 2: +")


def test_no_difference() -> None:
    result = found(SIX, [0.0] * 6)
    assert result.verdict.startswith("demo 1.5 is not slower than demo 1.0 by 3.0 % or more: ")
    assert (result.ending, result.kind, result.answers) == ("no difference", None, ())
    assert {one.slow for one in result.environments} == {None}


def test_undecided_says_what_is_left() -> None:
    limits = Limits(most_launches=16)
    result = told(SIX, play(SIX.hypotheses, step_costs(6, 3, 0.3), noise=0.02, limits=limits))
    assert result.ending == "undecided"
    assert "Undecided what it comes from: demo 1." in result.verdict


def test_slow_launches_are_counted_where_the_bad_end_has_two_states() -> None:
    states = dict.fromkeys(range(2, 6), (0.5, 0.3))
    result = told(SIX, play(SIX.hypotheses, [0.0] * 6, noise=0.02, states=states, seed=1))
    assert result.verdict.startswith("Launches with two states since demo 1.2, against demo 1.1: ")
    assert " launches take " in result.verdict
    assert result.costs == ()


def test_states_of_environments_are_told() -> None:
    result = bisection_export()
    states = {one.label: one.state for one in result.environments}
    assert states == {
        "demo 1.0": "ok",
        "demo 1.1": "not built",
        "demo 1.2": "two states",
        "demo 1.3": "ok",
        "demo 1.4": "not launched",
        "demo 1.5": "ok",
    }
    assert result.answers == (("demo 1.1",), ("demo 1.2",), ("demo 1.3",))
    assert "demo 1.2 has two states: 6 of 12 launches take 50.0 % longer" in result.notes[0]
    assert result.environments[2].mean == pytest.approx(math.sqrt(1.5))


def test_launches_that_scatter_more_are_told() -> None:
    costs = step_costs(6, 3, 0.2)
    search = play(SIX.hypotheses, costs, noise=0.02, noises={2: 0.1}, seed=4)
    result = told(SIX, search)
    assert result.environments[2].state == "unsteady"
    assert result.answers == (("demo 1.2",), ("demo 1.3",))
    (note,) = result.notes
    assert note.startswith("Launches of demo 1.2 scatter more than those of the others: two states")
    assert note.endswith("or more noise. Its launches do not count.")


def test_the_table_has_a_row_for_each_environment_and_the_line_to_type() -> None:
    text = printed(bisection_export())
    assert "Slower since one of demo 1.1, demo 1.2, demo 1.3" in text
    assert "could not be built: no wheel" in text
    assert "two states: 6 of 12 launches take 50.0 % longer" in text
    assert text.rstrip().endswith("Again: torchscale bisect …")


def test_many_environments_that_were_not_launched_are_one_row() -> None:
    versions = ask_versions("demo=" + ",".join(map(str, range(40))))
    text = printed(found(versions, step_costs(40, 3, 0.3)))
    assert " more " in text
    assert len(text.splitlines()) < 40


def test_the_plan() -> None:
    plan = BisectionPlanExport(
        changes=("demo 1.0 → 1.1",),
        environments=("demo 1.0", "demo 1.1"),
        built=(True, False),
        noise=0.03,
        noise_measured=False,
        most_launches=200,
        expected=(
            ExpectedExport(cost=0.1, launches=30, most=41, answered=0.5, seconds=75.0),
            ExpectedExport(cost=0.3, launches=20, most=20, answered=1.0, seconds=None),
        ),
    )
    console = Console(width=200, record=True, file=io.StringIO())
    print_plan(plan, console)
    assert console.export_text() == (
        "What differs: demo 1.0 → 1.1\n"
        "  demo 1.0 (good)\n"
        "  demo 1.1 (bad, to be built when it is asked for)\n"
        "Noise of a launch: 3.0 % (assumed: nothing was launched)\n"
        "  slower by 10 %: about 30 launches, nine times in ten at most 41; an answer within 200 in "
        "50 % of cases; 75 s\n"
        "  slower by 30 %: about 20 launches\n"
    )


def printed(result: BisectionExport) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    print_bisection(result, console)
    return console.export_text()


def test_kinds_are_those_of_the_answers() -> None:
    assert {kind.value for kind in AnswerKind} == {"step", "alone", "together", "either", "sum"}
