"""``python -m torchscale.worker TASK.json`` runs one launch in one rank, started by torchrun. With
``--group DIRECTORY`` the rank runs the launches that appear in that directory, one after the
other."""

from __future__ import annotations

import sys
from time import perf_counter

from torchscale.util.processes.exit import exit_at_once
from torchscale.worker.launcher.rank_process import run_rank_process

if __name__ == "__main__":
    # With a process group behind it, the interpreter's teardown can abort after the work is done
    # (seen with DDP on gloo in one of four launches): the record is written, so leave at once.
    exit_at_once(run_rank_process(sys.argv[1:], perf_counter()))
