"""What figures mean for GPUs, links and the node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.features.validate.acceptance.runs import a_run, baseline_of, eight_gpus, noisy
from torchscale.features.validate.acceptance.checks import speed_checks
from torchscale.features.validate.acceptance.judge import judge
from torchscale.features.validate.acceptance.verdict import (
    SpeedReason,
    missing_speeds,
    speed_reasons,
)
from torchscale.schema.launch.telemetry import GpuUse
from torchscale.schema.node.acceptance import (
    Acceptance,
    AcceptanceRun,
    Baseline,
    Conditions,
    Counter,
    FigureStatus,
)
from torchscale.schema.node.check import Check, Status
from torchscale.schema.node.policy import Policy
from torchscale.schema.node.validation import Disposition

NODE = ("all-reduce", "node")


def judged(run: AcceptanceRun, baseline: Baseline | None = None) -> Acceptance:
    return Acceptance(run=run, baseline=baseline, figures=judge(run, baseline, {}))


def reasons(run: AcceptanceRun, baseline: Baseline | None = None) -> list[SpeedReason]:
    return list(speed_reasons(judged(run, baseline)))


def check(checks: Sequence[Check], identity: str) -> Check:
    return next(each for each in checks if each.id == identity)


def test_a_gpu_far_below_its_peers_is_returned() -> None:
    found = reasons(a_run(eight_gpus(np.random.default_rng(1), {5: 0.85})))
    assert [(each.uuid, each.disposition) for each in found] == [("5", Disposition.RETURN)]
    assert "below the median of its peers" in found[0].because


def test_a_gpu_a_little_below_its_peers_is_tested_again() -> None:
    found = reasons(a_run(eight_gpus(np.random.default_rng(2), {5: 0.93}, rounds=40)))
    assert [(each.uuid, each.disposition) for each in found] == [("5", Disposition.RETEST)]


def test_nothing_is_returned_after_a_run_that_was_disturbed() -> None:
    rng = np.random.default_rng(3)
    conditions = [Conditions(foreign_share=0.01)] * 8 + [Conditions(foreign_share=0.5)]
    run = a_run(eight_gpus(rng, {5: 0.85}, rounds=9), conditions=conditions)
    found = reasons(run)
    assert {each.disposition for each in found} == {Disposition.RETEST}


def test_four_rounds_return_nothing() -> None:
    found = reasons(a_run(eight_gpus(np.random.default_rng(4), {5: 0.6}, rounds=4)))
    assert [each.disposition for each in found] == [Disposition.RETEST]


def test_a_loss_against_a_baseline_alone_returns_nothing() -> None:
    rng = np.random.default_rng(5)
    baseline = baseline_of(a_run({("memory bandwidth", "GPU 0"): noisy(rng, 3e12, 9)}))
    found = reasons(a_run({("memory bandwidth", "GPU 0"): noisy(rng, 2e12, 9)}), baseline)
    assert [(each.uuid, each.disposition) for each in found] == [("0", Disposition.RETEST)]


def test_a_slow_link_is_a_reason_of_the_link() -> None:
    rng = np.random.default_rng(6)
    pairs = [(i, j) for i in range(4) for j in range(4) if i != j]
    speeds = {
        ("link", f"GPU {i} → GPU {j}"): noisy(rng, 1e11 * (0.33 if (i, j) == (1, 2) else 1), 8)
        for i, j in pairs
    }
    found = reasons(a_run(speeds))
    assert [(each.part, each.uuid) for each in found] == [("GPU 1 → GPU 2", "")]
    assert "reseat" in found[0].action


def test_figures_of_a_part_with_one_cause_are_one_reason() -> None:
    rng = np.random.default_rng(7)
    both = {NODE: 1e9, ("training", "node"): 100.0}
    held = [Conditions(foreign_share=0.0, quota_cpus=1.7, held_back_share=0.15)] * 8
    baseline = baseline_of(a_run({key: noisy(rng, rate, 8) for key, rate in both.items()}))
    slow = {key: noisy(rng, 0.8 * rate, 8) for key, rate in both.items()}
    found = reasons(a_run(slow, conditions=held), baseline)
    assert len(found) == 1
    assert found[0].because.startswith("all-reduce is ")
    assert ", training is " in found[0].because
    assert found[0].because.endswith("(set-up)")


def test_a_launch_that_failed_is_never_a_pass() -> None:
    rng = np.random.default_rng(8)
    run = a_run({NODE: noisy(rng, 1e9, 6)})
    broken = run.rounds[2].model_copy(update={"problems": ("training: crashed: no memory",)})
    run = run.model_copy(update={"rounds": (*run.rounds[:2], broken, *run.rounds[3:])})
    acceptance = judged(run, baseline_of(a_run({NODE: noisy(rng, 1e9, 6)})))
    rounds = check(speed_checks(acceptance, Policy()), "speed_rounds")
    assert rounds.status is Status.FAIL
    assert "no memory" in rounds.seen
    found = list(speed_reasons(acceptance))
    assert [each.because for each in found] == ["round 3: training: crashed: no memory"]


def test_without_a_limit_there_is_no_pass_and_it_is_said() -> None:
    acceptance = judged(a_run({NODE: noisy(np.random.default_rng(9), 1e9, 6)}))
    assert (
        check(speed_checks(acceptance, Policy()), "speed_all_reduce").status
        is Status.NOT_APPLICABLE
    )
    assert list(missing_speeds(acceptance)) == [
        "all-reduce: no limit to judge by (--baseline FILE)"
    ]
    assert not list(speed_reasons(acceptance))


def test_levels_far_apart_are_looked_at_again_and_fail_no_node_without_a_limit() -> None:
    rng = np.random.default_rng(18)
    values = (*noisy(rng, 0.6e9, 5, 0.01), *noisy(rng, 1e9, 10, 0.01))
    alone = judged(a_run({NODE: values}))
    assert alone.figures[0].status is FigureStatus.FLAPPING
    assert check(speed_checks(alone, Policy()), "speed_all_reduce").status is Status.WARN
    assert [each.disposition for each in speed_reasons(alone)] == [Disposition.RETEST]
    baseline = baseline_of(a_run({NODE: noisy(rng, 1e9, 15, 0.01)}))
    below = judged(a_run({NODE: values}), baseline)
    assert check(speed_checks(below, Policy()), "speed_all_reduce").status is Status.FAIL


def test_the_check_of_a_figure_shows_the_gravest_part() -> None:
    acceptance = judged(a_run(eight_gpus(np.random.default_rng(10), {5: 0.85})))
    found = check(speed_checks(acceptance, Policy()), "speed_memory_bandwidth")
    assert found.status is Status.FAIL
    assert "on GPU 5" in found.seen
    assert found.expected.startswith("at least 2.")
    assert "8 parts of this node" in found.expected


def test_a_figure_that_is_too_noisy_to_tell_is_named_and_no_reason_to_test_again() -> None:
    rng = np.random.default_rng(16)
    baseline = baseline_of(a_run({NODE: noisy(rng, 1e9, 8, 0.2)}))
    acceptance = judged(a_run({NODE: noisy(rng, 1.1e9, 8, 0.2)}), baseline)
    assert acceptance.figures[0].status is FigureStatus.UNCLEAR
    assert not list(speed_reasons(acceptance))
    (missing,) = missing_speeds(acceptance)
    assert missing.startswith("all-reduce (±")
    assert missing.endswith("too noisy to tell a loss from none (--budget)")
    assert (
        check(speed_checks(acceptance, Policy()), "speed_all_reduce").status
        is Status.NOT_APPLICABLE
    )


def test_a_figure_that_seems_low_is_tested_again() -> None:
    rng = np.random.default_rng(17)
    baseline = baseline_of(a_run({NODE: noisy(rng, 1e9, 8, 0.1)}))
    acceptance = judged(a_run({NODE: noisy(rng, 0.85e9, 8, 0.1)}), baseline)
    assert acceptance.figures[0].status is FigureStatus.UNCLEAR
    (found,) = speed_reasons(acceptance)
    assert found.disposition is Disposition.UNDECIDED
    assert found.because.startswith("all-reduce seems ")
    assert found.action == "measure for longer (--budget)"
    assert check(speed_checks(acceptance, Policy()), "speed_all_reduce").status is Status.WARN


def test_a_quota_that_explains_what_seems_low_is_to_be_raised_first() -> None:
    rng = np.random.default_rng(17)
    baseline = baseline_of(a_run({NODE: noisy(rng, 1e9, 8, 0.1)}))
    held = [Conditions(foreign_share=0.0, quota_cpus=1.7, held_back_share=0.06)] * 8
    run = a_run({NODE: noisy(rng, 0.85e9, 8, 0.1)}, conditions=held)
    (found,) = reasons(run, baseline)
    assert found.action == "raise the CPU quota of the container or job"
    assert found.because.endswith("(set-up)")


def test_an_interrupted_round_says_what_is_missing() -> None:
    run = a_run({NODE: (1e9, 1e9, 1e9, 1e9)})
    last = run.rounds[-1].model_copy(update={"missing": ("training",)})
    run = run.model_copy(update={"rounds": (*run.rounds[:-1], last), "ended": "interrupted"})
    assert "round 4: training (it was interrupted)" in list(missing_speeds(judged(run)))


def test_new_errors_of_an_interface_are_a_warning() -> None:
    counters = (
        Counter(part="eth0", counter="rx_crc_errors", before=3, after=10),
        Counter(part="eth1", counter="rx_crc_errors", before=3, after=3),
    )
    acceptance = judged(a_run({NODE: (1e9, 1e9, 1e9)}, counters=counters))
    found = check(speed_checks(acceptance, Policy()), "speed_counters")
    assert found.status is Status.WARN
    assert found.seen == "eth0: 7 rx_crc_errors"
    assert list(speed_reasons(acceptance)) == [], "nobody knows whether training uses it"


@pytest.mark.parametrize(("replays", "count"), [(1, 0), (40, 1)])
def test_a_packet_that_is_repeated_now_and_then_is_no_error(replays: int, count: int) -> None:
    counter = Counter(part="GPU 0", counter="PCIe replays", uuid="0", before=9, after=9 + replays)
    run = a_run(eight_gpus(np.random.default_rng(13)), counters=(counter,))
    assert len(list(speed_reasons(judged(run)))) == count


def test_a_run_that_is_disturbed_throughout_accuses_nobody() -> None:
    busy = [Conditions(foreign_share=0.4)] * 6
    acceptance = judged(a_run(eight_gpus(np.random.default_rng(11), rounds=6), conditions=busy))
    rounds = check(speed_checks(acceptance, Policy()), "speed_rounds")
    assert rounds.status is Status.WARN
    assert "other processes had 40 % of the cores' time in 6 of 6 rounds" in rounds.seen
    figure = check(speed_checks(acceptance, Policy()), "speed_memory_bandwidth")
    assert figure.status is Status.NOT_APPLICABLE
    assert "0 undisturbed rounds" in figure.seen
    assert list(speed_reasons(acceptance)) == []


def test_enough_undisturbed_rounds_pass_beside_a_disturbed_one() -> None:
    conditions = [Conditions(foreign_share=0.01)] * 8 + [Conditions(foreign_share=0.5)]
    run = a_run(eight_gpus(np.random.default_rng(11), rounds=9), conditions=conditions)
    rounds = check(speed_checks(judged(run), Policy()), "speed_rounds")
    assert rounds.status is Status.PASS
    assert rounds.seen.endswith("other processes had 50 % of the cores' time in round 9")


def test_a_gpu_that_lowered_its_clocks_is_tested_again_though_its_figures_are_fine() -> None:
    hot = Conditions(
        foreign_share=0.0,
        gpus=(
            GpuUse(
                uuid="3",
                throttle_reasons=("hardware thermal slowdown",),
                throttled_share=0.4,
            ),
            GpuUse(uuid="4", throttle_reasons=("power brake",), throttled_share=0.01),
        ),
    )
    conditions = [Conditions(foreign_share=0.0)] * 6 + [hot, hot]
    run = a_run(eight_gpus(np.random.default_rng(14)), conditions=conditions)
    (found,) = reasons(run)
    assert (found.uuid, found.action) == ("3", "check cooling and power")
    assert found.because == "lowered its clocks in rounds 7 and 8: hardware thermal slowdown"


def test_fewer_devices_than_in_the_baseline_are_said() -> None:
    rng = np.random.default_rng(15)
    baseline = baseline_of(a_run({NODE: noisy(rng, 1e9, 6)}))
    run = a_run({NODE: noisy(rng, 1e9, 6)}, world_size=7)
    (found,) = reasons(run, baseline)
    assert found.because.startswith("measured on 7 of the baseline's 8 devices")
    figure = check(speed_checks(judged(run, baseline), Policy()), "speed_all_reduce")
    assert figure.status is Status.NOT_APPLICABLE
    assert figure.seen.endswith("no limit to judge by: the baseline is over 8 ranks")


def test_two_rounds_are_no_acceptance() -> None:
    acceptance = judged(a_run(eight_gpus(np.random.default_rng(12), rounds=2)))
    rounds = check(speed_checks(acceptance, Policy()), "speed_rounds")
    assert (rounds.status, rounds.expected) == (Status.WARN, "at least 5 undisturbed rounds")
    assert list(speed_reasons(acceptance)) == []
