"""All-reduces of two nodes at a time, one partner after another: ``python -m
torchscale.worker.machine.pairs TASK OUT``, a process on every node. TASK is a :class:`PairTask`; the times
(:class:`PairTimes`) go to OUT.

The nodes share one store, on place 0. In each round they form groups of two under keys of their
own, and they start the next round together: at any time all pairs of one round use the network, and
no others.
"""

from __future__ import annotations

import socket
import sys
import threading
from datetime import timedelta
from pathlib import Path
from time import perf_counter

import torch
import torch.distributed as dist
from torch.distributed import TCPStore, distributed_c10d  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import PrefixStore, Store

from torchscale.catalog.backends import is_nccl
from torchscale.schema.node.fleet import PairTask, PairTimes, PartnerTimes
from torchscale.util.files import atomic_write_model
from torchscale.util.processes.exit import exit_at_once

_WAITS = 3
"""Bounds that a pair may use up before the others take its node for lost: to meet, to all-reduce,
to share times."""
_CONNECT_SECONDS = 5.0
"""Time limit for a connection between two nodes, which takes milliseconds where there is a way; gloo
tries for longer than a pair has."""
_LEAVE_SECONDS = 10.0
"""Time limit for a communicator to end, which takes well below a second where it does."""
_NOT_LEFT = "the communicator of an earlier pair of this node did not end"
_LONGEST_ERROR = 300
"""Characters of a failure: gloo and NCCL append a C++ stack."""


def main() -> None:
    """Measure with one partner a round; write the times of pairs in which this node has the lower
    place."""
    task, out = PairTask.model_validate_json(Path(sys.argv[1]).read_bytes()), Path(sys.argv[2])
    device = device_of(task)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    store = TCPStore(
        task.master_address,
        task.master_port,
        world_size=task.nodes,
        is_master=task.place == 0,
        timeout=timedelta(seconds=_WAITS * task.timeout_seconds + _LEAVE_SECONDS),
        wait_for_workers=False,
    )
    measured = []
    for number, partner in enumerate(task.partners):
        meet(store, f"round {number}", task.nodes)
        if partner is not None:
            times = measure_pair(task, number, partner, store, device)
            if partner > task.place:
                measured.append(times)
    atomic_write_model(out, PairTimes(partners=tuple(measured)))
    leave(store, task)
    exit_at_once(
        0
    )  # an interpreter's teardown behind a process group can abort after the work is done


def device_of(task: PairTask) -> torch.device:
    """Where this node takes part: on the GPU of the rail that is measured, or on the CPUs."""
    if is_nccl(task.backend):
        return torch.device("cuda", task.gpu)
    return torch.device("cpu")


def meet(store: Store, name: str, nodes: int) -> None:
    """Wait until all nodes are here.

    Raises:
        RuntimeError: one is not within the store's timeout.
    """
    if store.add(name, 1) == nodes:
        store.set(f"{name}, all", "1")
    store.wait([f"{name}, all"])


def leave(store: Store, task: PairTask) -> None:
    """Keep place 0, which has the store, until no other node needs it any more.

    Raises:
        RuntimeError: a node is still needed after the store's timeout.
    """
    if task.place > 0:
        if store.add("left", 1) == task.nodes - 1:
            store.set("all left", "1")
        return
    if task.nodes > 1:
        store.wait(["all left"])


def measure_pair(
    task: PairTask, number: int, partner: int, store: Store, device: torch.device
) -> PartnerTimes:
    """Seconds of each all-reduce with ``partner``; a failure is in ``error``."""
    if dist.is_initialized():
        return PartnerTimes(partner=partner, error=_NOT_LEFT)
    lower, higher = sorted((task.place, partner))
    failed = True
    keys = PrefixStore(f"pair {number} {lower} {higher}", store)
    try:
        if task.address:
            connect(keys, task.address, listens=task.place == higher)
        dist.init_process_group(
            task.backend,
            store=keys,
            rank=int(task.place == higher),
            world_size=2,
            timeout=timedelta(seconds=task.timeout_seconds),
        )
        seconds = time_all_reduces(task.message_bytes // 4, task.repeats, device)
        failed = False
    except (OSError, RuntimeError, ValueError) as error:
        lines = str(error).strip().splitlines()
        return PartnerTimes(
            partner=partner, error=(lines or [type(error).__name__])[0][:_LONGEST_ERROR]
        )
    finally:
        leave_group(failed=failed, seconds=_LEAVE_SECONDS)
    return PartnerTimes(partner=partner, seconds=seconds)


def connect(keys: Store, address: str, *, listens: bool) -> None:
    """Connect the two nodes of a pair, one of which listens on its address.

    Raises:
        OSError: there is no way between them.
    """
    if listens:
        with socket.create_server((address, 0)) as server:
            server.settimeout(_CONNECT_SECONDS)
            keys.set("address", f"{address}:{server.getsockname()[1]}")
            server.accept()[0].close()
        return
    host, _, port = keys.get("address").decode().rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise OSError(f"no connection to {host}: {error}") from error


def leave_group(*, failed: bool, seconds: float) -> None:
    """Leave the group of a pair, and wait for that so long at most. NCCL ends a communicator
    together with the partner, who may be gone: where the pair failed, it is aborted.

    A group that is not left then stays, and no other one can be made.
    """
    if not dist.is_initialized():
        return
    leave = dist.destroy_process_group
    if failed and is_nccl(dist.get_backend()):
        leave = getattr(distributed_c10d, "_abort_process_group", leave)
    thread = threading.Thread(target=leave, name="leaving a group", daemon=True)
    thread.start()
    thread.join(seconds)


def time_all_reduces(elements: int, repeats: int, device: torch.device) -> tuple[float, ...]:
    """Seconds of ``repeats`` all-reduces of so many fp32 elements, each after a barrier, after one
    that is not counted. Of each, the time of the rank that took longest."""
    values = torch.zeros(elements, device=device)
    times = []
    for _ in range(1 + repeats):
        dist.barrier()
        started = perf_counter()
        dist.all_reduce(values)
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(perf_counter() - started)
    slowest = torch.tensor(times[1:], dtype=torch.float64, device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return tuple(slowest.tolist())


if __name__ == "__main__":
    main()
