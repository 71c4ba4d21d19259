"""Names of the NVTX ranges and marks by which a rank says in a recording of nsys what it does:
written by the worker, read from the export."""

from __future__ import annotations

import re
from typing import NamedTuple

NVTX_PACKAGE = "nvtx==0.2.11"
"""What ranks on CPUs mark with. Nsight Systems up to 2024.2 records nothing of 0.2.12 and newer
("NVTX payload extension is incompatible")."""
CAPTURE = "torchscale.capture"
"""The range, on CPUs, around what is recorded; CUDA has cudaProfilerStart and -Stop."""
DATA_WAIT = "torchscale.data_wait"
COLLECTION = "torchscale.gc"
COMPUTE_PHASES = ("torchscale.forward", "torchscale.backward", "torchscale.optimizer")
"""Phases in which a rank computes. On CPUs they end where the rank begins to wait for a collective,
and begin again after the wait, so that they are its work."""
RANK_MARK = re.compile(r"torchscale\.rank (\d{1,6})/(\d{1,6})")
_COLLECTIVE = re.compile(
    r"c10d::(\w{1,60}), bytes = (-?\d{1,18}), group = (.{0,4000}), sequence = (-?\d{1,18}), peer "
    r"= (-?\d{1,6})"
)
COLLECTIVE_PREFIX = "c10d::"


class CollectiveName(NamedTuple):
    """A collective of gloo, from its call to its completion.

    Attributes:
        op: Operation as the dispatcher of torch names it: ``allreduce_``, ``_allgather_base_`` …
        payload_bytes: The larger of what it reads and writes on this rank.
        group: Name and ranks of the process group.
        sequence: Number of the collective among those of the group since they are marked; -1 for
            sends and receives.
        peer: Global rank that a send or a receive concerns; -1 for others.
    """

    op: str
    payload_bytes: int
    group: str
    sequence: int
    peer: int

    @property
    def text(self) -> str:
        """The text of the range, as :meth:`parse` reads it."""
        return (
            f"{COLLECTIVE_PREFIX}{self.op}, bytes = {self.payload_bytes}, group = {self.group}, "
            f"sequence = {self.sequence}, peer = {self.peer}"
        )

    @classmethod
    def parse(cls, text: str) -> CollectiveName | None:
        """Read the text of a range; ``None`` for other texts."""
        match = _COLLECTIVE.fullmatch(text)
        if match is None:
            return None
        op, size, group, sequence, peer = match.groups()
        return cls(op, int(size), group, int(sequence), int(peer))


def rank_mark(rank: int, world_size: int) -> str:
    """The mark by which a process is known as a rank."""
    return f"torchscale.rank {rank}/{world_size}"


def step_name(number: int) -> str:
    """The range of a training step."""
    return f"torchscale.step {number}"
