"""Forks wait until the last of them is made: a store that serves the first ones meanwhile may hold a
lock of the C library, which the next fork would then hold for ever."""

from __future__ import annotations

import os
import select

from torchscale.worker.launcher.fork_gate import ForkGate


def _is_readable(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])


def test_no_fork_goes_on_before_its_parent_opens_the_gate() -> None:
    gate = ForkGate()
    passed, mine = os.pipe()
    forks = []
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            gate.wait()
            os.write(mine, b"x")
            os._exit(0)
        forks.append(pid)
    assert not _is_readable(passed, 0.2)

    gate.open()
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in forks]
    assert codes == [0, 0, 0]
    assert os.read(passed, 10) == b"xxx"
    os.close(passed)
    os.close(mine)
