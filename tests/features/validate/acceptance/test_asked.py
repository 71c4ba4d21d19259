"""What keep asks for, and what there is of it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.validate.acceptance.runs import a_run, noisy
from tests.features.validate.health.test_disposition import burn
from torchscale.features.validate.acceptance.asked import AskedFor, asked_for, policy_text
from torchscale.features.validate.acceptance.judge import judge
from torchscale.schema.node.acceptance import Acceptance, AcceptanceRun, Conditions
from torchscale.schema.node.burn_in import BurnIn
from torchscale.schema.node.policy import Policy, Subject

RNG = np.random.default_rng(1)
ALL = (
    ("compute bf16", "GPU 0"),
    ("memory bandwidth", "GPU 0"),
    ("copy to device (pinned)", "GPU 0"),
    ("all-reduce", "node"),
    ("disk write", "node"),
    ("training", "node"),
)


def a_whole_run(rounds: int = 6, without: str = "none") -> AcceptanceRun:
    return a_run({key: noisy(RNG, 1e9, rounds) for key in ALL if not key[0].startswith(without)})


def missing(
    policy: Policy,
    run: AcceptanceRun | None,
    burn_in: BurnIn | None = None,
    *,
    kernel_log: bool = True,
) -> list[AskedFor]:
    acceptance = None if run is None else Acceptance(run=run)
    asked = asked_for(policy, acceptance, burn_in, kernel_log=kernel_log)
    return [each for each in asked if not each.is_met]


def test_nothing_is_missing_of_a_whole_acceptance() -> None:
    assert missing(Policy(), a_whole_run()) == []


@pytest.mark.parametrize("subject", ["compute", "memory", "disk", "training", "all-reduce"])
def test_what_nobody_measured_is_missing(subject: str) -> None:
    (found,) = missing(Policy(), a_whole_run(without=subject))
    assert found.what == {"all-reduce": "links"}.get(subject, subject)
    assert found.reason.endswith("not measured")


def test_one_device_has_no_link_to_look_at() -> None:
    alone = a_whole_run(without="all-reduce").model_copy(update={"world_size": 1})
    assert missing(Policy(), alone) == []


def test_too_few_rounds_want_more_time_and_disturbed_ones_a_quiet_node() -> None:
    (short,) = missing(Policy(), a_whole_run(4))
    assert (short.reason, short.action) == (
        "4 rounds, keep asks for 5",
        "measure for longer (--budget)",
    )
    busy = [Conditions(foreign_share=0.4)] * 3 + [Conditions(foreign_share=0.0)] * 3
    run = a_run({key: noisy(RNG, 1e9, 6) for key in ALL}, conditions=busy)
    (disturbed,) = missing(Policy(), run)
    assert disturbed.action == "measure again on a quiet node"
    assert "other processes had 40 % of the cores' time in rounds 1, 2 and 3" in disturbed.reason
    assert missing(Policy(rounds=3), run) == []


def test_a_burn_in_and_the_kernels_log_are_asked_for_where_the_policy_does() -> None:
    policy = Policy(looked_at=(Subject.KERNEL_LOG,), burn_in_minutes=11)
    found = missing(policy, a_whole_run(), burn(), kernel_log=False)
    assert [each.action for each in found] == [
        "burn it in (--burn-in 11m)",
        "run it as root on the host",
    ]
    assert missing(policy.model_copy(update={"burn_in_minutes": 10}), a_whole_run(), burn()) == []


def test_every_figure_must_be_within_a_limit_where_the_policy_asks_for_it() -> None:
    acceptance = Acceptance(run=a_whole_run())
    assert acceptance.figures == ()
    judged = acceptance.model_copy(update={"figures": judge(acceptance.run, None, {})})
    asked = asked_for(Policy(compared=True), judged, None, kernel_log=True)
    (found,) = [each for each in asked if not each.is_met]
    assert found.action.startswith("give a --baseline")


def test_without_an_acceptance_nobody_measured_the_speeds() -> None:
    (found,) = missing(Policy(), None)
    assert found.reason == "nobody measured its speeds"


def test_the_default_in_words() -> None:
    assert policy_text(Policy()) == (
        "5 undisturbed rounds at least; a look at compute, memory, links, disk and training; no "
        "figure more than 5 % below its baseline, or slow among its peers; no two levels "
        "more than 25 % apart, but of a disk or virtual cores"
    )
