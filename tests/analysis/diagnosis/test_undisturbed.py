"""Compute that no communication disturbs: what confirms a straggler, at its limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.analysis.diagnosis.test_diagnose import BATCHES, quiet
from torchscale.analysis.diagnosis.signals import SignalOrigin, Signals, SignalSeries, Windows
from torchscale.analysis.diagnosis.undisturbed import (
    BLOCKS,
    Undisturbed,
    _least_shift,
    quiet_evidence,
    quiet_phases,
    run_blocks,
    unsynchronized_evidence,
    unsynchronized_passes,
)

SLOWER, AS_FAST = Undisturbed(0.012, 0.01, True), Undisturbed(0.012, 0.01, False)


def phases(of_rank: SignalSeries, others: float = 100.0) -> Signals:
    """Windows whose phases without a transfer take this on rank 1, and so long on the others."""
    count = len(of_rank)
    quiet_parts = np.full((4, count), others)
    quiet_parts[1] = of_rank
    windows = Windows(np.full(count, 3.0), np.full(count, 150.0), quiet_parts, quiet_parts)
    return quiet(windows=windows)


@pytest.mark.parametrize(
    ("seconds", "relative", "slower"),
    [
        (110.0, 0.05, True),
        (109.5, 0.05, False),
        (120.0, 0.4, True),
        (119.5, 0.4, False),
    ],
)
def test_phases_confirm_a_straggler_from_a_tenth_and_half_of_its_share_on(
    seconds: float, relative: float, slower: bool
) -> None:
    compared = quiet_phases(phases(np.full(BATCHES, seconds)), 1, relative)
    assert compared == Undisturbed(seconds, 100.0, slower)


def test_phases_that_were_long_once_confirm_nothing() -> None:
    once = np.where(np.arange(BATCHES) == 0, 400.0, 100.0)
    compared = quiet_phases(phases(once), 1, 0.1)
    assert compared == Undisturbed(125.0, 100.0, False)


def test_a_single_window_confirms_nothing() -> None:
    compared = quiet_phases(phases(np.array([150.0])), 1, 0.1)
    assert compared is not None
    assert not compared.slower


def test_phases_that_were_not_measured_are_not_compared() -> None:
    signals = phases(np.full(BATCHES, 150.0))
    assert signals.windows is not None
    assert quiet_phases(replace(signals, windows=None), 1, 0.1) is None
    unknown = replace(signals, windows=replace(signals.windows, quiet=None))
    assert quiet_phases(unknown, 1, 0.1) is None


def test_passes_of_three_samples_are_compared_and_of_two_are_not() -> None:
    passes = (np.full(3, 100.0), np.full(3, 110.0), np.full(3, 98.0))
    compared = unsynchronized_passes(quiet(3, unsynchronized=passes), 1)
    assert compared == Undisturbed(110.0, 99.0, True)
    short = (passes[0][:2], *passes[1:])
    assert unsynchronized_passes(quiet(3, unsynchronized=short), 1) is None
    assert unsynchronized_passes(quiet(3, unsynchronized=None), 1) is None


@pytest.mark.parametrize(("least", "slower"), [(100.0, False), (100.1, True)])
def test_passes_confirm_a_straggler_where_the_interval_of_the_shift_leaves_out_nothing(
    least: float, slower: bool
) -> None:
    """Of three passes each, the interval begins at the least of all differences."""
    mine, theirs = np.array([least, 110.0, 111.0]), np.full(3, 100.0)
    compared = unsynchronized_passes(quiet(2, unsynchronized=(theirs, mine)), 1)
    assert compared == Undisturbed(110.0, 100.0, slower)


def test_of_three_samples_each_the_least_shift_is_the_least_difference() -> None:
    assert _least_shift(np.array([9.0, 4.0, 5.0]), np.array([1.0, 2.0, 3.0])) == 1.0


def test_blocks_are_means_over_the_steps_of_their_windows() -> None:
    values = np.arange(48.0).reshape(2, 24)
    steps = np.tile([1.0, 3.0], 12)
    blocks = run_blocks(values, steps)
    assert blocks.shape == (2, BLOCKS)
    assert blocks[:, 0].tolist() == [0.75, 24.75]
    assert blocks[:, -1].tolist() == [22.75, 46.75]
    assert run_blocks(values[:, :5], steps[:5]).tolist() == values[:, :5].tolist()


@pytest.mark.parametrize(
    ("origin", "compared", "lines"),
    [
        (SignalOrigin.LAUNCH, SLOWER, 1),
        (SignalOrigin.JOB, SLOWER, 1),
        (SignalOrigin.TRACE, SLOWER, 0),
        (SignalOrigin.LAUNCH, AS_FAST, 0),
        (SignalOrigin.LAUNCH, None, 0),
    ],
)
def test_phases_are_evidence_where_the_rank_is_slower_in_them(
    origin: SignalOrigin, compared: Undisturbed | None, lines: int
) -> None:
    """A recording tells the same by its passes."""
    evidence = quiet_evidence(quiet(origin=origin), compared)
    assert len(evidence) == lines
    assert all(line.endswith(": 12.0 ms against 10.0 ms a step") for line in evidence)


@pytest.mark.parametrize(
    ("origin", "when"),
    [
        (SignalOrigin.LAUNCH, "without gradient synchronization"),
        (SignalOrigin.TRACE, "while no collective transfers"),
    ],
)
def test_passes_are_evidence_with_how_much_longer_they_take(
    origin: SignalOrigin, when: str
) -> None:
    signals = quiet(origin=origin)
    assert unsynchronized_evidence(signals, SLOWER) == [
        f"{when} 12.0 ms against 10.0 ms a step (+20.0 %)"
    ]
    assert unsynchronized_evidence(signals, AS_FAST) == []
    assert unsynchronized_evidence(signals, None) == []
