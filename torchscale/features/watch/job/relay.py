"""Passes signals on to a watched program, which gets those that it would get without this command
in between, and each once."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

import psutil

from torchscale.errors import MachineError, ProgramExit
from torchscale.util.interpreter import script_command

_OTHERS = {
    *(signal.SIGKILL, signal.SIGSTOP),  # nobody sees them
    signal.SIGCHLD,  # of a process that this one started
    *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL),  # a fault of this process
    *(signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS, signal.SIGPIPE, signal.SIGXFSZ),
}
_STOPS = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
_END_NOTHING = {signal.SIGCONT, signal.SIGURG, signal.SIGWINCH}
_WITNESS = Path(__file__).with_name("group_witness.py")
_SENDING_SECONDS = 0.05
"""In which who sends a signal to each process of a job by itself, as Slurm and systemd do, comes from
one to the next."""
_STOPPING_SECONDS = 0.5
"""In which a program stops that does not handle the signal; it takes microseconds."""
_ANSWER_SECONDS = 1.0
"""For the witness, on a machine that is busy; it takes microseconds."""

_ENDING_SECONDS = 60.0
"""In which a program ends that was asked to: torchrun gives its ranks 30 s."""
_ANSWER_BYTES = 4096
"""More than all signals."""
_LAST_STREAM = 2
"""Descriptor of standard error."""


class Relay:
    """Starts a program, and passes signals on to it.

    Signals that are ignored stay so, here and in the program. What was sent to the process group, as
    Ctrl-C, has reached the program already.
    """

    def __init__(self) -> None:
        self._program: subprocess.Popen[bytes] | None = None
        self._witness: subprocess.Popen[bytes] | None = None
        self._arrived: list[int] = []
        self._is_taking = False
        self._waiting: list[int] = []
        self._of_group: list[int] = []
        self._exit_code: int | None = None
        self._stopped_at: float | None = None
        self._is_closed = False

    @contextlib.contextmanager
    def opened(self) -> Iterator[Relay]:
        """While open, signals are the program's; once it has ended, one ends this command with its
        exit code. Afterwards they do nothing.

        Raises:
            ProgramExit: such a signal came.
        """
        taken = [
            number
            for number in sorted(signal.valid_signals() - _OTHERS)
            if signal.getsignal(number) is not signal.SIG_IGN
        ]
        for number in taken:
            signal.signal(number, self._take)
        try:
            yield self
        finally:
            self.close()

    def start(
        self, command: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start the program, with the input, output and signals of this process.

        Raises:
            MachineError: it cannot be started.
        """
        self._start_witness(command)
        try:
            program = subprocess.Popen(list(command), env=environment, pass_fds=_inherited())
        except OSError as error:
            reason = error.strerror or error
            raise MachineError(f"cannot start {command[0]}: {reason}") from error
        self._program = program
        while self._waiting:  # they came before it could take them
            program.send_signal(self._waiting.pop(0))
        return program

    def end(self, exit_code: int) -> bool:
        """The program has ended: a signal from now on is a wish not to wait for what is left.
        Whether it ended because the user stopped it."""
        self._exit_code = exit_code
        stopped = self._stopped_at
        return stopped is not None and time.monotonic() - stopped < _ENDING_SECONDS

    def _take(self, number: int, frame: FrameType | None) -> None:
        """Take one signal after the other: the next one may come while this one is passed on, and
        its handler then runs within this one."""
        del frame
        self._arrived.append(number)
        while self._arrived and not self._is_taking:
            self._is_taking = True
            try:
                if self._arrived:
                    self._handle(self._arrived.pop(0))
            finally:
                self._is_taking = False

    def _handle(self, number: int) -> None:
        if self._is_closed:
            return
        if self._exit_code is None:
            if number in (signal.SIGINT, signal.SIGTERM):
                self._stopped_at = time.monotonic()
            self._pass_on(number)
        elif number not in _STOPS | _END_NOTHING:
            raise ProgramExit(self._exit_code)
        if number in _STOPS and self._has_stopped():
            os.kill(os.getpid(), signal.SIGSTOP)  # a shell waits for this process

    def _pass_on(self, number: int) -> None:
        if self._program is None:
            self._waiting.append(number)
        elif not self._reached_the_group(number):
            self._program.send_signal(number)

    def _reached_the_group(self, number: int) -> bool:
        """Whether a signal was sent to other processes of the group as well. Without a witness only
        Ctrl-C and Ctrl-\\ are taken for such."""
        if self._witness is None:
            return number in (signal.SIGINT, signal.SIGQUIT)
        self._ask(self._witness)
        if number not in self._of_group:
            time.sleep(_SENDING_SECONDS)
            self._ask(self._witness)
        if number not in self._of_group:
            return False
        self._of_group.remove(number)
        return True

    def _has_stopped(self) -> bool:
        """Whether the program has stopped, as it does unless it handles the signal, and nobody has
        had it go on since."""
        end = time.monotonic() + _STOPPING_SECONDS
        while self._program is not None and time.monotonic() < end:
            with contextlib.suppress(psutil.Error):
                if psutil.Process(self._program.pid).status() == psutil.STATUS_STOPPED:
                    return signal.SIGCONT not in self._arrived
            time.sleep(_STOPPING_SECONDS / 10)
        return False

    def _start_witness(self, command: Sequence[str]) -> None:
        """Have the command line of the program in that of the witness: ``pkill -f train.py`` reaches
        this process, the witness and the program."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._witness = subprocess.Popen(
                script_command(_WITNESS, *command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
            )
        except OSError:
            self._witness = None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _ask(self, witness: subprocess.Popen[bytes]) -> None:
        """Note which signals the witness got since it was last asked; none where it does not
        answer."""
        assert witness.stdin is not None  # noqa: S101 - both are pipes
        assert witness.stdout is not None  # noqa: S101
        with contextlib.suppress(OSError, ValueError):
            witness.stdin.write(b"?")
            if select.select([witness.stdout], [], [], _ANSWER_SECONDS)[0]:
                self._of_group += filter(None, os.read(witness.stdout.fileno(), _ANSWER_BYTES))

    def close(self) -> None:
        """Nothing is passed on from now on."""
        self._is_closed = True
        witness = self._witness
        if witness is None:
            return
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            witness.kill()
            witness.wait(_ANSWER_SECONDS)
        for pipe in (witness.stdin, witness.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _inherited() -> tuple[int, ...]:
    """Descriptors that this process was started with, beside the standard streams: a shell's ``<(…)``,
    a socket of systemd's. What Python opens is not inheritable. None where the kernel lists none."""
    found = []
    for name in _names_in("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the listing itself
            if int(name) > _LAST_STREAM and os.get_inheritable(int(name)):
                found.append(int(name))
    return tuple(found)


def _names_in(directory: str) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208 - names are numbers here
    except OSError:
        return []
