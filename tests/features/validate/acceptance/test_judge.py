"""Figures against documented rates, a baseline and their peers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.validate.acceptance.runs import a_run, baseline_of, eight_gpus, noisy
from torchscale.features.validate.acceptance.judge import judge
from torchscale.features.validate.acceptance.rounds import is_narrow, undisturbed, widest_interval
from torchscale.features.validate.acceptance.verdict import levels_text
from torchscale.schema.node.acceptance import (
    AcceptanceRun,
    Cause,
    Conditions,
    FigureStatus,
    JudgedFigure,
    LimitKind,
)
from torchscale.schema.node.policy import Policy

QUIET = Conditions(foreign_share=0.01, cpus=8)
NODE = ("all-reduce", "node")


def only(run: AcceptanceRun, **how: object) -> JudgedFigure:
    return judge(run, how.get("baseline"), {})[0]  # type: ignore[arg-type]


def test_without_any_limit_a_figure_is_no_pass() -> None:
    found = only(a_run({NODE: noisy(np.random.default_rng(1), 1e9, 6)}))
    assert found.status is FigureStatus.NO_LIMIT
    assert found.because == "no limit to judge by"
    assert found.low is not None and found.rate is not None and found.low < found.rate


def test_two_rounds_are_not_judged_even_against_a_baseline() -> None:
    rng = np.random.default_rng(2)
    baseline = baseline_of(a_run({NODE: noisy(rng, 1e9, 8)}))
    found = only(a_run({NODE: (5e8, 5e8)}), baseline=baseline)
    assert found.status is FigureStatus.UNCLEAR
    assert found.because == "2 rounds, 3 are needed"


@pytest.mark.parametrize(
    ("factor", "status"),
    [
        (1.0, FigureStatus.WITHIN),
        (1.2, FigureStatus.WITHIN),
        (0.95, FigureStatus.UNCLEAR),
        (0.85, FigureStatus.LOW),
    ],
)
def test_a_figure_is_held_against_the_baseline_less_five_percent(
    factor: float, status: FigureStatus
) -> None:
    rng = np.random.default_rng(3)
    baseline = baseline_of(a_run({NODE: noisy(rng, 1e9, 10)}))
    found = only(a_run({NODE: noisy(rng, factor * 1e9, 10)}), baseline=baseline)
    assert found.status is status
    assert found.limit is not None
    assert found.limit.kind is LimitKind.BASELINE
    assert found.deficit == pytest.approx(1 - factor, abs=0.015)
    assert found.limit.rate == pytest.approx(0.95e9, rel=0.01)


def test_the_last_round_alone_decides_nothing() -> None:
    """Nine slow rounds and a fast one: not within, whatever the last value says."""
    rng = np.random.default_rng(4)
    baseline = baseline_of(a_run({NODE: noisy(rng, 1e9, 10)}))
    found = only(a_run({NODE: (*noisy(rng, 8e8, 9), 1e9)}), baseline=baseline)
    assert found.status is not FigureStatus.WITHIN


def test_what_all_ranks_do_together_is_not_compared_over_other_counts() -> None:
    rng = np.random.default_rng(5)
    baseline = baseline_of(a_run({NODE: noisy(rng, 1e9, 10)}, world_size=4))
    found = only(a_run({NODE: noisy(rng, 5e8, 10)}), baseline=baseline)
    assert found.status is FigureStatus.NO_LIMIT


def test_a_gpu_is_held_against_itself_where_the_baseline_has_it() -> None:
    rng = np.random.default_rng(6)
    earlier = baseline_of(a_run(eight_gpus(rng, {2: 0.9})))
    found = judge(a_run(eight_gpus(rng, {2: 0.9})), earlier, {})
    assert found[2].limit is not None
    against = [each.limit for each in found if each.limit is not None]
    assert {limit.kind for limit in against} >= {LimitKind.BASELINE}
    # its own baseline is as slow: the peers of its node alone call it low
    assert found[2].status is FigureStatus.LOW
    assert found[2].limit.kind is LimitKind.PEERS


def test_a_slow_gpu_among_equal_ones_is_the_hosts() -> None:
    rng = np.random.default_rng(7)
    found = judge(a_run(eight_gpus(rng, {5: 0.85})), None, {})
    assert [each.part for each in found if each.status is FigureStatus.LOW] == ["GPU 5"]
    assert found[5].cause is Cause.HOST
    assert found[5].deficit == pytest.approx(0.15, abs=0.01)
    assert found[5].action == "replace the GPU"
    assert found[0].status is FigureStatus.WITHIN


def test_a_lower_power_limit_is_set_up() -> None:
    rng = np.random.default_rng(8)
    limits = {str(it): 700.0 for it in range(8)} | {"5": 500.0}
    found = judge(a_run(eight_gpus(rng, {5: 0.85})), None, limits)
    assert found[5].cause is Cause.SETUP
    assert "500 W" in found[5].because
    assert "nvidia-smi -pl" in found[5].action


def test_cores_of_another_numa_node_are_set_up() -> None:
    rng = np.random.default_rng(9)
    far = [QUIET.model_copy(update={"far_uuids": ("5",)})] * 8
    found = judge(a_run(eight_gpus(rng, {5: 0.85}), conditions=far), None, {})
    assert found[5].cause is Cause.SETUP


def test_a_quota_that_holds_processes_back_is_set_up() -> None:
    rng = np.random.default_rng(10)
    baseline = baseline_of(a_run({NODE: noisy(rng, 1e9, 8)}))
    held = [QUIET.model_copy(update={"quota_cpus": 1.7, "held_back_share": 0.14})] * 8
    found = only(a_run({NODE: noisy(rng, 0.85e9, 8)}, conditions=held), baseline=baseline)
    assert found.status is FigureStatus.LOW
    assert found.cause is Cause.SETUP
    assert found.because == (
        "the CPU quota of 1.70 CPUs held its processes back for 14 % of the processors' time"
    )


def test_a_loss_that_nothing_explains_is_unclear() -> None:
    rng = np.random.default_rng(11)
    baseline = baseline_of(a_run({NODE: noisy(rng, 1e9, 8)}))
    found = only(a_run({NODE: noisy(rng, 0.85e9, 8)}), baseline=baseline)
    assert found.cause is Cause.UNCLEAR


def test_other_versions_than_the_baselines_leave_the_cause_open() -> None:
    rng = np.random.default_rng(12)
    earlier = a_run({NODE: noisy(rng, 1e9, 8)}, versions={"torch": "2.7"})
    now = a_run({NODE: noisy(rng, 0.85e9, 8)}, versions={"torch": "2.8"})
    found = only(now, baseline=baseline_of(earlier))
    assert found.cause is Cause.UNCLEAR
    assert "torch 2.8 (then 2.7)" in found.because


def test_a_quota_in_the_later_rounds_makes_the_figure_flap_and_is_named() -> None:
    rng = np.random.default_rng(13)
    held = QUIET.model_copy(update={"quota_cpus": 1.7, "held_back_share": 0.14})
    values = (*noisy(rng, 1e9, 5), *noisy(rng, 0.7e9, 5))
    run = a_run({NODE: values}, conditions=[QUIET] * 5 + [held] * 5)
    assert judge(run, None, {}, Policy(flap_percent=40))[0].status is FigureStatus.NO_LIMIT
    found = only(run)
    assert found.status is FigureStatus.FLAPPING
    assert [count for _, count in found.modes] == [5, 5]
    assert found.cause is Cause.SETUP
    assert found.because.startswith("its levels are 29.")
    assert found.because.endswith(
        "the CPU quota held its processes back in the 5 slow rounds, in no other"
    )


def test_what_only_known_conditions_tell_apart_is_found_by_them_alone() -> None:
    """13 % with a noise of 4.5 %, as of a quota on a busy machine: too little to be found among
    all groups of rounds."""
    rng = np.random.default_rng(20)
    held = QUIET.model_copy(update={"quota_cpus": 1.7, "held_back_share": 0.05})
    values = (*noisy(rng, 1e9, 6, 0.045), *noisy(rng, 0.87e9, 8, 0.045))
    unknown = only(a_run({NODE: values}))
    assert unknown.modes == ()
    found = only(a_run({NODE: values}, conditions=[QUIET] * 6 + [held] * 8))
    assert [count for _, count in found.modes] == [8, 6]
    assert found.cause is Cause.SETUP
    assert found.action == "raise the CPU quota of the container or job"
    equal = noisy(rng, 1e9, 14, 0.045)
    same = only(a_run({NODE: equal}, conditions=[QUIET] * 6 + [held] * 8))
    assert same.modes == ()


def test_a_figure_that_flaps_without_a_reason_has_an_unclear_cause() -> None:
    rng = np.random.default_rng(14)
    values = [rate * (0.7 if it % 2 else 1.0) for it, rate in enumerate(noisy(rng, 1e9, 10))]
    found = only(a_run({NODE: values}))
    assert found.status is FigureStatus.FLAPPING
    assert found.cause is Cause.UNCLEAR


def two_levels(rng: np.random.Generator, slow: int, fast: int, gap: float) -> tuple[float, ...]:
    """Rates at 1.9e9 and ``gap`` below it."""
    return (*noisy(rng, 1.9e9 * (1 - gap), slow, 0.005), *noisy(rng, 1.9e9, fast, 0.005))


@pytest.mark.parametrize("figure", ["all-reduce", "disk read"])
def test_two_levels_that_no_limit_judges_are_a_fact_and_no_fault(figure: str) -> None:
    found = only(a_run({(figure, "node"): two_levels(np.random.default_rng(21), 12, 8, 0.095)}))
    assert found.status is FigureStatus.NO_LIMIT
    assert levels_text(found) == "1.72 GB/s in 12 rounds, 1.90 GB/s in 8"


def test_levels_further_apart_than_the_policy_allows_are_a_fault_but_of_what_others_share() -> None:
    rng = np.random.default_rng(22)
    values = two_levels(rng, 12, 8, 0.3)
    assert only(a_run({NODE: values})).status is FigureStatus.FLAPPING
    disk = only(a_run({("disk read", "node"): values}))
    virtual = only(a_run({NODE: values}, device="cpu", virtual_cores=True))
    for found in (disk, virtual):
        assert found.status is FigureStatus.NO_LIMIT
        assert len(found.modes) == 2


def test_a_lower_level_that_misses_the_baseline_is_a_fault() -> None:
    """The mean of all rounds does not."""
    rng = np.random.default_rng(23)
    baseline = baseline_of(a_run({NODE: noisy(rng, 1.9e9, 20, 0.005)}))
    found = only(a_run({NODE: two_levels(rng, 6, 14, 0.12)}), baseline=baseline)
    assert found.status is FigureStatus.FLAPPING
    assert found.because.startswith("its lower level is 1")
    assert "below the baseline" in found.because


def test_a_baseline_with_the_same_two_levels_is_no_accusation() -> None:
    rng = np.random.default_rng(24)
    for slow in (4, 10, 16):
        baseline = baseline_of(a_run({NODE: two_levels(rng, 10, 10, 0.095)}))
        found = only(a_run({NODE: two_levels(rng, slow, 20 - slow, 0.095)}), baseline=baseline)
        assert found.modes
        assert found.status in (FigureStatus.WITHIN, FigureStatus.UNCLEAR)


def test_a_lower_level_that_misses_the_peers_is_a_fault() -> None:
    rng = np.random.default_rng(25)
    speeds = eight_gpus(rng, rounds=20)
    speeds["memory bandwidth", "GPU 3"] = (*noisy(rng, 2.6e12, 5), *noisy(rng, 3e12, 15))
    found = judge(a_run(speeds), None, {})
    assert [each.part for each in found if each.status is FigureStatus.FLAPPING] == ["GPU 3"]
    assert "below the median of its peers" in found[3].because


def test_the_loss_that_a_policy_allows_is_the_limit_and_a_disk_may_lose_more() -> None:
    rng = np.random.default_rng(26)
    speeds = {key: noisy(rng, 1e9, 10) for key in (NODE, ("disk read", "node"))}
    baseline = baseline_of(a_run(speeds))
    run = a_run({key: tuple(0.85 * rate for rate in rates) for key, rates in speeds.items()})
    strict = judge(run, baseline, {})
    assert [each.status for each in strict] == [FigureStatus.LOW, FigureStatus.WITHIN]
    lenient = judge(run, baseline, {}, Policy(baseline_loss_percent=30))
    assert {each.status for each in lenient} == {FigureStatus.WITHIN}


def test_disturbed_rounds_are_left_out() -> None:
    rng = np.random.default_rng(15)
    busy = Conditions(foreign_share=0.4, cpus=8)
    run = a_run({NODE: (*noisy(rng, 1e9, 5), 5e8, 4e8)}, conditions=[QUIET] * 5 + [busy] * 2)
    assert undisturbed(run) == (0, 1, 2, 3, 4)
    found = only(run)
    assert found.rounds == 5
    assert found.rate == pytest.approx(1e9, rel=0.02)


def test_a_run_that_is_disturbed_throughout_is_not_judged_and_shows_its_rates() -> None:
    rng = np.random.default_rng(16)
    busy = [Conditions(foreign_share=0.4, cpus=8)] * 8
    found = only(a_run({NODE: noisy(rng, 5e8, 8)}, conditions=busy))
    assert found.status is FigureStatus.UNCLEAR
    assert found.because == "0 undisturbed rounds of 8, 3 are needed"
    assert found.rounds == 0
    assert found.rate == pytest.approx(5e8, rel=0.02)


def test_shared_gpus_disturb_a_round() -> None:
    shared = QUIET.model_copy(update={"shared_gpus": True})
    assert undisturbed(a_run({NODE: (1.0, 1.0)}, conditions=[shared, QUIET])) == (1,)


def test_a_documented_rate_tells_a_broken_gpu_from_a_sound_one() -> None:
    rng = np.random.default_rng(17)
    values = {("memory bandwidth", "GPU 0"): noisy(rng, 3.0e12, 8)}
    run = a_run(values)
    h100 = run.series[0].model_copy(update={"device": "NVIDIA H100 80GB HBM3"})
    sound = only(run.model_copy(update={"series": (h100,)}))
    assert sound.status is FigureStatus.WITHIN
    assert sound.limit is not None
    assert sound.limit.rate == pytest.approx(0.7 * 3.35e12)
    assert "NVIDIA H100 data sheet" in sound.limit.basis
    slow = h100.model_copy(update={"values": noisy(rng, 1.5e12, 8)})
    assert only(run.model_copy(update={"series": (slow,)})).status is FigureStatus.LOW


def test_rounds_end_where_every_interval_is_narrow() -> None:
    rng = np.random.default_rng(18)
    quiet = a_run(
        {NODE: noisy(rng, 1e9, 5, 0.005), ("training", "node"): noisy(rng, 9.0, 5, 0.005)}
    )
    assert is_narrow(quiet)
    assert not is_narrow(a_run({NODE: noisy(rng, 1e9, 4, 0.001)}))
    assert not is_narrow(quiet, least=10), "as a policy asks for"
    disk = {NODE: noisy(rng, 1e9, 6, 0.005), ("disk read", "node"): noisy(rng, 1e9, 6, 0.3)}
    assert is_narrow(a_run(disk))
    noisy_run = a_run({NODE: noisy(rng, 1e9, 6, 0.05), ("training", "node"): noisy(rng, 9.0, 6)})
    assert not is_narrow(noisy_run)
    widest = widest_interval(noisy_run)
    assert widest is not None
    assert widest[0].figure == "all-reduce"


def test_a_figure_without_a_round_keeps_the_rounds_going() -> None:
    rng = np.random.default_rng(19)
    run = a_run({NODE: noisy(rng, 1e9, 6, 0.001), ("training", "node"): (None,) * 6})
    assert widest_interval(run) is None
    assert not is_narrow(run)
    assert judge(run, None, {})[1].rate is None


@pytest.mark.parametrize("rounds", [3, 5, 12])
def test_equal_repeats_accuse_nobody(rounds: int) -> None:
    """Eight GPUs with two figures against a baseline of themselves, 300 times: the bound of both
    kinds of limit together is 1 %."""
    rng = np.random.default_rng(rounds)
    accused = 0
    for _ in range(300):
        baseline = baseline_of(a_run(eight_gpus(rng, rounds=rounds)))
        found = judge(a_run(eight_gpus(rng, rounds=rounds)), baseline, {})
        accused += any(each.status is FigureStatus.LOW for each in found)
    assert accused <= 6


def test_disturbed_rounds_of_a_baseline_do_not_count() -> None:
    rng = np.random.default_rng(31)
    values = (*noisy(rng, 0.8e9, 5, 0.005), *noisy(rng, 1e9, 15, 0.005))
    busy = [Conditions(foreign_share=0.4)] * 5 + [Conditions(foreign_share=0.01)] * 15
    baseline = baseline_of(a_run({NODE: values}, conditions=busy))
    found = only(a_run({NODE: noisy(rng, 0.94e9, 15, 0.003)}), baseline=baseline)
    assert found.status is FigureStatus.LOW
    assert found.deficit == pytest.approx(0.06, abs=0.005)
    found = only(a_run({NODE: values}), baseline=baseline)
    assert found.status is FigureStatus.FLAPPING, "five rounds are as slow as disturbed ones"
