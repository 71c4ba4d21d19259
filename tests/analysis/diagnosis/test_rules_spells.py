"""Ranks that are slow for a while, again and again; and what looks a little like it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.analysis.diagnosis.test_diagnose import found, quiet, why_not
from torchscale.analysis.diagnosis.rules_spells import _confidence, judge_spells
from torchscale.analysis.diagnosis.signals import Pauses, SignalOrigin, Signals, Windows
from torchscale.analysis.diagnosis.spells import (
    CERTAIN_SPELLS,
    MIN_SPELLS,
    Spells,
    _moving_mean,
    _runs_score,
    _slow_windows,
    slow_spells,
)
from torchscale.analysis.diagnosis.step_windows import MAX_WINDOWS, rare_long_steps, step_windows
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind

STEP = 0.013
COMPUTE = 0.011
FORWARD = 0.4
"""Share of compute that is the forward pass and the optimizer."""
KIND = FindingKind.INTERMITTENT_STRAGGLER


def run_of(
    extra: NDArray[np.float64],
    *,
    noise: float = 0.05,
    seed: int = 0,
    in_backward: bool = False,
    compute: float = COMPUTE,
) -> Signals:
    """A run of steps whose ranks take ``extra`` (rank × step) more than ``compute``, and scatter by
    ``noise``."""
    ranks, steps = extra.shape
    random = np.random.default_rng(seed)
    own = compute * (1 + noise * np.abs(random.standard_normal(extra.shape))) + extra
    forward = (own - extra) * FORWARD + (0.0 if in_backward else extra)
    wait = own.max(axis=0) - own
    blame = np.zeros(ranks)
    np.add.at(blame, own.argmax(axis=0), wait.sum(axis=0))
    wall = own.max(axis=0) + 0.002
    edges = np.linspace(0, steps, 11).astype(int)

    def by_batch(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.stack(
            [part.mean(axis=-1) for part in np.split(values, edges[1:-1], axis=-1)], axis=-1
        )

    windows = step_windows(own, wall, forward)
    assert windows is not None
    return replace(
        quiet(ranks),
        step_seconds=float(wall.mean()),
        steps=steps,
        compute=by_batch(own),
        wait=by_batch(wait),
        blame=blame / blame.sum(),
        transfer=np.full(10, 0.0001),
        data_wait=np.zeros((ranks, 10)),
        exposed_p50=None,
        exposed_p95=None,
        pauses=rare_long_steps(own, 0.0),
        windows=windows,
    )


def spells(
    ranks: int, row: int, steps: int, extra: float, period: int, share: float = 0.5, shift: int = 0
) -> NDArray[np.float64]:
    """``extra`` on one rank during ``share`` of every ``period`` steps."""
    values = np.zeros((ranks, steps))
    values[row, (np.arange(steps) + shift) % period < share * period] = extra
    return values


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize(("period", "share"), [(160, 0.5), (60, 0.5), (240, 0.3), (100, 0.7)])
def test_spells_of_each_rank_are_found_with_their_share_and_cost(
    ranks: int, period: int, share: float
) -> None:
    for row in range(ranks):
        extra = spells(ranks, row, 1000, 0.006, period, share, shift=17 * row)
        findings = found(run_of(extra, seed=row))
        finding = findings[KIND]
        assert finding.rank == row
        assert finding.cost_seconds == pytest.approx(0.006 * share, rel=0.2)
        assert "throttles" in finding.advice
        assert FindingKind.STRAGGLER not in findings
        assert FindingKind.LOAD_IMBALANCE not in findings
    slow_time = share * (STEP + 0.006) / (STEP + share * 0.006)
    words = findings[KIND].summary
    told = float(words.split(" slow ")[1].split(" %")[0]) / 100
    assert told == pytest.approx(slow_time, abs=0.08)


@pytest.mark.parametrize("extra", [0.0015, 0.003, 0.02])
def test_slight_and_heavy_spells(extra: float) -> None:
    finding = found(run_of(spells(3, 1, 1500, extra, 200)))[KIND]
    assert finding.rank == 1
    assert finding.confidence is Confidence.HIGH


def test_an_adaptive_run_of_few_spells_says_so() -> None:
    finding = found(run_of(spells(2, 1, 400, 0.006, 180, shift=40)))[KIND]
    assert (finding.rank, finding.confidence) == (1, Confidence.MEDIUM)
    assert "measure longer first" in finding.advice


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("noise", [0.02, 0.1, 0.3])
def test_clean_runs_name_nobody(ranks: int, noise: float) -> None:
    for seed in range(25):
        findings = found(run_of(np.zeros((ranks, 400)), noise=noise, seed=seed))
        assert all(finding.rank is None for finding in findings.values())


def test_disturbances_that_hit_ranks_in_turn_name_nobody() -> None:
    for ranks in (2, 3, 4):
        extra = np.zeros((ranks, 1200))
        for number in range(12):
            extra[number % ranks, number * 100 + 20 : number * 100 + 70] = 0.006
        signals = run_of(extra)
        assert all(finding.rank is None for finding in found(signals).values())
        assert "several ranks are slow for a while in turn" in why_not(signals, KIND)


def test_one_slow_stretch_is_no_pattern() -> None:
    extra = np.zeros((2, 600))
    extra[1, 100:300] = 0.006
    signals = run_of(extra)
    assert KIND not in found(signals)
    assert "once; measure longer" in why_not(signals, KIND)
    assert "not steadily" in why_not(signals, FindingKind.STRAGGLER)


def test_two_slight_stretches_are_no_pattern() -> None:
    extra = np.zeros((2, 600))
    extra[1, 100:200] = extra[1, 400:500] = 0.0025
    assert "2 times; measure longer" in why_not(run_of(extra), KIND)


def test_what_other_processes_took_is_no_spell_of_the_device() -> None:
    signals = replace(
        run_of(spells(2, 1, 1000, 0.006, 160)), other_processes=np.array([0.01, 0.25])
    )
    assert KIND not in found(signals)
    assert "other processes took 24 %" in why_not(signals, KIND)


def test_spells_in_the_backward_pass_alone_can_be_communication() -> None:
    signals = run_of(spells(2, 0, 1000, 0.006, 160), in_backward=True)
    assert KIND not in found(signals)
    assert "while gradients are in transfer" in why_not(signals, KIND)


def test_a_steady_straggler_stays_one() -> None:
    for row in (0, 1):
        extra = np.zeros((2, 400))
        extra[row] = 0.002
        findings = found(run_of(extra, seed=row, noise=0.1))
        assert KIND not in findings
        assert findings[FindingKind.STRAGGLER].rank == row
        assert findings[FindingKind.STRAGGLER].cost_seconds == pytest.approx(0.002, rel=0.2)


@pytest.mark.parametrize("every", [2, 3, 7])
def test_a_rank_that_is_slow_in_every_nth_step_is_a_straggler(every: int) -> None:
    extra = np.zeros((3, 840))
    extra[2, ::every] = 0.005
    findings = found(run_of(extra))
    assert KIND not in findings
    assert findings[FindingKind.STRAGGLER].rank == 2


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_pauses_of_one_rank_are_its_pauses(ranks: int) -> None:
    for row in range(ranks):
        extra = np.zeros((ranks, 400))
        extra[row, 7::40] = 0.2
        findings = found(run_of(extra, seed=row))
        finding = findings[FindingKind.PAUSES]
        assert finding.rank == row
        assert finding.cost_seconds == pytest.approx(0.2 / 40, rel=0.1)
        assert finding.confidence is Confidence.HIGH
        assert not {KIND, FindingKind.STRAGGLER, FindingKind.LOAD_IMBALANCE} & set(findings)
        assert f"on rank {row}" in finding.summary


def test_pauses_of_all_and_of_any_rank_are_nobodys() -> None:
    together = np.zeros((2, 400))
    together[:, 7::40] = 0.2
    assert found(run_of(together))[FindingKind.PAUSES].rank is None
    in_turn = np.zeros((2, 400))
    in_turn[0, 7::80] = in_turn[1, 47::80] = 0.2
    assert found(run_of(in_turn))[FindingKind.PAUSES].rank is None


def test_slight_pauses_of_others_do_not_hide_whose_they_are() -> None:
    pauses = Pauses((8, 5), 0.013, 0.0, (0.013, 0.0007))
    assert found(replace(quiet(2), pauses=pauses))[FindingKind.PAUSES].rank == 0
    as_long = Pauses((8, 5), 0.013, 0.0, (0.013, 0.008))
    assert found(replace(quiet(2), pauses=as_long))[FindingKind.PAUSES].rank is None


def test_few_pauses_on_one_rank_may_be_chance() -> None:
    few = Pauses((3, 0), 0.01, 0.0, (0.01, 0.0))
    assert found(replace(quiet(2), pauses=few))[FindingKind.PAUSES].rank is None
    older = Pauses((30, 0), 0.01, 0.0)
    assert found(replace(quiet(2), pauses=older))[FindingKind.PAUSES].rank is None


def test_windows_leave_pauses_out_and_keep_their_number_small() -> None:
    seconds = np.full((2, 5000), 0.01)
    seconds[0, 3::50] = 0.5
    windows = step_windows(seconds, seconds.max(axis=0))
    assert windows is not None and len(windows) == MAX_WINDOWS
    assert windows.steps.sum() == 5000
    assert windows.compute == pytest.approx(np.full((2, MAX_WINDOWS), 0.01))
    assert step_windows(seconds[:, :19], seconds[0, :19]) is None


def test_long_steps_in_a_row_are_no_pause() -> None:
    seconds = np.full((2, 200), 0.01)
    seconds[0, 50:58] = 0.03
    seconds[0, 100:102] = 0.03
    pauses = rare_long_steps(seconds)
    assert pauses is not None and pauses.count == (2, 0)


@pytest.mark.parametrize(("in_a_row", "pauses"), [(3, 3), (4, 0)])
def test_a_pause_is_over_after_three_steps(in_a_row: int, pauses: int) -> None:
    """A rank that is slow for longer has become slow."""
    seconds = np.full((2, 100), 0.1)
    seconds[0, 40 : 40 + in_a_row] = 0.3
    told = rare_long_steps(seconds)
    assert told is not None
    assert told.count == (pauses, 0)


def test_windows_keep_the_time_of_a_step() -> None:
    wall = np.linspace(0.1, 0.2, 100)
    windows = step_windows(np.full((2, 100), 0.05), wall)
    assert windows is not None
    assert 0.1 <= windows.wall.min() <= windows.wall.max() <= 0.2
    assert (windows.wall * windows.steps).sum() == pytest.approx(wall.sum())


def test_a_cpu_has_no_device_that_throttles() -> None:
    signals = replace(run_of(spells(3, 1, 1500, 0.006, 200)), on_device=False)
    advice = found(signals)[KIND].advice
    assert "rank 1's cores" in advice
    assert "throttles" not in advice


def test_stretches_of_unequal_height_are_no_spells() -> None:
    """A device that throttles is slow by the same each time; samples of unequal size are not."""
    heights = np.repeat([0.005, 0.012, 0.02] * 2, 140)
    extra = spells(2, 1, len(heights), 1.0, 140)
    assert KIND not in found(run_of(extra * heights))
    assert KIND in found(run_of(extra * heights.mean()))


@pytest.mark.parametrize(
    ("state", "score"),
    [
        ([True, False] * 5, (10 - 6) / (20 / 9) ** 0.5),
        ([True] * 5 + [False] * 5, (2 - 6) / (20 / 9) ** 0.5),
        ([True] * 10, 0.0),
    ],
)
def test_the_score_of_runs_is_that_of_wald_and_wolfowitz(state: list[bool], score: float) -> None:
    """Five of each: 6 runs are expected, with a variance of 5 · 4 ÷ 9."""
    assert _runs_score(np.array(state)) == pytest.approx(score)


def test_a_moving_mean_lies_around_its_window_and_counts_steps() -> None:
    """A spell must not seem to begin before or after it does."""
    values, steps = np.array([[0.0, 0.0, 6.0, 0.0, 0.0]]), np.array([1.0, 1.0, 2.0, 1.0, 1.0])
    assert _moving_mean(values, steps, 3).tolist() == [[0.0, 3.0, 3.0, 3.0, 0.0]]
    assert _moving_mean(values, np.ones(5), 1).tolist() == values.tolist()
    assert _moving_mean(values, np.ones(5), 99)[0, 2] == pytest.approx(6 / 5)


def test_the_fewest_spells_that_are_a_pattern_are_the_least_certain() -> None:
    """A coincidence of two is likelier than one of many."""
    half_of_the_time = Spells(0, 9, 0.5, 1.0, 0.006, COMPUTE, 0.003, 3, None)
    counts = (MIN_SPELLS, MIN_SPELLS + 1, CERTAIN_SPELLS, 50)
    assert [_confidence(replace(half_of_the_time, count=count)) for count in counts] == [
        Confidence.LOW,
        Confidence.MEDIUM,
        Confidence.HIGH,
        Confidence.HIGH,
    ]


EIGHTY = 80
"""Windows of one step each, in which a rank computes 100 s, and nothing scatters."""


def in_windows(
    extra: dict[int, NDArray[np.float64]], *, ranks: int = 4, count: int = EIGHTY
) -> Windows:
    """Windows in which these ranks take so much longer."""
    compute = np.full((ranks, count), 100.0)
    for row, values in extra.items():
        compute[row] += values
    return Windows(np.ones(count), compute.max(axis=0), compute)


def stretches(*runs: tuple[int, int], height: float = 20.0) -> NDArray[np.float64]:
    """``height`` in these windows, given by their first and their number."""
    values = np.zeros(EIGHTY)
    for begin, length in runs:
        values[begin : begin + length] = height
    return values


SIX = tuple((begin, 4) for begin in range(0, 72, 12))
FOUR = tuple((begin, 9) for begin in range(0, 80, 20))


def spells_in(windows: Windows) -> Spells | str | None:
    return slow_spells(windows, range(len(windows.compute)))


def are_seen_at_once(windows: Windows) -> bool:
    """Whether a rank has spells in the windows as they are; in means over several, edges of spells
    have any height."""
    told = spells_in(windows)
    return isinstance(told, Spells) and told.scale == 1


def test_spells_are_told_with_their_number_times_and_sizes() -> None:
    """Seven spells in 520 of 1000 steps, which take 19 instead of 13 ms, 6 of them longer in the
    forward pass, which is 4 of 10 ms."""
    windows = run_of(spells(2, 1, 1000, 0.006, 160), noise=0.0).windows
    assert windows is not None
    told = spells_in(windows)
    assert isinstance(told, Spells)
    assert (told.row, told.count, told.scale) == (1, 7, 1)
    slow_seconds, fast_seconds = 520 * 0.019, 480 * 0.013
    assert told.share == pytest.approx(slow_seconds / (slow_seconds + fast_seconds))
    assert told.seconds == pytest.approx(slow_seconds / 7)
    assert told.excess == pytest.approx(0.006)
    assert told.typical == pytest.approx(COMPUTE)
    assert told.cost == pytest.approx(0.52 * 0.006)
    assert told.quiet_rise == pytest.approx(1 / FORWARD)
    unknown = spells_in(replace(windows, quiet=None))
    assert unknown == replace(told, quiet_rise=None)


@pytest.mark.parametrize(("count", "is_told"), [(12, True), (11, False)])
def test_twelve_windows_can_tell_a_spell_from_chance(count: int, is_told: bool) -> None:
    half = np.where(np.arange(count) < count // 2, 20.0, 0.0)
    told = spells_in(in_windows({1: half}, count=count))
    assert (told is not None) is is_told


@pytest.mark.parametrize(("height", "is_told"), [(10.0, True), (9.9, False)])
def test_a_rank_is_slow_in_its_spells_by_a_tenth(height: float, is_told: bool) -> None:
    assert (spells_in(in_windows({2: stretches(*SIX, height=height)})) is not None) is is_told


@pytest.mark.parametrize(("between", "is_told"), [(10.0, True), (10.1, False)])
def test_a_rank_that_is_slow_between_its_spells_too_is_slow_always(
    between: float, is_told: bool
) -> None:
    extra = np.maximum(stretches(*SIX), between)
    assert (spells_in(in_windows({2: extra})) is not None) is is_told


@pytest.mark.parametrize(
    ("runs", "others", "is_told"),
    [(SIX, 8, True), (SIX, 9, False), (FOUR, 4, True), (FOUR, 5, False)],
)
def test_most_of_the_time_that_ranks_lose_in_spells_is_the_named_ranks(
    runs: tuple[tuple[int, int], ...], others: int, is_told: bool
) -> None:
    """24 windows of 32 are three quarters, 36 of 40 nine tenths, which fewer spells need."""
    told = spells_in(in_windows({1: stretches(*runs), 3: stretches((70, others))}))
    assert isinstance(told, Spells) is is_told
    if not is_told:
        assert told == "several ranks are slow for a while in turn: no single device is slow"


@pytest.mark.parametrize(("height", "is_told"), [(10.0, False), (9.9, True)])
def test_a_rank_that_is_slower_by_less_than_half_does_not_share_the_spells(
    height: float, is_told: bool
) -> None:
    other = stretches((0, 15), (40, 15), height=height)
    told = spells_in(in_windows({1: stretches(*SIX), 3: other}))
    assert isinstance(told, Spells) is is_told


@pytest.mark.parametrize(
    ("others", "height", "is_told"),
    [
        (((30, 8), (60, 8)), 34.0, True),
        (((30, 8), (60, 8)), 34.1, False),
        (((40, 12),), 24.0, True),
        (((40, 12),), 24.1, False),
    ],
)
def test_a_spell_is_about_as_high_as_the_others(
    others: tuple[tuple[int, int], ...], height: float, is_told: bool
) -> None:
    """Two spells are alike by chance more often, so that they have to be more so."""
    extra = stretches(*others) + stretches((5, 6), height=height)
    assert are_seen_at_once(in_windows({1: extra})) is is_told


@pytest.mark.parametrize(("own", "is_told"), [(10.0, True), (9.9, False)])
def test_a_rank_whose_peers_become_faster_has_no_spells(own: float, is_told: bool) -> None:
    """Half of the rise is its own, at least."""
    at_times = stretches(*SIX, height=1.0)
    faster = (own - 20.0) * at_times
    windows = in_windows({0: faster, 1: own * at_times, 2: faster, 3: faster})
    assert are_seen_at_once(windows) is is_told


@pytest.mark.parametrize(("scatter", "is_told"), [(3.3, True), (3.4, False)])
def test_the_levels_lie_apart_by_four_times_the_scatter(scatter: float, is_told: bool) -> None:
    """20 s by 4 · 1.48: windows lie up to 3.37 s above and below their level."""
    extra = stretches(*SIX) + np.tile([scatter, -scatter], EIGHTY // 2)
    assert are_seen_at_once(in_windows({1: extra})) is is_told


def test_a_window_between_the_levels_is_as_the_one_before() -> None:
    excess = np.array([5.0, 6.0, 6.1, 4.1, 4.0, 6.0])
    assert _slow_windows(excess, 0.0, 10.0).tolist() == [False, False, True, True, False, False]
    assert _slow_windows(excess + 100.1, 100.0, 110.0).tolist()[:2] == [True, True]


def test_a_mean_of_two_windows_is_that_of_one_and_the_one_before() -> None:
    values = np.array([[0.0, 6.0, 0.0, 0.0]])
    assert _moving_mean(values, np.ones(4), 2).tolist() == [[0.0, 3.0, 3.0, 0.0]]


def spelled(**changes: Any) -> Spells:
    """Five spells of a rank that is 40 s slower than the others, which compute 100 s."""
    return replace(Spells(1, 5, 0.25, 30.0, 40.0, 100.0, 10.0, 1, None), **changes)


def judged(cost: float = 10.0, **changes: Any) -> Finding | str | None:
    signals = quiet(step_seconds=120.0)
    return judge_spells(signals, spelled(**changes), cost, "the others")


@pytest.mark.parametrize(("cost", "is_told"), [(2.4, True), (2.3, False)])
def test_spells_that_cost_less_than_a_fiftieth_of_the_step_are_not_told(
    cost: float, is_told: bool
) -> None:
    assert (judged(cost) is not None) is is_told


def test_a_spell_that_did_not_come_back_is_none() -> None:
    assert judged(count=1) == (
        "rank 1 was 40.0 s a step slower than the others for 30.0 s, once; measure longer to see "
        "whether it comes back"
    )


@pytest.mark.parametrize(
    ("count", "excess", "confidence"),
    [
        (2, 29.9, None),
        (2, 30.0, Confidence.LOW),
        (3, 10.0, Confidence.MEDIUM),
        (4, 10.0, Confidence.MEDIUM),
        (5, 10.0, Confidence.HIGH),
    ],
)
def test_two_spells_are_told_where_they_are_heavy(
    count: int, excess: float, confidence: Confidence | None
) -> None:
    judgement = judged(count=count, excess=excess)
    if confidence is None:
        assert judgement == (
            "rank 1 was slower than the others for a while, 2 times; measure longer"
        )
        return
    assert isinstance(judgement, Finding)
    assert judgement.confidence is confidence
    again = f"; measure longer first: {count} spells can be disturbances that passed"
    assert judgement.advice.endswith(again) is (confidence is not Confidence.HIGH)


@pytest.mark.parametrize(("rise", "is_told"), [(0.5, True), (0.49, False), (None, True)])
def test_spells_show_by_half_where_no_gradient_is_in_transfer(
    rise: float | None, is_told: bool
) -> None:
    assert isinstance(judged(quiet_rise=rise), Finding) is is_told


def test_spells_of_a_recording_are_to_be_recorded_longer() -> None:
    judgement = judge_spells(
        quiet(origin=SignalOrigin.TRACE), spelled(count=4), 10.0, "the ranks of its stage"
    )
    assert isinstance(judgement, Finding)
    assert "; record longer first: 4 spells" in judgement.advice
    assert judgement.evidence[1] == "compute of the ranks of its stage: 1 min 40 s a step"


def test_spells_are_told_with_their_share_of_the_time() -> None:
    judgement = judged()
    assert isinstance(judgement, Finding)
    assert judgement.cost_percent == pytest.approx(10 / 120 * 100)
    assert judgement.summary == (
        "rank 1 is slow 25 % of the time, for 30.0 s at a time: its compute then takes 40.0 s a "
        "step (40 %) longer than that of the others"
    )
    assert judgement.evidence[0] == (
        "5 slow spells in 4 h 00 min, as fast as the others between them"
    )


@pytest.mark.parametrize("share", [0.5, 0.01])
def test_spells_cost_no_more_than_the_others_wait_for_them(share: float) -> None:
    """Of three ranks; where nobody waits they are no bottleneck."""
    signals = run_of(spells(3, 1, 1000, 0.006, 160), noise=0.0)
    assert signals.wait is not None
    finding = found(replace(signals, wait=share * signals.wait)).get(KIND)
    assert (finding is None) is (share < 0.1)
    if finding is not None:
        assert finding.cost_seconds == pytest.approx(share * 0.52 * 0.006)


def test_spells_of_few_steps_are_not_judged() -> None:
    signals = replace(run_of(spells(2, 1, 1000, 0.006, 160)), steps=19)
    assert "fewer than 20" in why_not(signals, KIND)
