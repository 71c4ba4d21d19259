"""Host or set-up: what explains a low or flapping figure, and what does not."""

from __future__ import annotations

from tests.analysis.acceptance.runs import a_run
from torchscale.analysis.acceptance.causes import Question, explain, known_splits
from torchscale.analysis.acceptance.estimates import Mode
from torchscale.schema.node.acceptance import Cause, Conditions, LimitKind

QUIET = Conditions(foreign_share=0.01, cpus=8)
HELD = QUIET.model_copy(update={"quota_cpus": 1.7, "held_back_share": 0.15})
PLACE = ("compute fp32", "node")


def test_a_quota_in_all_rounds_explains_a_low_figure_and_no_change_between_rounds() -> None:
    run = a_run({PLACE: (1.0, 1.0, 2.0, 2.0)}, conditions=[HELD] * 4)
    rounds = (0, 1, 2, 3)
    low = explain(Question(run.series[0], rounds, kind=LimitKind.PEERS), run, None, {})
    assert low.cause is Cause.SETUP
    assert "CPU quota of 1.70 CPUs" in low.because
    two = (Mode(1.0, (0, 1)), Mode(2.0, (2, 3)))
    flapping = explain(Question(run.series[0], rounds, modes=two), run, None, {})
    assert flapping.cause is Cause.UNCLEAR
    assert "quota" not in flapping.because


def test_rounds_in_which_the_set_up_was_worse_are_told_apart() -> None:
    fewer = QUIET.model_copy(update={"cpus": 4})
    run = a_run({PLACE: (1.0, 1.0, 2.0, 1.5)}, conditions=[HELD, HELD, QUIET, fewer])
    (held, quota), (few, cpus) = known_splits(run, (0, 1, 2, 3))
    assert (held, few) == (frozenset({0, 1}), frozenset({3}))
    assert quota.cause is cpus.cause is Cause.SETUP
    assert "in the 2 slow rounds" in quota.because
    assert "fewer CPUs in the 1 slow round" in cpus.because
