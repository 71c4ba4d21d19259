"""Which attempt of a job its ranks are, where no launcher counts: workers that Ray Train starts anew
meet at another port, and the ranks of one start all at the same."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from .ends import FIRST_ATTEMPT

FOLDER = "starts"
_MOST = 1_000_000


def number_start(root: Path) -> None:
    """Set the number of this start for the process and what it starts. The first rank of a start
    that comes here takes the next one; its file, ``NUMBER.KEY``, tells the others. Without an
    address to meet at nothing is set.

    Raises:
        OSError: the folder of the job cannot be written.
    """
    meeting = [os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT")]
    if not all(meeting):
        return
    key = hashlib.sha256(":".join(meeting).encode()).hexdigest()[:16]
    folder = root / FOLDER
    folder.mkdir(exist_ok=True)
    taken = {
        name.partition(".")[2]: int(name.partition(".")[0])
        for name in os.listdir(folder)  # noqa: PTH208 - names alone
        if name.partition(".")[0].isdigit()
    }
    number = taken.get(key)
    if number is None:
        number = min(max(taken.values(), default=-1) + 1, _MOST)
        (folder / f"{number}.{key}").touch()  # other ranks of this start make the same file
    os.environ[FIRST_ATTEMPT] = str(number)
