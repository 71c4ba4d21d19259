"""Signals reach a program once, whoever they were sent to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from torchscale.errors import MachineError, ProgramExit
from torchscale.features.watch.job import relay
from torchscale.features.watch.job.relay import Relay

pytestmark = pytest.mark.slow

_PROGRAM = """
import os, signal, sys
seen = []
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGALRM, signal.SIGRTMIN):
    signal.signal(number, lambda number, _: seen.append(number))
signal.signal(signal.SIGUSR2, lambda *_: os.write(1, f"{seen}\\n".encode()))
print("ready", flush=True)
while True:
    signal.pause()
"""
_COMMAND = """
import os, sys
from torchscale.features.watch.job.relay import Relay
relay = Relay()
with relay.opened():
    relay.start([sys.executable, "-c", sys.argv[1]], os.environ).wait()
"""
_SENT = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGALRM, signal.SIGRTMIN)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in relay_signals()}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def relay_signals() -> set[int]:
    return {int(one) for one in signal.valid_signals()} - {signal.SIGKILL, signal.SIGSTOP}


@contextmanager
def _command() -> Iterator[subprocess.Popen[str]]:
    """The command once its program is ready; both end with the test, however it ends."""
    with subprocess.Popen(
        [sys.executable, "-c", _COMMAND, _PROGRAM],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=Path(__file__).parents[4],
    ) as command:
        try:
            assert command.stdout is not None
            assert command.stdout.readline() == "ready\n"
            yield command
        finally:
            os.killpg(command.pid, signal.SIGKILL)


def _shown(command: subprocess.Popen[str]) -> list[int]:
    """The signals that the program has got."""
    assert command.stdout is not None
    os.kill(command.pid, signal.SIGUSR2)
    return list(json.loads(command.stdout.readline()))


@pytest.mark.parametrize("to_group", [False, True], ids=["alone", "group"])
def test_each_signal_arrives_once(to_group: bool) -> None:
    with _command() as command:
        expected: list[int] = []
        for number in _SENT:
            (os.killpg if to_group else os.kill)(command.pid, number)
            expected.append(int(number))
            shown: list[int] = []
            while len(shown) < len(expected):
                shown = _shown(command)
            assert shown == expected


@pytest.mark.parametrize("to_group", [False, True], ids=["alone", "group"])
def test_signals_that_come_while_one_is_passed_on_arrive_once(to_group: bool) -> None:
    with _command() as command:
        for past in range(1, 6):
            for number in _SENT:
                (os.killpg if to_group else os.kill)(command.pid, number)
            shown: list[int] = []
            while len(shown) < past * len(_SENT):
                shown = _shown(command)
            assert sorted(shown) == sorted(past * [int(number) for number in _SENT])


def test_a_program_that_goes_on_at_once_does_not_leave_this_command_stopped() -> None:
    passing = Relay()
    with passing.opened():
        program = passing.start(["sleep", "60"], os.environ)
        program.send_signal(signal.SIGSTOP)
        assert passing._has_stopped()
        passing._arrived.append(signal.SIGCONT)
        assert not passing._has_stopped()
        program.kill()
        program.wait(30)


def test_a_signal_before_the_program_is_there_reaches_it() -> None:
    passing = Relay()
    with passing.opened():
        os.kill(os.getpid(), signal.SIGUSR1)
        program = passing.start(["sleep", "60"], os.environ)
        assert program.wait(30) == -signal.SIGUSR1


def test_a_signal_after_the_end_ends_the_wait_and_later_ones_do_nothing() -> None:
    passing = Relay()
    with passing.opened():
        passing.start(["true"], os.environ).wait(30)
        passing.end(7)
        with pytest.raises(ProgramExit) as caught:
            os.kill(os.getpid(), signal.SIGTERM)
        assert caught.value.code == 7
        os.kill(os.getpid(), signal.SIGWINCH)
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGUSR1])
def test_what_is_ignored_stays_so_here_and_in_the_program(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_IGN)
    passing = Relay()
    with passing.opened():
        assert signal.getsignal(number) is signal.SIG_IGN
        code = f"import signal; exit(signal.getsignal({int(number)}) is signal.SIG_IGN)"
        assert passing.start([sys.executable, "-c", code], os.environ).wait(30) == 1


def test_what_is_caught_here_is_at_its_default_in_the_program() -> None:
    passing = Relay()
    code = (
        "import signal; exit(all(signal.getsignal(n) in (signal.SIG_DFL, signal.default_int_handler)"
        " for n in (1, 2, 3, 10, 12, 14, 15)))"
    )
    with passing.opened():
        assert passing.start([sys.executable, "-c", code], os.environ).wait(30) == 1


def test_without_a_witness_ctrl_c_is_taken_for_the_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "script_command", lambda *_: ["/no/such/python"])
    passing = Relay()
    with passing.opened():
        program = passing.start(["sleep", "60"], os.environ)
        os.kill(os.getpid(), signal.SIGINT)
        assert program.poll() is None
        os.kill(os.getpid(), signal.SIGTERM)
        assert program.wait(30) == -signal.SIGTERM


def test_a_witness_that_was_killed_holds_up_nobody() -> None:
    passing = Relay()
    with passing.opened():
        program = passing.start(["sleep", "60"], os.environ)
        assert passing._witness is not None
        passing._witness.kill()
        passing._witness.wait(30)
        os.kill(os.getpid(), signal.SIGTERM)
        assert program.wait(30) == -signal.SIGTERM


def test_a_witness_that_is_slow_to_end_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    passing = Relay()
    passing.start(["true"], os.environ).wait(30)
    witness = passing._witness
    assert witness is not None
    with monkeypatch.context() as patch:
        patch.setattr(relay, "_ANSWER_SECONDS", 0.0)
        patch.setattr(witness, "kill", lambda: None)
        passing.close()
    assert witness.wait(30) == 0  # it ends with its input


def test_a_program_that_cannot_be_started_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "program").write_text("no program")
    (tmp_path / "program").chmod(0o755)
    passing = Relay()
    with passing.opened(), pytest.raises(MachineError, match="cannot start"):
        passing.start([str(tmp_path / "program")], os.environ)


def test_a_program_that_ends_soon_after_a_signal_was_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ended(number: int | None, seconds: float) -> bool:
        """Whether a program that ends so long after this signal was stopped by it."""
        now = [100.0]
        monkeypatch.setattr("torchscale.features.watch.job.relay.time.monotonic", lambda: now[0])
        one = Relay()
        if number is not None:
            one._take(number, None)
        now[0] += seconds
        return one.end(1)

    assert ended(signal.SIGTERM, 31.0)
    assert ended(signal.SIGINT, 1.0)
    assert not ended(None, 1.0)
    assert not ended(signal.SIGUSR1, 1.0)
    assert not ended(signal.SIGTERM, 3600.0), "it went on"
