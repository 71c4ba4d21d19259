"""A process that reads recordings for another: each line of its input names a file, each line that
it prints says what became of it.

::

    python -m torchscale.features.trace.readers.rank_reader DIRECTORY

Input: ``{"number": 3, "path": "rank3.json"}``. Output: ``{"number": 3, "ranks": [[3000, []]]}``,
for each rank the number of its files in DIRECTORY (``features/trace/readers/stored.py``) and notes on it; for an
export of nsys also ``notes`` on all; or the ``error`` and its ``hint``. It ends with its input.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from torchscale.errors import TorchscaleError
from torchscale.features.trace.readers.files import as_trace_errors, is_export, read_kineto_file
from torchscale.features.trace.readers.kineto.reader import UNNAMED
from torchscale.features.trace.readers.nsys.reader import read_export
from torchscale.features.trace.readers.nsys.stored import store_process
from torchscale.features.trace.readers.soundness import sound
from torchscale.features.trace.readers.stored import store_rank
from torchscale.util.gc import gc_paused

RANKS_OF_A_FILE = 1 << 13
"""More than the members that an archive may have: a rank's number is its file's times this, plus
its place in the file."""


def read_for_another(path: Path, number: int, directory: Path) -> dict[str, object]:
    """Read a file and write its ranks to the directory; returns what is to be said of it."""
    try:
        if is_export(path):
            return {"number": number, **_read_export(path, number * RANKS_OF_A_FILE, directory)}
        return {"number": number, **_read_traces(path, number * RANKS_OF_A_FILE, directory)}
    except TorchscaleError as error:
        return {"number": number, "error": error.message, "hint": error.hint}


def _read_traces(path: Path, first: int, directory: Path) -> dict[str, object]:
    ranks = []
    for place, rank in enumerate(read_kineto_file(path)):
        trace, notes = sound(rank, UNNAMED)
        store_rank(trace, directory, first + place)
        ranks.append((first + place, notes))
    return {"ranks": ranks}


def _read_export(path: Path, first: int, directory: Path) -> dict[str, object]:
    with as_trace_errors(str(path)):
        processes, notes = read_export(path)
    for place, process in enumerate(processes):
        store_process(process, directory, first + place)
    return {"ranks": [(first + place, ()) for place in range(len(processes))], "notes": notes}


def _main(directory: str) -> None:
    # Ctrl-C reaches all processes of a terminal; the one that started this one ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with gc_paused():
        for line in sys.stdin:
            job = json.loads(line)
            told = read_for_another(Path(job["path"]), job["number"], Path(directory))
            try:
                sys.stdout.write(json.dumps(told) + "\n")
                sys.stdout.flush()
            except BrokenPipeError:  # the other process has ended
                os._exit(0)  # without another attempt to write


if __name__ == "__main__":
    _main(sys.argv[1])
