"""A slow rank's advice follows from where it loses the time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.analysis.diagnosis.test_diagnose import found, slow
from torchscale.analysis.diagnosis.signals import SignalOrigin, Signals
from torchscale.analysis.diagnosis.slow_rank import SlowPart, SlowRank
from torchscale.schema.profiles.finding import FindingKind

EXTRA = 0.03
DEVICE_WORDS = ("clocks", "ECC", "temperature", "PCIe")


def recorded(*, host: float, busy: float, on_device: bool = False) -> Signals:
    """Rank 1 takes 30 ms longer: ``host`` of it between operators, ``busy`` in them."""
    gaps, work = np.full(4, 0.002), np.full(4, 0.06)
    gaps[1] += host
    work[1] += busy
    return slow(
        1, EXTRA, origin=SignalOrigin.TRACE, on_device=on_device, host_bound=gaps, busy=work
    )


@pytest.mark.parametrize("on_device", [True, False])
def test_a_rank_whose_host_is_slow_is_not_sent_to_its_clocks(on_device: bool) -> None:
    straggler = found(recorded(host=0.028, busy=0.001, on_device=on_device))[FindingKind.STRAGGLER]
    assert "30.0 ms a step, the others' 2.00 ms" in straggler.summary
    assert "compute takes" not in straggler.summary
    assert "Python code" in straggler.advice
    assert not any(word in straggler.advice for word in DEVICE_WORDS)


@pytest.mark.parametrize(("on_device", "what"), [(True, "kernels"), (False, "operators")])
def test_slower_work_is_told_by_the_times_of_the_table(on_device: bool, what: str) -> None:
    straggler = found(recorded(host=0.0, busy=EXTRA, on_device=on_device))[FindingKind.STRAGGLER]
    assert f"its {what} take 50 % longer than the others'" in straggler.summary
    assert "Python code" not in straggler.advice
    assert ("clocks" in straggler.advice) == on_device


def test_time_that_is_neither_is_the_ranks_own() -> None:
    straggler = found(recorded(host=0.01, busy=0.01))[FindingKind.STRAGGLER]
    assert "its own time (all but waits, transfers and loading) is 33 % longer" in straggler.summary


@pytest.mark.parametrize("on_device", [True, False])
def test_signals_of_a_launch_tell_phases_alone(on_device: bool) -> None:
    signals = replace(slow(1, EXTRA), on_device=on_device, host_bound=None)
    straggler = found(signals)[FindingKind.STRAGGLER]
    assert "its compute time is 33 % longer than the others'" in straggler.summary
    assert ("ECC" in straggler.advice) == on_device
    assert ("torchscale profile tells operators from Python code" in straggler.advice) != on_device


@pytest.mark.parametrize(
    ("host", "busy", "place"),
    [
        (0.016, 0.014, SlowPart.HOST),
        (0.014, 0.016, SlowPart.WORK),
        (0.0149, 0.0149, SlowPart.UNKNOWN),
    ],
)
def test_the_place_has_more_than_half_of_the_excess(
    host: float, busy: float, place: SlowPart
) -> None:
    assert SlowRank(1, (0, 2, 3), EXTRA).place(recorded(host=host, busy=busy)) is place


@pytest.mark.parametrize(
    ("host", "busy", "origin", "is_sent_on"),
    [
        (0.0, EXTRA, SignalOrigin.LAUNCH, False),
        (0.01, 0.01, SignalOrigin.LAUNCH, True),
        (0.01, 0.01, SignalOrigin.TRACE, False),
    ],
)
def test_a_profile_is_advised_where_it_would_tell_more(
    host: float, busy: float, origin: SignalOrigin, is_sent_on: bool
) -> None:
    """Not to somebody who has a recording, nor where the operators are known to be slow."""
    signals = replace(recorded(host=host, busy=busy), origin=origin)
    advice = SlowRank(1, (0, 2, 3), EXTRA).advice(signals, "the others'")
    assert ("torchscale profile" in advice) is is_sent_on
