"""Clocks measure the time that passes, whatever a user's model does to the functions of
:mod:`time`."""

from __future__ import annotations

import ast
import time
from pathlib import Path

import numpy as np
import pytest

import torchscale.worker
from torchscale.worker.measure.clock import CudaEventClock, HostClock

NAMES = {"perf_counter", "monotonic", "time", "process_time", "sleep"}


def test_a_model_that_replaces_the_clock_changes_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times too slow, it would show ten times the speed."""
    true = time.perf_counter
    began = true()
    monkeypatch.setattr(time, "perf_counter", lambda: began + (true() - began) / 10)
    clock = HostClock()
    clock.mark()
    time.sleep(0.05)
    clock.mark()
    assert clock.read()[1] >= 0.05


def test_no_module_of_the_worker_looks_a_clock_up_when_it_is_called() -> None:
    found = [
        f"{path.name}:{node.lineno}"
        for path in Path(torchscale.worker.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and ast.unparse(node.value) == "time"
        and node.attr in NAMES
    ]
    assert found == []


class Event:
    """A device's event: the time to another one is a float of 32 bits, in milliseconds."""

    def __init__(self, milliseconds: float) -> None:
        self.milliseconds = milliseconds

    def elapsed_time(self, other: Event) -> float:
        return float(np.float32(other.milliseconds - self.milliseconds))

    def synchronize(self) -> None:
        """It has passed."""


def test_a_step_is_exact_to_a_microsecond_after_ten_minutes() -> None:
    """Times since the first mark alone would be exact to 60 µs there."""
    clock = CudaEventClock()
    step = 7.1234
    marks = [step * number for number in range(100_000)]
    clock._marks = [Event(mark) for mark in marks]  # type: ignore[misc]
    seconds = np.array(clock.read())
    assert seconds[0] == 0.0
    assert seconds[-1] == pytest.approx(marks[-1] / 1e3, rel=1e-7)
    assert np.abs(np.diff(seconds) * 1e3 - step).max() < 1e-3
