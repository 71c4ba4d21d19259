"""Faults in every Python process of a program, for tests that put this directory on ``PYTHONPATH``.

``TORCHSCALE_TEST_FULL``: files whose path this pattern matches cannot be made or opened for
writing, as on a full disk.
``TORCHSCALE_TEST_CLOCK``: at this time (seconds since the epoch) the wall clock goes back by two
hours.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import time

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_BACK_SECONDS = 7200.0


def _fill_disk(pattern: str) -> None:
    matches = re.compile(pattern).search

    def refuse(event: str, arguments: tuple[object, ...]) -> None:
        if event != "open":
            return
        path, _, flags = arguments
        if (
            isinstance(path, str | bytes)
            and isinstance(flags, int)
            and flags & _WRITES
            and matches(os.fsdecode(path))
        ):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fsdecode(path))

    sys.addaudithook(refuse)


def _set_back_clock(moment: float) -> None:
    true_time = time.time

    def wall_clock() -> float:
        now = true_time()
        return now if now < moment else now - _BACK_SECONDS

    time.time = wall_clock


if "TORCHSCALE_TEST_FULL" in os.environ:
    _fill_disk(os.environ["TORCHSCALE_TEST_FULL"])
if "TORCHSCALE_TEST_CLOCK" in os.environ:
    _set_back_clock(float(os.environ["TORCHSCALE_TEST_CLOCK"]))
