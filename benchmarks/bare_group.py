"""The floor of a sweep of short cells: ranks of ``bare_loop.py`` as forks of one process that has
imported torch and the model's library, one cell after the other::

    python benchmarks/bare_group.py OUT.json '[{"batch": 4, "ranks": 2}, …]' --warmup 20 --steps 50

It writes the throughput of each cell. There is no agent, no store but that of rank 0, no check, no
record and no digest.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import bare_loop
import torch.distributed as dist  # before the forks, as everything that ranks import


def main() -> None:
    """Run all cells."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("cells", type=json.loads)
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--steps", type=int, default=50)
    arguments = parser.parse_args()
    assert dist.is_available()
    gc.collect()
    gc.freeze()
    rates = []
    for cell in arguments.cells:
        _run(cell, arguments)
        rates.append(json.loads(arguments.out.read_text())["samples_per_second"])
    arguments.out.write_text(json.dumps(rates))


def _run(cell: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Fork the ranks of a cell, and wait for them."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(cell["ranks"]))
    forks = []
    for rank in range(cell["ranks"]):
        pid = os.fork()
        if pid == 0:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
            counts = ["--warmup", str(arguments.warmup), "--steps", str(arguments.steps)]
            sys.argv = ["", str(arguments.out), "--batch-size", str(cell["batch"]), *counts]
            bare_loop.main()  # ends the process
        forks.append(pid)
    failed = [pid for pid in forks if os.waitpid(pid, 0)[1]]
    if failed:
        raise SystemExit(f"{cell}: a rank has failed")


if __name__ == "__main__":
    main()
