"""Clocks measure the time that passes, whatever a user's model does to the functions of
:mod:`time`."""

from __future__ import annotations

import ast
import time
from pathlib import Path

import pytest

import torchscale.worker
from torchscale.worker.measure.clock import HostClock

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
