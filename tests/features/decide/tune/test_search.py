"""The search against simulated machines: what it finds, what it costs, what it says."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from torchscale.features.decide.tune.gains import GainVerdict, smallest_visible
from torchscale.features.decide.tune.search import Contribution, SettingSearch
from torchscale.features.decide.tune.strategies import choices
from torchscale.features.decide.tune.surface import START, AxisChange, Setting, Traits
from torchscale.features.decide.tune.trials import SettingLaunch

AXES = {
    "compile": [AxisChange("compile", "true")],
    "fused": [AxisChange("fused", "true")],
    "bucket": [AxisChange("bucket", "1"), AxisChange("bucket", "100")],
}
PROBE = (AxisChange("comm_hook", "noop"),)


def machine(
    gains: Mapping[str, float],
    *,
    noise: float = 0.005,
    seed: int = 0,
    seconds: float = 3.0,
    extra: Callable[[Setting], float] = lambda _: 0.0,
    failing: Mapping[str, str] = {},
) -> Callable[[Setting], SettingLaunch]:
    """Measures settings whose gains are logarithms by ``axis=value``."""
    draw = random.Random(seed)

    def measure(setting: Setting) -> SettingLaunch:
        names = [f"{change.axis}={change.value}" for change in setting]
        states = [failing[name] for name in names if name in failing]
        if states:
            return SettingLaunch(None, 1.0, states[0], "it failed")
        log = (
            math.log(1000)
            + sum(gains.get(name, 0.0) for name in names)
            + extra(setting)
            + draw.gauss(0, noise)
        )
        return SettingLaunch(log, seconds)

    return measure


def run(search: SettingSearch, measure: Callable[[Setting], SettingLaunch]) -> SettingSearch:
    """To its end."""
    launches = search.launches()
    setting = next(launches, None)
    while setting is not None:
        try:
            setting = launches.send(measure(setting))
        except StopIteration:
            setting = None
    return search


def searched(budget: float = 1e6, **machine_options: object) -> SettingSearch:
    return run(SettingSearch(AXES, budget_seconds=budget), machine(**machine_options))  # type: ignore[arg-type]


def test_winners_of_several_axes_are_combined_and_verified() -> None:
    """Two changes that gain, one that loses."""
    search = searched(gains={"compile=true": 0.2, "fused=true": 0.05, "bucket=1": -0.1})
    assert search.winner == (AxisChange("compile", "true"), AxisChange("fused", "true"))
    assert search.ending == "complete"
    assert search.is_verified
    assert search.verified is not None
    low, high = search.verified.interval()
    assert low < math.exp(0.25) < high
    parts = {one.change.axis: one.gain.log for one in search.contributions}
    assert parts["compile"] == pytest.approx(0.2, abs=0.02)
    assert parts["fused"] == pytest.approx(0.05, abs=0.02)
    assert search.interaction is None  # the noise hides whether they do anything to each other


def test_start_and_winner_take_turns_at_going_first() -> None:
    """A machine that gets slower from launch to launch, as one that heats up, slows the second of
    each pair. If that were always the same setting, its gain would be wrong by the drift."""
    ran: list[Setting] = []
    measure = machine({"fused=true": 0.05}, noise=0.0005)

    def drifting(setting: Setting) -> SettingLaunch:
        ran.append(setting)
        measured = measure(setting)
        assert measured.log is not None
        return SettingLaunch(measured.log - 0.01 * len(ran), measured.seconds)

    search = run(SettingSearch({"fused": AXES["fused"]}, budget_seconds=1e6), drifting)
    assert search.winner == (AxisChange("fused", "true"),)
    assert search.verified is not None
    first_of_each_pair = ran[-2 * search.verified.rounds :: 2]
    winner, start = search.winner, ()
    assert first_of_each_pair == [start, winner] * (len(first_of_each_pair) // 2) + [start] * (
        len(first_of_each_pair) % 2
    )


def test_changes_that_cancel_each_other_are_not_both_taken() -> None:
    """Each gains by itself; together they lose."""

    def clash(setting: Setting) -> float:
        return -0.3 if len({change.axis for change in setting} & {"compile", "fused"}) == 2 else 0.0

    search = searched(gains={"compile=true": 0.1, "fused=true": 0.05}, extra=clash)
    assert search.winner == (AxisChange("compile", "true"),)
    assert search.is_verified


def test_a_change_that_helps_only_with_another_is_found() -> None:
    """Fused loses a little by itself and gains with compile."""

    def together(setting: Setting) -> float:
        return (
            0.15
            if len(setting) == 2 and {one.axis for one in setting} == {"compile", "fused"}
            else 0.0
        )

    search = searched(gains={"compile=true": 0.1, "fused=true": -0.05}, extra=together)
    assert search.winner == (AxisChange("compile", "true"), AxisChange("fused", "true"))
    assert search.interaction == pytest.approx(math.expm1(0.15), abs=0.03)


def test_nothing_better_is_an_answer_with_what_could_have_been_seen() -> None:
    """All settings equal the start: at most one search in ten verifies a gain, and none of more
    than 2 %."""
    searches = [searched(gains={}, seed=seed) for seed in range(30)]
    wrong = [search for search in searches if search.is_verified]
    assert len(wrong) <= 3
    assert all(search.verified is not None and search.verified.ratio < 1.02 for search in wrong)
    for search in searches:
        assert search.visible_gain is not None
        assert 0.002 < search.visible_gain < 0.05


def test_a_winner_that_fails_when_it_is_verified_leaves_the_pairs_before() -> None:
    """Its last launch: one in a hundred launches runs out of memory all the same."""

    def until(last: float) -> tuple[SettingSearch, int]:
        works, ran = machine({"fused=true": 0.1}), 0

        def measure(setting: Setting) -> SettingLaunch:
            nonlocal ran
            ran += bool(setting)
            if setting and ran == last:
                return SettingLaunch(None, 1.0, "oom", "it failed")
            return works(setting)

        return run(SettingSearch({"fused": AXES["fused"]}, budget_seconds=1e6), measure), ran

    sound, launches = until(math.inf)
    failed, _ = until(launches)
    assert sound.verified is not None
    assert failed.verified is not None
    assert failed.verified.rounds == sound.verified.rounds - 1


def test_failing_settings_are_rows() -> None:
    """Out of memory on one axis; another one wins."""
    search = searched(gains={"fused=true": 0.1}, failing={"compile=true": "oom"})
    trial = search.trials[AxisChange("compile", "true"),]
    assert (trial.state, trial.reason, trial.launches) == ("oom", "it failed", 1)
    assert search.winner == (AxisChange("fused", "true"),)


def test_nothing_but_the_start_runs() -> None:
    failing = {
        f"{change.axis}={change.value}": "crashed"
        for changes in AXES.values()
        for change in changes
    }
    search = searched(gains={}, failing=failing)
    assert (search.winner, search.ending, search.visible_gain) == (START, "complete", None)


def test_a_combination_that_fails_is_a_row_and_the_search_goes_on() -> None:
    """Each change runs by itself; both together do not."""
    works = machine({"compile=true": 0.2, "fused=true": 0.1})

    def measure(setting: Setting) -> SettingLaunch:
        both = len({change.axis for change in setting} & {"compile", "fused"}) == 2
        return SettingLaunch(None, 1.0, "oom", "it failed") if both else works(setting)

    search = run(SettingSearch(AXES, budget_seconds=1e6), measure)
    assert search.winner == (AxisChange("compile", "true"),)
    assert search.is_verified
    assert any(trial.state == "oom" for trial in search.trials.values())


def test_a_start_that_fails_ends_the_search() -> None:
    """There is nothing to compare with."""
    search = run(
        SettingSearch(AXES, budget_seconds=100),
        lambda _: SettingLaunch(None, 1.0, "oom", "it failed"),
    )
    assert search.ending == "start failed"
    assert search.trials[START].state == "oom"
    assert not search.is_verified


def test_the_budget_bounds_the_launches() -> None:
    """Less than a race needs: what was measured is kept, and no launch begins that would not
    fit."""
    search = searched(budget=60, gains={"compile=true": 0.3}, noise=0.02)
    assert search.spent_seconds <= 60
    assert search.ending == "budget"
    assert START in search.trials


def test_a_small_budget_goes_to_what_is_tried_and_not_to_repeats_of_the_start() -> None:
    """Eight launches: the probe of communication alone would take them all, and no verification
    fits."""
    search = SettingSearch(AXES, budget_seconds=24, probe=PROBE, probed=["bucket"])
    run(search, machine({"compile=true": 0.3}))
    assert list(search.trials)[:3] == [
        START,
        (AxisChange("compile", "true"),),
        (AxisChange("fused", "true"),),
    ]
    assert PROBE not in search.trials
    assert search.untried == ()
    assert search.trials[START].launches <= 2
    assert search.ending == "budget"


def test_what_was_not_tried_is_named_with_what_an_answer_takes() -> None:
    search = searched(budget=7, gains={})
    assert list(search.trials) == [START, (AxisChange("compile", "true"),)]
    assert search.untried == (
        AxisChange("fused", "true"),
        AxisChange("bucket", "1"),
        AxisChange("bucket", "100"),
    )
    assert (search.launch_seconds, search.launches_needed, search.seconds_needed) == (3.0, 11, 33.0)


def test_room_for_a_verification_is_used_once_something_is_ahead() -> None:
    """Twelve launches: the start, every change, and four pairs."""
    search = searched(budget=39, gains={"compile=true": 0.3})
    assert search.is_verified
    assert search.spent_seconds <= 39
    nothing = searched(budget=39, gains={})
    assert (
        nothing.spent_seconds > 33
    )  # the room is used for more launches where there is nothing to verify


def test_a_cold_first_launch_is_not_taken_for_the_length_of_all() -> None:
    """The first takes 9 s and all others 3 s: by its own length there would be no room for a
    verification."""
    works = machine({"compile=true": 0.3})
    lengths = itertools.chain([9.0], itertools.repeat(3.0))
    search = run(
        SettingSearch(AXES, budget_seconds=46),
        lambda setting: replace(works(setting), seconds=next(lengths)),
    )
    assert search.is_verified


def test_a_change_that_takes_long_waits_for_a_budget_with_room_for_it() -> None:
    search = run(SettingSearch(AXES, budget_seconds=14, costs={"compile": 5.0}), machine({}))
    assert search.untried == (AxisChange("compile", "true"),)
    assert search.seconds_needed == 5 * 3.0 + 8 * 3.0


def test_recorded_launches_take_nothing_of_the_budget() -> None:
    """The search after one that ran out of its budget."""
    works = machine({"compile=true": 0.3})
    ran: dict[Setting, int] = {}
    first = run(SettingSearch(AXES, budget_seconds=15), works)
    ran.update({setting: trial.launches for setting, trial in first.trials.items()})

    def recorded(setting: Setting) -> bool:
        return ran.get(setting, 0) > 0

    def measure(setting: Setting) -> SettingLaunch:
        known = recorded(setting)
        ran[setting] = ran.get(setting, 0) - known
        return replace(works(setting), recorded=known)

    again = run(SettingSearch(AXES, budget_seconds=30, is_recorded=recorded), measure)
    assert sum(trial.launches for trial in again.trials.values()) == 5 + 10
    assert again.is_verified


def test_no_bucket_is_tried_where_communication_is_hidden() -> None:
    """A run that exchanges nothing is not faster."""
    search = run(
        SettingSearch(AXES, budget_seconds=1e6, probe=PROBE, probed=["bucket"]),
        machine({"fused=true": 0.1}),
    )
    assert "cannot be told from noise" in search.skipped["bucket"]
    assert (AxisChange("bucket", "1"),) not in search.trials
    assert search.winner == (AxisChange("fused", "true"),)


def test_buckets_are_tried_where_communication_is_exposed() -> None:
    """Exchanging nothing gains a third: the probe itself is never the winner."""
    gains = {"comm_hook=noop": 0.3, "bucket=100": 0.1}
    search = run(
        SettingSearch(AXES, budget_seconds=1e6, probe=PROBE, probed=["bucket"]), machine(gains)
    )
    assert search.probe is not None
    assert search.probe.log == pytest.approx(0.3, abs=0.02)
    assert search.probe.rounds == 4
    assert search.winner == (AxisChange("bucket", "100"),)


def test_nothing_is_probed_where_no_axis_of_communication_is_searched() -> None:
    search = run(
        SettingSearch({"fused": AXES["fused"]}, budget_seconds=1e6, probe=PROBE, probed=["bucket"]),
        machine({"fused=true": 0.1}),
    )
    assert PROBE not in search.trials
    assert search.probe is None


def test_every_trial_says_whether_it_gains() -> None:
    search = searched(gains={"compile=true": 0.2, "bucket=1": -0.1})
    verdicts = {setting: trial.verdict for setting, trial in search.trials.items()}
    assert verdicts[AxisChange("compile", "true"),] is GainVerdict.FASTER
    assert verdicts[AxisChange("bucket", "1"),] is GainVerdict.SLOWER
    assert verdicts[START] is GainVerdict.OPEN


def test_a_prediction_narrows_what_is_tried() -> None:
    """The caller chooses once communication is known to be exposed."""
    gains = {"comm_hook=noop": 0.3, "bucket=100": 0.1}
    search = SettingSearch(
        AXES,
        budget_seconds=1e6,
        probe=PROBE,
        probed=["bucket"],
        choose=lambda _, changes: changes[1:],
    )
    run(search, machine(gains))
    assert (AxisChange("bucket", "1"),) not in search.trials
    assert search.winner == (AxisChange("bucket", "100"),)
    none = SettingSearch(
        AXES, budget_seconds=1e6, probe=PROBE, probed=["bucket"], choose=lambda *_: ()
    )
    run(none, machine(gains))
    assert none.skipped == {"bucket": "none is predicted to be faster"}


def test_an_interrupted_search_keeps_what_it_knows() -> None:
    """Closed after ten launches."""
    search = SettingSearch(AXES, budget_seconds=1e6)
    launches, measure = search.launches(), machine({"compile=true": 0.2})
    setting = next(launches)
    for _ in range(10):
        setting = launches.send(measure(setting))
    launches.close()
    assert search.ending == "interrupted"
    assert search.trials[AxisChange("compile", "true"),].gain is not None


def test_a_noisy_machine_finds_the_same() -> None:
    """Launches differ by 6 %, as much as one of the changes gains."""
    gains = {"compile=true": 0.16, "fused=true": 0.06, "bucket=1": -0.1}
    noisy = [searched(gains=gains, noise=0.06, seed=seed) for seed in range(20)]
    found = [
        search
        for search in noisy
        if {change.axis for change in search.winner} >= {"compile", "fused"}
    ]
    assert len(found) >= 17


def launched(search: SettingSearch) -> int:
    return sum(trial.launches for trial in search.trials.values())


def test_far_fewer_launches_than_an_exhaustive_search() -> None:
    """Six axes of two to four values: 2⁴ · 3 · 4 combinations. How many one search takes varies
    with the last digits of the linear algebra, which depend on the CPU."""
    axes = {name: [AxisChange(name, "true")] for name in "abcd"}
    axes |= {
        "e": [AxisChange("e", value) for value in "12"],
        "f": [AxisChange("f", value) for value in "123"],
    }
    gains = {"a=true": 0.1, "b=true": 0.05, "e=2": 0.07}
    searches = [
        run(SettingSearch(axes, budget_seconds=1e6), machine(gains, seed=seed)) for seed in range(5)
    ]
    best = (AxisChange("a", "true"), AxisChange("b", "true"), AxisChange("e", "2"))
    assert sum(search.winner == best for search in searches) >= 4
    assert statistics.fmean(map(launched, searches)) < 0.6 * 2**4 * 3 * 4


@pytest.mark.parametrize("noise", [0.005, 0.03])
def test_the_choice_is_about_as_good_as_the_best_combination(noise: float) -> None:
    """Forty combinations whose changes add to and take from each other, on machines that drift: the
    choice is within 2 % of the best in nine of ten searches, with fewer launches than one of each
    combination."""
    close, launches = 0, 0
    for seed in range(20):
        draw = random.Random(seed)
        axes = {"a": ["1"], "b": ["1"], "c": ["1"], "d": ["1", "2", "3", "4"]}
        changes = {
            axis: [AxisChange(axis, value) for value in values] for axis, values in axes.items()
        }
        alone = {
            change: draw.gauss(0.05, 0.12) for members in changes.values() for change in members
        }
        together = {pair: draw.gauss(0, 0.03) for pair in itertools.combinations(sorted(alone), 2)}

        def log(setting: Setting, alone: Any = alone, together: Any = together) -> float:
            pairs = itertools.combinations(sorted(setting), 2)
            return math.fsum(
                [*(alone[change] for change in setting), *(together[pair] for pair in pairs)]
            )

        every = itertools.product(*([None, *members] for members in changes.values()))
        best = max(
            log(tuple(change for change in chosen if change is not None)) for chosen in every
        )
        drift = [0.0]

        def measure(
            setting: Setting, draw: Any = draw, log: Any = log, drift: Any = drift
        ) -> SettingLaunch:
            drift[0] = 0.9 * drift[0] + draw.gauss(0, 0.3 * noise)
            return SettingLaunch(log(setting) + drift[0] + draw.gauss(0, noise), 3.0)

        search = run(SettingSearch(changes, budget_seconds=1e6), measure)
        close += best - log(search.winner) < 0.02
        launches += launched(search)
    assert close >= 18
    assert launches / 20 < 40


def test_a_small_gain_is_verified_with_more_launches_than_a_large_one() -> None:
    """The noise is the same, and the interval has to exclude no gain."""
    small, large = (
        run(
            SettingSearch({"fused": AXES["fused"]}, budget_seconds=1e6),
            machine({"fused=true": gain}, noise=0.01),
        )
        for gain in (0.05, 0.3)
    )
    assert small.verified is not None
    assert large.verified is not None
    assert small.verified.rounds > large.verified.rounds


def test_room_for_a_verification_is_kept_before_anything_is_known_to_be_ahead() -> None:
    """Else every change is tried, the best one is known, and no launch is left to show that it is
    one."""
    search = searched(budget=36, gains={"compile=true": 0.3})
    assert search.is_verified
    assert search.untried == (AxisChange("bucket", "100"),)


def test_what_ran_before_is_read_again_whatever_the_budget() -> None:
    """A second search with a small budget knows all that the first one measured."""
    first = searched(gains={})
    left = {setting: trial.launches for setting, trial in first.trials.items()}
    works = machine({})

    def measure(setting: Setting) -> SettingLaunch:
        known = left.get(setting, 0) > 0
        left[setting] = left.get(setting, 0) - known
        return replace(works(setting), recorded=known)

    again = SettingSearch(AXES, budget_seconds=1.0, is_recorded=lambda one: left.get(one, 0) > 0)
    run(again, measure)
    assert list(again.trials)[:5] == list(first.trials)[:5]
    assert again.untried == ()


def test_nothing_is_launched_after_the_start_has_failed() -> None:
    """Not even with the room that was kept for a verification: there is nothing to compare with."""
    works, starts = machine({}), itertools.count(1)

    def measure(setting: Setting) -> SettingLaunch:
        if setting == START and next(starts) == 2:
            return SettingLaunch(None, 1.0, "oom", "it failed")
        return works(setting)

    search = SettingSearch(
        AXES, budget_seconds=96, probe=PROBE, probed=["bucket"], costs={"compile": 24.0}
    )
    run(search, measure)
    assert search.ending == "start failed"
    assert list(search.trials) == [START, (AxisChange("fused", "true"),)]
    assert search.trials[START].launches == 2


@pytest.mark.parametrize("gain", [-0.3, 0.02])
def test_how_much_less_communication_could_gain_is_the_end_of_the_interval(gain: float) -> None:
    """And nothing where exchanging nothing is slower: no share is below zero."""
    search = SettingSearch(AXES, budget_seconds=1e6, probe=PROBE, probed=["bucket"])
    run(search, machine({"comm_hook=noop": gain}, noise=0.02))
    assert search.probe is not None
    high = search.probe.interval()[1]
    most = max(0.0, 100 * (high - 1))
    assert (most > 0.5) == (gain > 0)
    assert search.skipped["bucket"].endswith(f"gains at most {most:.1f} %")


STRATEGIES = {
    "strategy": [
        AxisChange("strategy", name) for name in ("half", "tensor", "pipe", "both", "slow-both")
    ]
}
TRAITS = {
    "strategy": {
        None: ("1", "1", "1"),
        STRATEGIES["strategy"][0]: ("2", "1", "1"),
        STRATEGIES["strategy"][1]: ("1", "2", "1"),
        STRATEGIES["strategy"][2]: ("1", "1", "2"),
        STRATEGIES["strategy"][3]: ("2", "2", "1"),
        STRATEGIES["strategy"][4]: ("1", "2", "2"),
    }
}
HELD = STRATEGIES["strategy"][3:]


def of_strategies(
    measure: Callable[[Setting], SettingLaunch], most: int = 40, **more: Any
) -> SettingSearch:
    axes = {**STRATEGIES, **more}
    search = SettingSearch(axes, budget_seconds=1e6, traits=TRAITS, held=HELD, most_launches=most)
    return run(search, measure)


def test_a_product_is_launched_where_its_parts_gain_and_not_where_they_lose() -> None:
    gains = {"half": 0.2, "tensor": 0.1, "pipe": -0.9, "both": 0.35, "slow-both": -0.8}
    search = of_strategies(machine({f"strategy={name}": gain for name, gain in gains.items()}))
    assert search.winner == (AxisChange("strategy", "both"),)
    assert search.is_verified
    assert (AxisChange("strategy", "slow-both"),) not in search.trials
    assert search.untried == ()
    lost = search.over_choice((AxisChange("strategy", "tensor"),))
    assert lost is not None
    assert lost.log == pytest.approx(-0.25, abs=0.03)


def test_without_a_bound_of_launches_a_winner_is_verified_once() -> None:
    axes = {"strategy": STRATEGIES["strategy"][:2]}
    search = run(
        SettingSearch(axes, budget_seconds=1e6, traits=TRAITS), machine({"strategy=half": 0.3})
    )
    assert search.choice == (STRATEGIES["strategy"][0],)
    assert search.is_verified


def test_strategies_that_are_alike_end_at_the_bound_of_launches() -> None:
    """Launches differ by 5 %, and the strategies by nothing: more launches would tell no more."""
    searches = [of_strategies(machine({}, noise=0.05, seed=seed), most=20) for seed in range(5)]
    for search in searches:
        assert search.ending == "complete"
        assert launched(search) <= 20
    assert any(search.is_cut_short for search in searches)


def test_a_start_that_is_the_fastest_is_held_against_its_strongest_rival() -> None:
    gains = {"half": -0.1, "tensor": -0.3, "pipe": -0.9, "both": -0.5, "slow-both": -1.2}
    search = of_strategies(machine({f"strategy={name}": gain for name, gain in gains.items()}))
    assert (search.choice, search.verified, search.ending) == (START, None, "complete")
    assert search.runner_up is not None
    assert search.runner_up.setting == (AxisChange("strategy", "half"),)
    assert search.runner_up.gain.rounds == 4
    assert search.runner_up.gain.log == pytest.approx(-0.1, abs=0.02)
    assert search.runner_up.gain.interval()[1] < 1
    assert searched(gains={}).runner_up is None  # axes without traits


def test_a_rival_that_is_faster_after_all_is_the_winner() -> None:
    """It was slow until it was held against the start."""
    ran: dict[Setting, int] = {}
    works = machine({"strategy=half": -0.2, "strategy=tensor": -0.5}, noise=0.001)

    def measure(setting: Setting) -> SettingLaunch:
        ran[setting] = ran.get(setting, 0) + 1
        measured = works(setting)
        assert measured.log is not None
        late = setting == (AxisChange("strategy", "half"),) and ran[setting] > 1
        return replace(measured, log=measured.log + 0.5 * late)

    axes = {"strategy": STRATEGIES["strategy"][:2]}
    search = run(SettingSearch(axes, budget_seconds=1e6, traits=TRAITS, most_launches=11), measure)
    assert search.winner == (AxisChange("strategy", "half"),)
    assert search.is_verified


def test_a_winner_that_a_verification_does_not_confirm_is_not_the_choice() -> None:
    """It is fast until the verification begins."""
    ran: dict[Setting, int] = {}
    works = machine({"strategy=half": 0.3}, noise=0.001)

    def measure(setting: Setting) -> SettingLaunch:
        ran[setting] = ran.get(setting, 0) + 1
        measured = works(setting)
        if setting and ran[setting] > 2 and measured.log is not None:
            return replace(measured, log=measured.log - 0.3)
        return measured

    search = of_strategies(measure)
    assert search.winner != START
    assert search.choice == START


@pytest.mark.parametrize("is_slow_in_the_end", [False, True])
def test_what_is_faster_than_the_winner_after_all_is_verified_in_its_turn(
    is_slow_in_the_end: bool,
) -> None:
    """One strategy was lucky until its verification, where it still gains. The other is faster, and
    keeps the place of the winner if a verification of its own confirms that."""
    half, tensor = STRATEGIES["strategy"][:2]
    ran: dict[Setting, int] = {}
    works = machine({"strategy=half": 0.1, "strategy=tensor": 0.2}, noise=0.001)

    def measure(setting: Setting) -> SettingLaunch:
        ran[setting] = ran.get(setting, 0) + 1
        measured = works(setting)
        assert measured.log is not None
        lucky = setting == (half,) and ran[setting] <= 2
        late = is_slow_in_the_end and setting == (tensor,) and ran[setting] > 3
        return replace(measured, log=measured.log + 0.2 * lucky - 0.3 * late)

    axes = {"strategy": [half, tensor]}
    search = run(SettingSearch(axes, budget_seconds=1e6, traits=TRAITS, most_launches=40), measure)
    assert search.choice == ((half,) if is_slow_in_the_end else (tensor,))
    assert search.is_verified
    assert search.trials[tensor,].launches >= 4


@pytest.mark.parametrize(
    ("state", "is_tried"), [("oom", True), ("skipped", True), ("crashed", False)]
)
def test_a_batch_that_fits_one_strategy_alone_is_tried_with_it(
    state: str, *, is_tried: bool
) -> None:
    """By itself it is out of memory, or predicted to be; sharded it fits and gains. What fails
    otherwise is not tried again."""
    works = machine({"strategy=half": 0.05, "batch=64": 0.3})
    large = AxisChange("batch", "64")

    def measure(setting: Setting) -> SettingLaunch:
        if large in setting and AxisChange("strategy", "half") not in setting:
            return SettingLaunch(None, 1.0, state, "it failed")
        return works(setting)

    search = of_strategies(measure, most=100, batch=[large])
    half = AxisChange("strategy", "half")
    assert search.winner == ((large, half) if is_tried else (half,))
    assert search.trials[large,].state == state


FUSED = AxisChange("fused", "true")


def of_fused(gain: float, noise: float, budget: float = 1e6, **options: Any) -> SettingSearch:
    """A search over one change."""
    search = SettingSearch({"fused": [FUSED]}, budget_seconds=budget, **options)
    return run(search, machine({"fused=true": gain}, noise=noise))


def test_a_winner_of_one_change_is_what_its_verification_says() -> None:
    """Its gain, and what could have been seen."""
    search = of_fused(0.1, 0.005)
    verified = search.verified
    assert verified is not None
    assert search.contributions == (Contribution(FUSED, verified),)
    assert search.visible_gain == smallest_visible(verified.error, verified.degrees)
    assert search.interaction is None
    assert not search.is_cut_short
    unknown = search.over_choice((AxisChange("compile", "true"),))
    assert unknown is None


@pytest.mark.parametrize(("gain", "noise", "pairs"), [(0.3, 0.005, 4), (0.15, 0.05, 12)])
def test_a_verification_has_four_to_twelve_pairs(gain: float, noise: float, pairs: int) -> None:
    verified = of_fused(gain, noise).verified
    assert verified is not None
    assert verified.rounds == pairs


@pytest.mark.parametrize("most", [13, 16, 17, 24])
def test_a_verification_keeps_to_the_bound_of_launches(most: int) -> None:
    """By noise alone it would have twelve pairs."""
    search = of_fused(0.15, 0.05, most_launches=most)
    assert search.verified is not None
    assert launched(search) == most // 2 * 2


def test_no_launch_of_a_verification_begins_that_does_not_fit() -> None:
    """Launches take 3 s. By noise alone the verification would have twelve pairs."""
    for launches in range(13, 25):
        almost = of_fused(0.15, 0.05, 3.0 * launches - 0.5)
        assert almost.new_seconds <= 3.0 * (launches - 1)
        exact = of_fused(0.15, 0.05, 3.0 * launches)
        assert exact.new_seconds == 3.0 * launches
        assert exact.ending == almost.ending == "budget"


def test_before_its_first_launch_a_search_knows_what_it_will_try() -> None:
    search = SettingSearch(AXES, budget_seconds=1e6)
    assert (search.launches_needed, search.seconds_needed) == (4 + 8, 0)
    assert (search.launch_seconds, search.visible_gain, search.verified) == (None, None, None)
    assert (search.winner, search.choice, search.interaction) == (START, START, None)
    assert search.contributions == ()
    assert not search.is_verified


@pytest.mark.parametrize(("budget", "is_probed"), [(96.0, True), (95.0, False)])
def test_communication_is_probed_for_a_quarter_of_the_budget(
    budget: float, *, is_probed: bool
) -> None:
    """Four pairs of launches of 3 s."""
    search = SettingSearch(AXES, budget_seconds=budget, probe=PROBE, probed=["bucket"])
    run(search, machine({"comm_hook=noop": 0.3}))
    assert (PROBE in search.trials) is is_probed


def test_a_winner_of_several_changes_was_launched_without_each_of_them() -> None:
    search = searched(gains={"compile=true": 0.2, "fused=true": 0.05})
    assert [one.change.axis for one in search.contributions] == ["compile", "fused"]
    for change in search.winner:
        assert search.trials[change,].launches >= 2


def read_again(gains: Mapping[str, float], *, probe: Setting = START) -> SettingSearch:
    """A search whose launches all ran before, without a budget for new ones."""
    works = machine(gains)
    search = SettingSearch(
        {"strategy": STRATEGIES["strategy"][:2], "bucket": AXES["bucket"]},
        budget_seconds=0.0,
        probe=probe,
        probed=["bucket"],
        is_recorded=lambda _: True,
        traits=TRAITS,
        most_launches=60,
    )
    return run(search, lambda setting: replace(works(setting), recorded=True))


def test_what_ran_before_is_verified_without_a_budget() -> None:
    ahead = read_again({"strategy=half": 0.2, "strategy=tensor": -0.3}, probe=PROBE)
    assert ahead.is_verified
    assert ahead.probe is not None
    assert ahead.new_seconds == 0 < ahead.spent_seconds
    names = ("strategy=half", "strategy=tensor", "bucket=1", "bucket=100")
    behind = read_again(dict.fromkeys(names, -0.3))
    assert behind.runner_up is not None
    assert behind.runner_up.gain.rounds == 4


def test_a_start_that_is_ahead_is_held_against_no_rival_without_room_for_it() -> None:
    search = SettingSearch(
        {"strategy": STRATEGIES["strategy"][:2]}, budget_seconds=20, traits=TRAITS
    )
    run(search, machine({"strategy=half": -0.3, "strategy=tensor": -0.5}))
    assert (search.choice, search.runner_up, search.ending) == (START, None, "budget")


@pytest.mark.parametrize("budget", [3.0, 6.0, 12.0, 15.0])
def test_a_budget_without_room_for_a_verification_is_used_to_its_end(budget: float) -> None:
    """By launches of 3 s, of which the start and every change take five."""
    assert searched(budget=budget, gains={}).new_seconds == budget


@pytest.mark.parametrize(("devices", "noise"), [(4, 0.01), (4, 0.03), (8, 0.03)])
def test_the_best_of_many_strategies_is_found_in_half_of_the_launches(
    devices: int, noise: float
) -> None:
    """Those of a decoder, on machines that drift: each trait has an effect of some tens of percent,
    and each strategy differs by a tenth from what its traits let expect. Half are those of three
    launches of each."""
    found = [one for one in choices(devices) if one.degrees.expert == 1]
    start, *others = found
    changes = {one.label: AxisChange("strategy", one.label) for one in others}
    traits: Traits = {
        None: start.traits,
        **{changes[one.label]: one.traits for one in others},
    }
    held = [changes[one.label] for one in others if not one.is_plain]
    half = 3 * len(found) // 2
    close = 0
    for seed in range(20):
        draw = random.Random(seed)
        effects = [
            {trait: draw.gauss(0, 0.4) for trait in sorted(set(column))}
            for column in zip(*(one.traits for one in found), strict=True)
        ]
        truth = {
            one.label: draw.gauss(0, 0.1)
            + math.fsum(effect[trait] for effect, trait in zip(effects, one.traits, strict=True))
            for one in found
        }
        drift = [0.0]

        def measure(
            setting: Setting, truth: Any = truth, draw: Any = draw, drift: Any = drift
        ) -> SettingLaunch:
            label = setting[0].value if setting else start.label
            drift[0] = 0.9 * drift[0] + draw.gauss(0, 0.3 * noise)
            return SettingLaunch(truth[label] + drift[0] + draw.gauss(0, noise), 3.0)

        search = run(
            SettingSearch(
                {"strategy": list(changes.values())},
                budget_seconds=1e6,
                traits={"strategy": traits},
                held=held,
                most_launches=half,
            ),
            measure,
        )
        label = search.choice[0].value if search.choice else start.label
        close += max(truth.values()) - truth[label] < 0.02
        assert launched(search) <= half
    assert close >= 18
