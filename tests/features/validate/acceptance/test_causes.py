"""Host or set-up: what explains a low or flapping figure, and what does not."""

from __future__ import annotations

from tests.features.validate.acceptance.runs import a_run
from torchscale.features.validate.acceptance.causes import CauseQuestion, explain, known_splits
from torchscale.features.validate.acceptance.estimates import Mode
from torchscale.schema.node.acceptance import Cause, Conditions, LimitKind

QUIET = Conditions(foreign_share=0.01, cpus=8)
HELD = QUIET.model_copy(update={"quota_cpus": 1.7, "held_back_share": 0.15})
PLACE = ("compute fp32", "node")


def test_a_quota_in_all_rounds_explains_a_low_figure_and_no_change_between_rounds() -> None:
    run = a_run({PLACE: (1.0, 1.0, 2.0, 2.0)}, conditions=[HELD] * 4)
    rounds = (0, 1, 2, 3)
    low = explain(CauseQuestion(run.series[0], rounds, kind=LimitKind.PEERS), run, None, {})
    assert low.cause is Cause.SETUP
    assert "CPU quota of 1.70 CPUs" in low.because
    two = (Mode(1.0, (0, 1)), Mode(2.0, (2, 3)))
    flapping = explain(CauseQuestion(run.series[0], rounds, modes=two), run, None, {})
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


def test_a_quota_that_most_others_have_too_explains_no_difference_from_them() -> None:
    run = a_run({PLACE: (1.0, 1.0, 1.0)}, conditions=[HELD] * 3)

    def because(usual: float | None) -> str:
        question = CauseQuestion(
            run.series[0],
            (0, 1, 2),
            kind=LimitKind.PEERS,
            others="the other nodes are",
            usual_quota=usual,
        )
        return explain(question, run, None, {}).because

    assert because(1.7) == "the other nodes are not slow in the same rounds"
    assert because(2.0).endswith("15 % of the processors' time; most others have 2.00")
    assert because(None).endswith("15 % of the processors' time")


def test_a_slow_disk_has_an_action_of_its_own() -> None:
    run = a_run({("disk write", "node"): (1.0, 1.0, 1.0)})
    question = CauseQuestion(
        run.series[0], (0, 1, 2), kind=LimitKind.PEERS, others="the other nodes' disks are"
    )
    found = explain(question, run, None, {})
    assert found.cause is Cause.HOST
    assert "smartctl" in found.action
