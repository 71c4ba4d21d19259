"""Nodes that are limited by the kernel: network namespaces whose processes share a quota of CPU time,
with a disk of their own that has a limited rate. Needs root, iproute2, and control groups of version
1. All of it goes when the context is left."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from limited_disk import limited_disk

if TYPE_CHECKING:
    from tests import network

_CPU = Path("/sys/fs/cgroup/cpu")
_MEMORY = "/dev/shm"  # noqa: S108 - what lies there is in memory
_PERIOD_MICROSECONDS = 10_000
"""A tenth of the kernel's default: a product of some 50 ms then meets several periods, so that rates do
not depend on where in a period it began."""
_NEIGHBOUR_SHARES = 512
"""Of the 1,024 that the tenant has: the neighbour gets a third of the node."""
_END_SECONDS = 20.0


@dataclass(frozen=True)
class LimitedNode:
    """A node, the directory of its disk, and its control groups: the ``tenant``'s holds what is
    measured, the ``neighbour``'s what else runs on that node; both share the node's quota."""

    node: network.Node
    disk: Path
    tenant: Path
    neighbour: Path

    def start(
        self, command: Sequence[str], group: Path, directory: Path, env: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Run ``command`` on the node in one of its groups; its output goes to ``out`` and ``errors``
        in ``directory``."""
        enter = ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs")]
        with (directory / "out").open("wb") as out, (directory / "errors").open("wb") as errors:
            return subprocess.Popen(
                [*enter, *self.node.argv(*command)],
                cwd=directory,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
            )


@contextmanager
def limited(
    nodes: Sequence[network.Node],
    quotas: Sequence[float],
    disk_rates: Sequence[int],
    shares: int,
) -> Iterator[list[LimitedNode]]:
    """Give each node a quota of CPUs, and a disk of so many bytes per second for reads and for
    writes. ``shares``: weight of all nodes together against what else runs on the machine, of which a
    control group has 1,024 by default."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rounds-")))
        images = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=_MEMORY)))
        made = []
        for node, rate in zip(nodes, disk_rates, strict=True):
            mount = directory / node.hostname
            mount.mkdir()
            stack.enter_context(limited_disk(images / node.hostname, mount, rate, journal=False))
            made.append(mount)
        base = _CPU / f"rounds-{os.getpid()}"
        stack.enter_context(_group(base))
        (base / "cpu.shares").write_text(str(shares))
        found = []
        for node, mount, quota in zip(nodes, made, quotas, strict=True):
            group = stack.enter_context(_group(base / node.hostname))
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD_MICROSECONDS))
            (group / "cpu.cfs_quota_us").write_text(str(round(quota * _PERIOD_MICROSECONDS)))
            tenant, neighbour = (
                stack.enter_context(_group(group / name)) for name in ("tenant", "neighbour")
            )
            (neighbour / "cpu.shares").write_text(str(_NEIGHBOUR_SHARES))
            found.append(LimitedNode(node, mount, tenant, neighbour))
        yield found


@contextmanager
def _group(path: Path) -> Iterator[Path]:
    """A control group; its processes are killed before it is removed."""
    path.mkdir()
    try:
        yield path
    finally:
        deadline = time.monotonic() + _END_SECONDS
        while left := (path / "cgroup.procs").read_text().split():
            for process in map(int, left):
                _kill(process)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path}: processes {left} do not end")
            time.sleep(0.02)
        path.rmdir()


def _kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return
