"""What ``torchscale watch`` costs a rank, measured within one process.

::

    torchrun --standalone --nproc-per-node 2 benchmarks/watch_cost.py --strategy fsdp -o DIR

Wall times of equal runs differ by several per cent on a shared host, more than the collector takes.
So each process alternates short blocks of steps with its collector attached and detached, in random
order within each pair of blocks, while the model, the memory and the neighbours stay the same.
Detached, the replaced functions are torch's own again and the collector's thread waits; the clocks
of the collector stand still meanwhile, so that it reads and writes as often in attached time as it
would in a whole run.

Of each block it takes the wall time and the processor time of the process, which other programs
disturb less. Besides, it measures directly: the time in the hooks of the main thread, and of the
collector's thread the processor time and the bytes that it writes. ``benchmarks/watch.py`` runs it
and prints what it leaves in ``DIR/rank-R.json``.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, dataloader

from torchscale.worker.watch import beats, hooks, marks, recorder
from torchscale.worker.watch import collector as collectors
from torchscale.worker.watch.rings import rings

sys.path.insert(0, str(Path(__file__).resolve().parent / "jobs"))

from training import Network, Rows, make_job

LAYERS, WIDTH, ROWS = 6, 256, 128
"""Of the network and a batch: all of a step is computed, so that the collector competes with it."""
SETTLING = 2
"""Steps after a switch that count for neither side."""
CALLS = 20_000
"""Over which the cost of a hook is taken."""
PATCHED: tuple[tuple[Any, str], ...] = (
    (torch.autograd, "backward"),
    (torch.nn.parallel.DistributedDataParallel, "forward"),
    (torch.nn.Module, "train"),
    (dataloader._BaseDataLoaderIter, "__next__"),
    (dist.Work, "wait"),
    (functional, "wait_tensor"),
)
"""What the collector replaces of what a step calls."""


class AttachedTime:
    """A clock that stands still while the collector is detached."""

    def __init__(self) -> None:
        self._away, self._since = 0.0, 0.0

    def now(self) -> float:
        """Seconds."""
        until = self._since or time.monotonic()
        return until - self._away

    def stop(self) -> None:
        """Stand still."""
        self._since = time.monotonic()

    def go_on(self) -> None:
        """Run again."""
        self._away += time.monotonic() - self._since
        self._since = 0.0


class Gate(threading.Event):
    """In place of the event that ends the collector's thread: the thread waits while it is closed.

    Attributes:
        thread: The kernel's number of that thread.
    """

    def __init__(self) -> None:
        super().__init__()
        self.thread = 0
        self.is_open = threading.Event()
        self.is_open.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Whether the thread is to end."""
        self.thread = threading.get_native_id()
        is_over = super().wait(timeout)
        self.is_open.wait()
        return is_over


class Switch:
    """Attaches a collector to this process and detaches it.

    Attributes:
        step_seconds, step_cpu_seconds: In the optimizer's hooks, with what the collector does after
            a step; wall time, and without the time in which the thread had no core.
        noted: Moments by kind.
    """

    def __init__(self, directory: Path) -> None:
        originals = [getattr(owner, name) for owner, name in PATCHED]
        self._clock = AttachedTime()
        callbacks = list(gc.callbacks)
        for module, name in ((beats, "time"), (recorder, "monotonic")):
            setattr(module, name, self._clock.now)
        made: list[collectors.Collector] = []
        keep = collectors.Collector.__init__

        def noting(self: collectors.Collector, directory: Path, *, in_ray: bool = False) -> None:
            keep(self, directory, in_ray=in_ray)
            made.append(self)

        collectors.Collector.__init__ = noting  # type: ignore[method-assign]
        collectors.install(str(directory))
        collectors.Collector.__init__ = keep  # type: ignore[method-assign]
        (self.collector,) = made
        self.gate = Gate()
        self.collector._ends = self.gate
        self._both = [
            (owner, name, original, getattr(owner, name))
            for (owner, name), original in zip(PATCHED, originals, strict=True)
        ]
        for _, name, original, replaced in self._both:
            assert original is not replaced, f"the collector does not replace {name} any more"
        self.step_seconds = self.step_cpu_seconds = 0.0
        self.noted: Counter[int] = Counter()
        self._count_moments()
        self._steps = self._timed_hooks()
        self._collections = [one for one in gc.callbacks if one not in callbacks]
        self._last_entry = 0

    def _count_moments(self) -> None:
        take = self.collector.marks.take

        def counting() -> list[int]:
            taken = take()
            self.noted.update(marks.moment(mark)[0] for mark in taken)
            return taken

        self.collector.marks.take = counting  # type: ignore[method-assign]

    def _timed_hooks(self) -> list[tuple[dict[int, Any], dict[int, Any]]]:
        """The optimizer's hooks, each timed."""
        tables = (
            optimizers._global_optimizer_pre_hooks,
            optimizers._global_optimizer_post_hooks,
        )
        for table in tables:
            for key, hook in table.items():
                table[key] = self._timed(hook)
        return [(table, dict(table)) for table in tables]

    def _timed(self, hook: Callable[..., object]) -> Callable[..., None]:
        def timed(*args: object) -> None:
            began, used = perf_counter(), time.thread_time()
            hook(*args)
            self.step_cpu_seconds += time.thread_time() - used
            self.step_seconds += perf_counter() - began

        return timed

    def detach(self) -> None:
        """Have torch be as it is without the collector."""
        self.gate.is_open.clear()
        self._clock.stop()
        for owner, name, original, _ in self._both:
            setattr(owner, name, original)
        for table, _ in self._steps:
            table.clear()
        for callback in self._collections:
            gc.callbacks.remove(callback)
        self._last_entry = self._newest_entry()

    def attach(self) -> None:
        """The collector goes on where it was; what was called meanwhile is none of its steps'."""
        skipped = self._newest_entry() - self._last_entry
        assert self.collector._recorder is not None
        for reader in self.collector._recorder._readers.values():
            reader._next += skipped
        for owner, name, _, replaced in self._both:
            setattr(owner, name, replaced)
        for table, kept in self._steps:
            table.update(kept)
        gc.callbacks.extend(self._collections)
        self._clock.go_on()
        self.gate.is_open.set()

    def _newest_entry(self) -> int:
        """Of gloo's recorder, the only one with entries on CPUs."""
        with recorder._no_collection():
            found = [ring.content().get("entries") for ring in rings()]
        return max((int(entries[-1]["record_id"]) for entries in found if entries), default=0)


class ThreadUse:
    """Of the collector's thread: processor time and bytes that it writes, from the kernel."""

    def __init__(self, thread: int) -> None:
        self._folder = Path(f"/proc/self/task/{thread}")

    def read(self) -> tuple[float, int]:
        """Seconds and bytes since the thread's start."""
        ran = int((self._folder / "schedstat").read_text().split()[0])
        written = 0
        for line in (self._folder / "io").read_text().splitlines():
            name, _, value = line.partition(":")
            written += int(value) if name == "wchar" else 0
        return ran * 1e-9, written


def hook_seconds() -> float:
    """What a replaced function takes more than torch's own, in seconds: two moments and the call
    around."""

    class Owner:
        """Of a function that does nothing."""

        @staticmethod
        def call() -> None:
            """Nothing."""

    def timed() -> float:
        call = Owner.call
        began = perf_counter()
        for _ in range(CALLS):
            call()
        return (perf_counter() - began) / CALLS

    plain = min(timed() for _ in range(5))
    noted = marks.Marks()
    noted.start()
    hooks._surround(Owner, "call", noted, marks.WAIT, marks.WAIT_END)
    return min(timed() for _ in range(5)) - plain


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--strategy", default="ddp")
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--block-seconds", type=float, default=0.3)
    parser.add_argument("-o", "--output", type=Path, required=True)
    return parser.parse_args()


def main() -> None:
    """Train in alternating blocks, and leave the times of each."""
    options = _arguments()
    torch.set_num_threads(1)
    directory = options.output / "job"
    directory.mkdir(parents=True, exist_ok=True)
    switch = Switch(directory)
    dist.init_process_group("gloo")
    job = make_job(options.strategy, lambda layers: Network(layers, WIDTH), LAYERS)
    batches = iter(DataLoader(Rows(WIDTH), batch_size=ROWS))

    def run(steps: int) -> tuple[float, float]:
        """Wall time, and processor time of all threads."""
        began, used = perf_counter(), time.process_time()
        for _ in range(steps):
            batch = next(batches)
            job.passes(batch)
            job.update()
        return perf_counter() - began, time.process_time() - used

    run(20)
    steps = torch.tensor(max(4, round(options.block_seconds / (run(40)[0] / 40))))
    dist.broadcast(steps, 0)
    count = int(steps)
    use, order = ThreadUse(switch.gate.thread), random.Random(0)
    pairs, attached = [], 0.0
    ran, written = use.read()
    switch.noted.clear()
    switch.step_seconds = switch.step_cpu_seconds = 0.0
    for _ in range(options.pairs):
        seconds: dict[bool, tuple[float, float]] = {}
        for is_attached in order.sample((True, False), 2):
            if not is_attached:
                switch.detach()
            dist.barrier()
            began = perf_counter()
            run(SETTLING)
            seconds[is_attached] = run(count)
            if is_attached:
                attached += perf_counter() - began
            else:
                switch.attach()
        pairs.append([[value / count for value in seconds[side]] for side in (True, False)])
    until, bytes_until = use.read()
    total = options.pairs * (count + SETTLING)
    content = {
        "pairs": pairs,
        "block_steps": count,
        "attached_seconds": attached,
        "hook_seconds": hook_seconds(),
        "step_hook_seconds": switch.step_seconds / total,
        "step_hook_cpu_seconds": switch.step_cpu_seconds / total,
        "moments_per_step": sum(switch.noted.values()) / total,
        "thread_seconds": until - ran,
        "written_bytes": bytes_until - written,
        "lost_calls": getattr(switch.collector._recorder, "lost", 0),
        "pid": os.getpid(),
    }
    (options.output / f"rank-{dist.get_rank()}.json").write_text(json.dumps(content))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
