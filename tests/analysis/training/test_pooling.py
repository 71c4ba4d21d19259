"""Launches of a cell as one: each counts once, and findings have the figures of the
decomposition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.analysis.training.test_signals import record
from tests.factories import summarize_cell, training_result
from torchscale.analysis.diagnosis.signals import DeviceUse, Pauses, SignalOrigin, Signals
from torchscale.analysis.training.decomposition import step_parts
from torchscale.analysis.training.pooling import pool_signals
from torchscale.analysis.training.signals import launch_signals
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.profiles.finding import FindingKind
from torchscale.schema.run.content import CellRun
from torchscale.schema.run.experiment_file import PlannedCell


def signals_of(launch: LaunchRecord) -> Signals:
    signals = launch_signals(training_result(launch))
    assert signals is not None
    return signals


def test_one_launch_stays_as_it_is() -> None:
    _, launch = record([0.0, 0.01])
    signals = signals_of(launch)
    assert pool_signals([signals], 1.0) is signals


def test_shares_of_the_step_are_means_of_the_launches_shares() -> None:
    """Steps of 55 and 65 ms, of which 4 ms are transfer in both."""
    first, second = (signals_of(record(late)[1]) for late in ([0.0, 0.0], [0.0, 0.01]))
    pooled = pool_signals([first, second], 0.06)
    parts = step_parts(pooled)
    assert parts is not None
    assert pooled.steps == first.steps + second.steps
    assert parts.step == 0.06
    assert parts.transfer == pytest.approx(0.06 * (0.004 / 0.055 + 0.004 / 0.065) / 2)
    assert parts.straggler_wait == pytest.approx(0.06 * (0.0 + 0.005 / 0.065) / 2)
    assert (
        parts.compute + parts.data_wait + parts.straggler_wait + parts.transfer + parts.rest
        == pytest.approx(0.06)
    )
    assert abs(parts.rest) < 1e-6


def test_a_launch_counts_once_however_many_steps_it_has() -> None:
    def launch(samples: int, transfer: float) -> Signals:
        return Signals(
            origin=signals_of(record([0.0, 0.0])[1]).origin,
            ranks=(0, 1),
            step_seconds=0.1,
            steps=10 * samples,
            weights=np.full(samples, 10.0),
            transfer=np.full(samples, transfer),
        )

    pooled = pool_signals([launch(5, 0.01), launch(50, 0.03)], 0.1)
    assert pooled.transfer is not None and pooled.transfer.shape == (55,)
    assert float(pooled.mean(pooled.transfer)) == pytest.approx(0.02)


def test_what_one_launch_lacks_is_not_measured() -> None:
    signals = signals_of(record([0.0, 0.01])[1])
    without = Signals(signals.origin, signals.ranks, signals.step_seconds, signals.steps)
    pooled = pool_signals([signals, without], 0.065)
    assert (pooled.compute, pooled.wait, pooled.blame, pooled.unsynchronized, pooled.probe) == (
        None,
    ) * 5
    assert (pooled.exposed_p50, pooled.pauses, pooled.weights) == (None,) * 3


def test_counts_add_up_and_reasons_are_those_of_any_launch() -> None:
    signals = signals_of(record([0.0, 0.0])[1])
    first = Signals(
        signals.origin, (0, 1), 0.1, 100, pauses=Pauses((3, 0), 0.002, 0.001), throttled=(("heat",), ()),
        allocation_retries=2,
    )  # fmt: skip
    second = Signals(
        signals.origin,
        (0, 1),
        0.2,
        100,
        pauses=Pauses((1, 2), 0.004, 0.002),
        throttled=(("power", "heat"), ()),
    )
    pooled = pool_signals([first, second], 0.1)
    assert pooled.pauses is not None and pooled.pauses.count == (4, 2)
    assert pooled.pauses.seconds_per_step == pytest.approx(0.002)
    assert pooled.pauses.collection_seconds_per_step == pytest.approx(0.001)
    assert pooled.throttled == (("heat", "power"), ())
    assert pooled.allocation_retries == 2


def test_readings_of_devices_add_up() -> None:
    first = Signals(SignalOrigin.LAUNCH, (0, 1), 0.1, 100, device_use=DeviceUse((0.2, 0.4), 10))
    second = replace(first, device_use=DeviceUse((0.4, 0.8), 30))
    use = pool_signals([first, second], 0.1).device_use
    assert use is not None
    assert use.busy == pytest.approx((0.3, 0.6))
    assert use.readings == 40
    assert pool_signals([first, replace(first, device_use=None)], 0.1).device_use is None


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_finding_costs_what_the_decomposition_says(count: int) -> None:
    """Exposed communication of launches of different length has one value."""
    cell, fast = record([0.0, 0.0])
    _, slow = record([0.01, 0.01])
    launches = [
        (fast, slow, fast)[index].model_copy(update={"launch": index}) for index in range(count)
    ]
    summary = summarize_cell(CellRun(PlannedCell(cell=cell), tuple(launches)))
    assert (
        summary.diagnosis is not None
        and summary.figures is not None
        and summary.figures.parts is not None
    )
    exposed = [
        item
        for item in summary.diagnosis.findings
        if item.kind is FindingKind.EXPOSED_COMMUNICATION
    ]
    assert [item.cost_seconds for item in exposed] == [
        pytest.approx(summary.figures.parts.transfer, rel=1e-9)
    ]
    share = exposed[0].cost_percent / 100
    assert share == pytest.approx(
        summary.figures.parts.transfer / summary.figures.step_mean, rel=1e-9
    )
