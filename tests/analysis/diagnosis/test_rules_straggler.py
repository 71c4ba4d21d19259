"""A slow rank among ranks that scatter: steps that all wait for, drawn, with the truth known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.analysis.diagnosis.test_diagnose import BATCHES, found, quiet, slow, why_not
from torchscale.analysis.diagnosis.rules_straggler import _blame_beside_experts
from torchscale.analysis.diagnosis.signals import ExpertLoad, Pauses, SignalOrigin, Signals, Windows
from torchscale.analysis.diagnosis.undisturbed import _least_shift
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind

STEPS, WINDOWS, RUNS = 120, 40, 25
COMPUTE, COMMUNICATION = 0.0265, 0.010


def scattering(seed: int, ranks: int, slow: int, extra: float, scatter: float) -> Signals:
    """Each rank's step takes up to some ``scatter`` longer by itself; ``slow`` takes ``extra``
    seconds more in all."""
    noise = np.random.default_rng(seed)
    compute = COMPUTE * (1 + scatter * np.abs(noise.standard_normal((ranks, STEPS))))
    alone = COMPUTE * (1 + scatter * np.abs(noise.standard_normal((ranks, 20))))
    compute[slow] += extra
    alone[slow] += extra
    latest = compute.max(axis=0)
    wait = latest - compute
    blame = np.zeros(ranks)
    np.add.at(blame, compute.argmax(axis=0), wait.sum(axis=0))
    in_windows = compute.reshape(ranks, WINDOWS, STEPS // WINDOWS)
    step = float(latest.mean()) + COMMUNICATION
    windows = Windows(
        np.full(WINDOWS, STEPS / WINDOWS), np.full(WINDOWS, step), in_windows.mean(axis=2)
    )
    return replace(
        quiet(ranks),
        step_seconds=step,
        compute=compute,
        wait=wait,
        blame=blame / blame.sum(),
        unsynchronized=tuple(alone),
        windows=windows,
    )


def named(ranks: int, slow: int, extra: float, scatter: float) -> list[int | None]:
    """The straggler of each run."""
    runs = (found(scattering(seed, ranks, slow, extra, scatter)) for seed in range(RUNS))
    return [
        findings[FindingKind.STRAGGLER].rank if FindingKind.STRAGGLER in findings else None
        for findings in runs
    ]


@pytest.mark.parametrize(
    ("ranks", "extra", "scatter"),
    [(3, 0.005, 0.15), (4, 0.0025, 0.10), (8, 0.005, 0.30), (16, 0.005, 0.15), (64, 0.008, 0.30)],
)
def test_a_slow_rank_is_named_although_scatter_makes_others_late_too(
    ranks: int, extra: float, scatter: float
) -> None:
    """With many ranks another one is mostly the last: of 64 that scatter by 30 %, one that is 30 %
    slower has a seventh of the blame."""
    slow = ranks - 2
    seen = named(ranks, slow, extra, scatter)
    assert set(seen) <= {slow, None}
    assert seen.count(slow) >= 0.9 * RUNS


@pytest.mark.parametrize("ranks", [3, 4, 8, 16, 64])
@pytest.mark.parametrize("scatter", [0.05, 0.15, 0.30])
def test_ranks_that_scatter_alike_are_not_named(ranks: int, scatter: float) -> None:
    assert named(ranks, 0, 0.0, scatter) == [None] * RUNS


@pytest.mark.parametrize(("blame", "is_named"), [(0.33, False), (0.42, True)])
def test_a_rank_that_is_waited_for_no_more_than_by_chance_is_not_accused(
    blame: float, is_named: bool
) -> None:
    """Four ranks that arrive last by turns have a quarter of the blame each. That one of them also
    computes longer is no reason to call it the cause of what the others wait for."""
    shares = np.full(4, (1 - blame) / 3)
    shares[1] = blame
    findings = found(slow(1, 0.02, blame=shares))
    assert (FindingKind.STRAGGLER in findings) is is_named


@pytest.mark.parametrize(("blame", "is_named"), [(0.45, False), (0.55, True)])
def test_of_three_ranks_a_straggler_causes_most_of_the_waiting(
    blame: float, is_named: bool
) -> None:
    shares = np.full(3, (1 - blame) / 2)
    shares[1] = blame
    findings = found(slow(1, 0.02, ranks=3, blame=shares))
    assert (FindingKind.STRAGGLER in findings) is is_named


def test_the_least_shift_is_the_lower_end_of_hodges_and_lehmanns_interval() -> None:
    """Differences of 0, 1, … 143: of 12 against 12 the interval begins after
    12 · 12 ÷ 2 - 1.96 · √(12 · 12 · 25 ÷ 12) = 38.05 of them."""
    mine, theirs = np.arange(0.0, 144.0, 12.0), -np.arange(12.0)
    assert _least_shift(mine, theirs) == 38


@pytest.mark.parametrize(("seconds", "named"), [(103.0, True), (102.9, False)])
def test_three_per_cent_without_synchronization_confirm_a_straggler(
    seconds: float, named: bool
) -> None:
    """Less is what ranks of one host differ by with nothing wrong."""
    alone = tuple(np.full(BATCHES, seconds if row == 1 else 100.0) for row in range(4))
    signals = slow(1, 0.02, unsynchronized=alone, windows=None)
    assert (FindingKind.STRAGGLER in found(signals)) is named


def slower_in_quiet_phases(share: float, **changes: Any) -> Signals:
    """A rank whose whole step takes 40 % longer, and its phases without a transfer by ``share``."""
    signals = slow(1, 0.036)
    windows = signals.windows
    assert windows is not None
    assert windows.quiet is not None
    longer = windows.quiet.copy()
    longer[1] *= 1 + share
    changes = {"unsynchronized": None, **changes}
    return replace(signals, windows=replace(windows, quiet=longer), **changes)


@pytest.mark.parametrize(("share", "is_named"), [(0.12, False), (0.25, True)])
def test_a_rank_is_slower_in_phases_without_a_transfer_by_half_of_its_share(
    share: float, *, is_named: bool
) -> None:
    """Where only these can confirm it."""
    assert (FindingKind.STRAGGLER in found(slower_in_quiet_phases(share))) is is_named


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        (SignalOrigin.LAUNCH, "forward pass and optimizer, while no gradient is in transfer: "),
        (SignalOrigin.JOB, "while no collective is under way: "),
    ],
)
def test_the_evidence_names_what_no_transfer_disturbs(origin: SignalOrigin, words: str) -> None:
    finding = found(slower_in_quiet_phases(0.4, origin=origin))[FindingKind.STRAGGLER]
    assert any(line.startswith(words) for line in finding.evidence)


def steady(
    seconds: float | NDArray[np.float64], *, ranks: int = 4, wait: float = 50.0, **changes: Any
) -> Signals:
    """Ranks that compute 100 s in a step of 120, without scatter, and rank 1, which computes
    ``seconds``; the others wait ``wait`` for it."""
    rows = np.arange(ranks)
    compute = np.full((ranks, BATCHES), 100.0)
    compute[1] = seconds
    waits = np.full((ranks, BATCHES), wait)
    waits[1] = 0.0
    signals = quiet(
        ranks,
        step_seconds=120.0,
        compute=compute,
        wait=waits,
        blame=(rows == 1).astype(np.float64),
        unsynchronized=tuple(np.full(BATCHES, 150.0 if row == 1 else 100.0) for row in rows),
        host_bound=np.zeros(ranks),
        windows=None,
    )
    return replace(signals, **changes)


def straggler_of(signals: Signals) -> Finding | None:
    return found(signals).get(FindingKind.STRAGGLER)


@pytest.mark.parametrize(("seconds", "is_named"), [(103.0, True), (102.9, False)])
def test_a_rank_that_computes_three_hundredths_longer_is_named(
    seconds: float, is_named: bool
) -> None:
    finding = straggler_of(steady(seconds))
    assert (finding is not None) is is_named
    if finding is not None:
        assert (finding.rank, finding.cost_seconds, finding.cost_percent) == (1, 3.0, 2.5)


@pytest.mark.parametrize(("step_seconds", "is_named"), [(150.0, True), (151.0, False)])
def test_a_straggler_costs_a_fiftieth_of_the_step_or_is_none(
    step_seconds: float, is_named: bool
) -> None:
    finding = straggler_of(steady(103.0, step_seconds=step_seconds))
    assert (finding is not None) is is_named


def test_a_straggler_costs_no_more_than_the_others_wait_for_it() -> None:
    """Of 15 s that three ranks wait, four fifths are for it."""
    shares = np.array([0.1, 0.8, 0.05, 0.05])
    finding = straggler_of(steady(110.0, wait=5.0, blame=shares))
    assert finding is not None
    assert finding.cost_seconds == pytest.approx(4.0)
    assert "(80 % of waits)" in finding.summary


@pytest.mark.parametrize(
    ("ranks", "blame", "is_named"),
    [(4, 0.375, True), (4, 0.37, False), (3, 0.5, True), (3, 0.49, False), (2, 0.1, True)],
)
def test_the_blame_of_a_straggler_is_beyond_chance(
    ranks: int, blame: float, is_named: bool
) -> None:
    """One and a half times what chance gives, and no more than half. Of two ranks the slower one
    is to blame, whoever arrives last."""
    shares = np.full(ranks, (1 - blame) / (ranks - 1))
    shares[1] = blame
    assert (straggler_of(steady(110.0, ranks=ranks, blame=shares)) is not None) is is_named


@pytest.mark.parametrize(("first", "is_named"), [(6.0, True), (5.9, False)])
def test_a_straggler_is_slow_in_every_quarter_by_half_of_its_mean(
    first: float, is_named: bool
) -> None:
    signals = steady(100.0 + np.repeat([first, 14.0, 14.0, 14.0], BATCHES // 4))
    assert (straggler_of(signals) is not None) is is_named
    if not is_named:
        assert why_not(signals, FindingKind.STRAGGLER) == (
            "rank 1 is slower by itself, but not steadily: 5.90 s, 14.0 s, 14.0 s, 14.0 s a step "
            "from quarter to quarter"
        )


def test_a_quarter_in_which_it_is_faster_counts_as_none() -> None:
    signals = steady(100.0 + np.repeat([-1.0, 14.0, 14.0, 14.0], BATCHES // 4))
    assert "0 µs, 14.0 s" in why_not(signals, FindingKind.STRAGGLER)


@pytest.mark.parametrize(("count", "is_named"), [(3, True), (2, False)])
def test_three_samples_of_each_rank_are_enough(count: int, is_named: bool) -> None:
    signals = steady(110.0)
    assert signals.compute is not None
    signals = replace(signals, compute=signals.compute[:, :count])
    assert (straggler_of(signals) is not None) is is_named
    if not is_named:
        assert "too few samples" in why_not(signals, FindingKind.STRAGGLER)


@pytest.mark.parametrize(("seconds", "is_named"), [(20.0, True), (20.1, False)])
def test_a_rank_is_late_by_itself_where_its_data_explain_no_more_than_half(
    seconds: float, is_named: bool
) -> None:
    """It is 10 s late by its compute."""
    data = np.zeros((4, BATCHES))
    data[1] = seconds
    findings = found(steady(110.0, data_wait=data))
    assert findings[FindingKind.INPUT_PIPELINE].rank == 1
    assert (FindingKind.STRAGGLER in findings) is is_named


@pytest.mark.parametrize(
    ("pauses", "cost"),
    [
        (Pauses((0, 3, 0, 0), 4.0, 0.0), 6.0),
        (Pauses((6, 3, 0, 0), 4.0, 0.0), 8.0),
        (Pauses((0, 2, 0, 0), 4.0, 0.0), 10.0),
        (None, 10.0),
    ],
)
def test_what_pauses_cost_a_rank_is_not_its_slowness(pauses: Pauses | None, cost: float) -> None:
    """Three of them are pauses; of what the rank with most loses it has its part."""
    finding = straggler_of(steady(110.0, pauses=pauses))
    assert finding is not None
    assert finding.cost_seconds == pytest.approx(cost)


@pytest.mark.parametrize(
    ("origin", "steps", "again"),
    [
        (SignalOrigin.TRACE, 100, False),
        (SignalOrigin.TRACE, 99, True),
        (SignalOrigin.LAUNCH, 99, False),
    ],
)
def test_a_recording_of_less_than_ten_seconds_is_to_be_repeated(
    origin: SignalOrigin, steps: int, again: bool
) -> None:
    finding = straggler_of(slow(1, 0.02, origin=origin, steps=steps))
    assert finding is not None
    assert ("; record again first: 9.90 s cannot tell" in finding.advice) is again
    assert finding.confidence is (Confidence.MEDIUM if again else Confidence.HIGH)


@pytest.mark.parametrize("origin", [SignalOrigin.JOB, SignalOrigin.TRACE])
def test_only_a_launch_has_passes_to_confirm_it(origin: SignalOrigin) -> None:
    assert straggler_of(steady(110.0, unsynchronized=None, origin=origin)) is not None
    assert straggler_of(steady(110.0, unsynchronized=None)) is None


@pytest.mark.parametrize(
    ("host", "on_device", "line"),
    [
        (5.1, True, "5.10 s of it are spent with the device waiting for the host"),
        (5.1, False, "5.10 s of it are spent between operators, not in them"),
        (5.0, True, None),
    ],
)
def test_host_code_is_evidence_where_it_is_more_than_half(
    host: float, on_device: bool, line: str | None
) -> None:
    """Of the 10 s that the rank takes longer; the others' hosts take none."""
    waits = np.array([0.0, host, 0.0, 0.0])
    finding = straggler_of(steady(110.0, host_bound=waits, on_device=on_device))
    assert finding is not None
    about_hosts = [text for text in finding.evidence if " of it are spent " in text]
    assert about_hosts == ([] if line is None else [line])


def test_evidence_of_a_straggler_has_the_interval_of_its_excess() -> None:
    finding = straggler_of(steady(110.0, origin=SignalOrigin.TRACE))
    assert finding is not None
    assert finding.evidence[0] == (
        "own time (all but waits, transfers and loading) 1 min 50 s a step against 1 min 40 s "
        "(median of the others): 10.0 s (10.0 to 10.0 s) more, over 120 steps"
    )
    assert finding.summary == (
        "rank 1 arrives 10.0 s late at the collective (100 % of waits); its own time (all but "
        "waits, transfers and loading) is 10 % longer than the others'"
    )


def by_lengths(**changes: Any) -> Signals:
    """A watched job on devices: rank 1 is late by 10 s, in which the others wait for it."""
    return steady(110.0, origin=SignalOrigin.LENGTHS, unsynchronized=None, **changes)


@pytest.mark.parametrize(
    ("changes", "about", "how"),
    [
        ({}, "", "what of it compute hides is not known"),
        ({"estimated_share": 0.09}, "", "what of it compute hides is not known"),
        (
            {"estimated_share": 0.1},
            "about ",
            "9.00 s of it are seen, the rest is estimated: later collectives hide it",
        ),
    ],
)
def test_waits_by_lengths_say_what_of_them_is_an_estimate(
    changes: dict[str, Any], about: str, how: str
) -> None:
    finding = straggler_of(by_lengths(**changes))
    assert finding is not None
    assert finding.summary == (
        f"the others wait {about}10.0 s a step for rank 1 in collectives (100 % of waits)"
    )
    assert finding.evidence[0] == (
        "waits, by the lengths of collectives: 0 µs a step on rank 1, 50.0 s on the others "
        f"(median): 10.0 s (10.0 to 10.0 s) more, over 120 steps; {how}"
    )


@pytest.mark.parametrize(("seconds", "is_named"), [(4.9, True), (5.0, False)])
def test_by_lengths_late_data_of_half_the_cost_are_why_a_rank_is_late(
    seconds: float, is_named: bool
) -> None:
    """It is late for whatever reason there."""
    data = np.zeros((4, BATCHES))
    data[1] = seconds
    findings = found(by_lengths(data_wait=data))
    assert findings[FindingKind.INPUT_PIPELINE].rank == 1
    assert (FindingKind.STRAGGLER in findings) is is_named


def test_a_rank_that_is_no_slower_without_synchronization_is_told_with_both_times() -> None:
    alone = tuple(np.full(BATCHES, 1.0) for _ in range(4))
    assert why_not(steady(110.0, unsynchronized=alone), FindingKind.STRAGGLER) == (
        "rank 1 is 10.0 s a step slower in training, but not without gradient synchronization "
        "(1.00 s against 1.00 s)"
    )


@pytest.mark.parametrize(("seconds", "is_named"), [(103.0, True), (102.9, False)])
def test_a_straggler_is_slower_than_the_median_and_not_than_the_fastest(
    seconds: float, is_named: bool
) -> None:
    signals = steady(seconds)
    assert signals.compute is not None
    compute = signals.compute.copy()
    compute[3] = 90.0
    assert (straggler_of(replace(signals, compute=compute)) is not None) is is_named


def test_blame_for_tokens_beyond_an_even_share_is_the_experts() -> None:
    """Of 12 s that ranks wait, 7.2 are for the first, whose experts have 1.5 tokens of a second
    more than an even share: three others wait for these. That a rank has fewer adds nothing."""
    tokens = np.array([[3.0], [1.0], [1.0], [1.0]])
    experts = ExpertLoad(tokens, tokens, np.zeros(4), ((),) * 4)
    wait, blame = np.full((4, 1), 3.0), np.array([0.6, 0.3, 0.1, 0.0])
    left = _blame_beside_experts(quiet(experts=experts), blame, wait)
    assert left == pytest.approx(np.array([2.7, 3.6, 1.2, 0.0]) / 7.5)
    alone = _blame_beside_experts(quiet(experts=experts), np.array([1.0, 0.0, 0.0, 0.0]), wait / 4)
    assert alone.tolist() == [0.0] * 4


@pytest.mark.parametrize(("share", "is_named"), [(0.05, True), (0.051, False)])
def test_other_processes_that_take_half_of_what_a_rank_loses_do_not_excuse_it(
    share: float, is_named: bool
) -> None:
    """5 of 100 s, where the rank takes 10 s longer."""
    others = np.array([0.0, share, 0.0, 0.0])
    signals = steady(110.0, step_seconds=100.0, other_processes=others)
    assert (straggler_of(signals) is not None) is is_named
