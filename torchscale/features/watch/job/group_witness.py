"""A process of its own beside a watched program, in the same process group: what was sent to the
group has been sent to it too. It runs by its path, with the standard library alone.

For each byte on its input it answers with the numbers of the signals that came since the last one, a
byte each, and a zero. It ends with its input. All signals are blocked before it is started, so that
none ends it.
"""

import os
import signal


def _arrived() -> bytes:
    numbers: set[int] = set()
    while (found := signal.sigtimedwait(signal.valid_signals(), 0)) is not None:
        numbers.add(found.si_signo)
    return bytes([*sorted(numbers), 0])


def _answer() -> None:
    while os.read(0, 1):
        os.write(1, _arrived())


if __name__ == "__main__":
    _answer()
