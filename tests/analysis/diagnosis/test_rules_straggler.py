"""A slow rank among ranks that scatter: steps that all wait for, drawn, with the truth known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.analysis.diagnosis.test_diagnose import BATCHES, found, quiet, slow
from torchscale.analysis.diagnosis.signals import SignalOrigin, Signals, Windows
from torchscale.analysis.diagnosis.undisturbed import _least_shift
from torchscale.schema.profiles.finding import FindingKind

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
