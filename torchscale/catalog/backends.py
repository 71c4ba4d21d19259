"""Backends of torch.distributed, and what they have in common."""

from __future__ import annotations

import re

NCCL = "nccl"
"""NVIDIA's library, and the name under which torch offers AMD's (RCCL)."""
_NCCL_NAMES = frozenset({NCCL, "nccl2", "nccl-legacy", "nccl-lazy", "ncclx", "rccl", "rcclx"})
"""torch has several backends over NCCL: ``nccl2`` from 2.14 on, the default from 2.15 on, when
``nccl-legacy`` is the earlier one."""
_HOST_NAMES = frozenset({"", "gloo", "mpi", "fake", "undefined"})
"""Backends whose collectives the host carries out, and those that carry out none."""


def is_nccl(backend: str | None) -> bool:
    """Whether a backend moves data with NCCL, or RCCL.

    Args:
        backend: As torch names it: ``nccl``, ``nccl2``, ``cpu:gloo,cuda:nccl``; ``None`` for none.
    """
    return not _NCCL_NAMES.isdisjoint(names_in(backend))


def runs_on_device(backend: str | None) -> bool:
    """Whether a backend's collectives are kernels in a stream of the device, so that its host goes
    on after a call: NCCL and those of other devices (``xccl``, ``hccl``, ``mccl``)."""
    return not _HOST_NAMES.issuperset(names_in(backend))


def names_in(backend: str | None) -> set[str]:
    """The backends of ``cpu:gloo,cuda:nccl``; of ``nccl`` that alone."""
    parts = re.split(r"[,\s]+", (backend or "").lower())
    return {part.rpartition(":")[2] for part in parts}
