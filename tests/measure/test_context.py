"""Stop signals, device labels, exit codes."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from tests.factories import experiment, machine
from torchscale.errors import ExitCode, StoreError
from torchscale.launch.control import StopRequest
from torchscale.measure.context import (
    PlannedRun,
    measuring,
    stop_on_signals,
    sweep_exit_code,
    timestamped,
)
from torchscale.plan.expand import make_plan
from torchscale.schema.state import State


def test_the_first_signal_asks_to_stop_and_the_second_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stop_on_signals() as stop:
        assert not stop.asked
        os.kill(os.getpid(), signal.SIGINT)
        assert (stop.asked, stop.at_once) == (True, False)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.at_once
    assert signal.getsignal(signal.SIGINT) is before


def test_outside_the_main_thread_no_handler_is_installed() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def body() -> None:
        with stop_on_signals() as stop:
            seen.extend([isinstance(stop, StopRequest), signal.getsignal(signal.SIGINT) is before])

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [True, True]


def test_a_folder_is_measured_into_by_one_at_a_time(tmp_path: Path) -> None:
    with (
        measuring(tmp_path),
        pytest.raises(StoreError, match="another torchscale is writing"),
        measuring(tmp_path),
    ):
        pass


@pytest.mark.parametrize(
    ("gpus", "label"), [(0, "CPU (2 cores, 1 thread per rank, gloo)"), (2, "2 × NVIDIA H100")]
)
def test_device_label(gpus: int, label: str) -> None:
    found = machine(gpus)
    config = experiment(device="cuda" if gpus else "cpu")
    assert PlannedRun(config, found, make_plan(config, found)).device_label == label


@pytest.mark.parametrize(
    ("states", "interrupted", "code"),
    [
        ([State.OK, State.SKIPPED], False, ExitCode.OK),
        ([State.OK, State.OOM], False, ExitCode.FAILED),
        ([State.OK, State.INCOMPLETE], True, ExitCode.INTERRUPTED),
        ([], False, ExitCode.OK),
    ],
)
def test_exit_codes(states: list[State], interrupted: bool, code: ExitCode) -> None:
    assert sweep_exit_code(iter(states), interrupted=interrupted) is code


def test_a_folder_named_by_time() -> None:
    assert timestamped("collectives").parent == Path("results")
    assert timestamped("collectives").name.startswith("collectives-20")


def test_a_closed_terminal_asks_to_stop() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    try:
        with stop_on_signals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert (stop.asked, stop.at_once) == (True, False)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_under_nohup_a_closed_terminal_stops_nothing() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.asked
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
