"""A process that reads recordings for another: each line of its input names a file, each line that
it prints says what became of it.

::

    python -m torchscale.traces.rank_reader DIRECTORY

Input: ``{"number": 3, "path": "rank3.json"}``. Output: ``{"number": 3, "ranks": [[3000, []]]}``,
for each rank the number of its files in DIRECTORY (``traces/stored.py``) and notes on it; or the
``error`` and its ``hint``. It ends with its input.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from torchscale.errors import TorchscaleError
from torchscale.traces.files import read_kineto_file
from torchscale.traces.kineto.reader import UNNAMED
from torchscale.traces.soundness import sound
from torchscale.traces.stored import store_rank
from torchscale.util.gc import gc_paused

RANKS_OF_A_FILE = 1 << 13
"""More than the members that an archive may have: a rank's number is its file's times this, plus
its place in the file."""


def read_for_another(path: Path, number: int, directory: Path) -> dict[str, object]:
    """Read a file and write its ranks to the directory; returns what is to be said of it."""
    ranks: list[tuple[int, tuple[str, ...]]] = []
    try:
        for place, rank in enumerate(read_kineto_file(path)):
            trace, notes = sound(rank, UNNAMED)
            ranks.append((number * RANKS_OF_A_FILE + place, notes))
            store_rank(trace, directory, ranks[-1][0])
    except TorchscaleError as error:
        return {"number": number, "error": error.message, "hint": error.hint}
    return {"number": number, "ranks": ranks}


def _main(directory: str) -> None:
    # Ctrl-C reaches all processes of a terminal; the one that started this one ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with gc_paused():
        for line in sys.stdin:
            job = json.loads(line)
            told = read_for_another(Path(job["path"]), job["number"], Path(directory))
            sys.stdout.write(json.dumps(told) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    _main(sys.argv[1])
