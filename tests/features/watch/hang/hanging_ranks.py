"""Ranks that train with DDP over gloo until one of them goes wrong.

Reads a case a line, as ``sleep 2 1`` (fault, ranks, which rank), forks its ranks, prints a line
when the fault has struck, and ends them at the next line. The ranks are forked from one process
that has imported torch.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import tempfile
import threading
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 4


def main() -> None:
    """Fork ranks; in a rank, train."""
    case = next_case()
    if case is not None:
        fault, size, odd, rank, store = case
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
        job = Inline if fault == "inline" else Job
        job(fault, rank == odd).run()
        dist.barrier()
        dist.destroy_process_group()


def next_case() -> tuple[str, int, int, int, str] | None:
    """Serves cases. Returns in a rank alone: the callers of a rank's code are in no loop."""
    ranks: list[int] = []
    for line in sys.stdin:
        for pid in ranks:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        ranks.clear()
        fault, size, odd = line.split()
        with tempfile.NamedTemporaryFile(delete=False) as file:
            store = file.name
        for rank in range(int(size)):
            pid = os.fork()
            if pid == 0:
                become(rank, int(size))
                return fault, int(size), int(odd), rank, store
            ranks.append(pid)
    return None


def become(rank: int, size: int) -> None:
    """Write the rank over the placeholders in the environment that the kernel shows of this
    process."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_void_p
    for name, value in (
        ("RANK", rank),
        ("LOCAL_RANK", rank),
        ("WORLD_SIZE", size),
        ("LOCAL_WORLD_SIZE", size),
    ):
        ctypes.memmove(getenv(name.encode()), str(value).encode(), 1)
    sys.stdin.close()


class Job:
    """A training whose loop is a function of its own."""

    def __init__(self, fault: str, is_odd: bool) -> None:
        self.fault, self.is_odd = fault, is_odd
        self.model = DistributedDataParallel(torch.nn.Linear(8, 8))
        if fault == "busy_backward" and is_odd:
            self.model.module.weight.register_hook(self.strike)

    def run(self) -> None:
        """All epochs."""
        if self.fault == "epochs":
            for _ in range(STEPS):
                self.train(STEPS)
                if self.is_odd:
                    self.tell()
                    dist.barrier()
        else:
            self.train(self.batches())
            if self.leaves_early():
                self.tell()

    def batches(self) -> int:
        """How many this rank has."""
        return STEPS - self.leaves_early()

    def leaves_early(self) -> bool:
        """Whether this rank has one batch less."""
        return (self.fault in ("uneven", "inline") and self.is_odd) or (
            self.fault == "most" and not self.is_odd
        )

    def train(self, batches: int) -> None:
        """One epoch."""
        for step in range(batches):
            if step == STEPS - 1 and self.is_odd:
                self.strike()
            self.step()

    def step(self) -> None:
        """One step."""
        loss = self.model(torch.ones(2, 8)).sum()
        loss.backward()

    def strike(self, *_: Any) -> None:
        """What goes wrong on one rank."""
        if self.fault in ("busy", "busy_backward"):
            self.tell()
            while True:
                pass
        elif self.fault == "sleep":
            self.tell()
            time.sleep(1000)
        elif self.fault == "lock":
            self.tell()
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        elif self.fault == "stop":
            self.tell()
            os.kill(os.getpid(), signal.SIGSTOP)

    def tell(self) -> None:
        """That this rank is about to hang."""
        sys.stdout.write(f"{self.fault}\n")
        sys.stdout.flush()


class Inline(Job):
    """A training whose loop and end are in one function."""

    def run(self) -> None:
        """All of it."""
        for _ in range(self.batches()):
            loss = self.model(torch.ones(2, 8)).sum()
            loss.backward()
        if self.leaves_early():
            self.tell()
        dist.barrier()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
